"""Objects to a shared object: what is exported shows, nothing else does."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from graphc.backends.host import elf
from graphc.export.aot.linking import linkers
from graphc.export.aot.linking.errors import LinkError
from graphc.export.aot.linking.stubs import MACHINES, by_library, stub

# Addresses are put in when the file is loaded, and are read-only from then on; nothing is writable
# and executable; what is missing is told here. What the library exports it calls itself, whatever
# other libraries of the program define (-Bsymbolic).
_ARGUMENTS = """
-shared -nostdlib -Bsymbolic --strip-all --build-id=none --hash-style=gnu --eh-frame-hdr
-z defs -z text -z relro -z now -z noexecstack
""".split()


def link_shared(
    objects: Sequence[bytes], exports: Sequence[str], triple: str, soname: str
) -> bytes:
    """A shared object for Linux that exports these names; it needs libc, libm and threads.

    `triple`: the target's, as LLVM spells it. Equal arguments give equal bytes by the same linker.
    Raises LinkError: for an object of another CPU, a name that nobody defines, or two objects do,
    and where there is no linker, or it refuses.
    """
    arch = triple.split("-", 1)[0]
    if "linux" not in triple or arch not in MACHINES:
        raise LinkError(f"libraries are linked for Linux on {', '.join(MACHINES)}, not {triple}")
    needed = by_library(_wanted(objects, exports, arch))
    command = linkers.linker(arch)
    with tempfile.TemporaryDirectory(prefix="graphc-link-") as name:
        folder = Path(name)
        inputs = []
        for number, data in enumerate(objects):
            inputs.append(f"{number:04}.o")
            (folder / inputs[-1]).write_bytes(data)
        for library, names in needed.items():
            inputs.append(library)
            (folder / library).write_bytes(stub(library, names, arch))
        shown = "".join(f"{name}; " for name in sorted(exports))
        shown = f"global: {shown}" if exports else ""
        (folder / "exports").write_text(f"{{ {shown}local: *; }};\n")
        linkers.run(command, [
            "-m", linkers.EMULATIONS[arch], *_ARGUMENTS, "-soname", soname,
            "--version-script", "exports", "-o", "library.so", *inputs,
        ], folder)
        return (folder / "library.so").read_bytes()


def _wanted(objects: Sequence[bytes], exports: Sequence[str], arch: str) -> set[str]:
    """The names that the objects leave to the system."""
    places: dict[str, int] = {}
    wanted: set[str] = set()
    for number, data in enumerate(objects):
        names = elf.global_names(data)
        if names is None or elf.machine(data) != MACHINES[arch]:
            raise LinkError(f"object {number} is no ELF object for {arch}")
        for name in sorted(names[0]):
            if name in places:
                raise LinkError(f"objects {places[name]} and {number} both define {name}")
            places[name] = number
        wanted |= names[1]
    missing = sorted(set(exports) - places.keys())
    if missing:
        raise LinkError(f"no object defines {', '.join(missing)}, which the library is to export")
    return wanted - places.keys()
