"""Objects to a WebAssembly module that imports nothing: its memory is its own."""

from __future__ import annotations

import importlib.util
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from graphc.backends.host import wasm
from graphc.export.aot.linking import linkers
from graphc.export.aot.linking.errors import LinkError

STACK = 1 << 20  # bytes; it lies first, so that one that overflows traps
HEAP = "__heap_base"  # the global that says where memory is free
_ARGUMENTS = ["--no-entry", "--stack-first", "-z", f"stack-size={STACK}", "--strip-all",
              "--fatal-warnings"]


def link_wasm(objects: Sequence[bytes], exports: Sequence[str]) -> bytes:
    """A module that exports these functions, `memory` and HEAP.

    Raises LinkError for a name that nobody defines, or two objects do, and without a linker.
    """
    defined: dict[str, int] = {}
    wanted: dict[str, None] = {}
    for number, data in enumerate(objects):
        names = wasm.global_names(data)
        if names is None:
            raise LinkError(f"object {number} is no WebAssembly object")
        for name in sorted(names[0]):
            if name in defined:
                raise LinkError(f"objects {defined[name]} and {number} both define {name}")
            defined[name] = number
        wanted.update(dict.fromkeys(sorted(names[1])))
    missing = [name for name in wanted if name not in defined]
    if missing:
        raise LinkError(
            f"the code calls {', '.join(missing)} of the C library, which WebAssembly does not "
            "have. Cure: compute outside of what is exported what needs these"
        )
    command = _linker()
    with tempfile.TemporaryDirectory(prefix="graphc-link-") as name:
        folder = Path(name)
        inputs = [f"{number:04}.o" for number in range(len(objects))]
        for file, data in zip(inputs, objects, strict=True):
            (folder / file).write_bytes(data)
        shown = [f"--export={each}" for each in (*sorted(exports), HEAP)]
        linkers.run(command, [*_ARGUMENTS, *shown, "-o", "module.wasm", *inputs], folder)
        return (folder / "module.wasm").read_bytes()


def available() -> bool:
    """Whether there is a linker."""
    try:
        _linker()
    except LinkError:
        return False
    return True


def _linker() -> tuple[str, ...]:
    found = shutil.which("wasm-ld")
    if found is not None:
        return (found,)
    if importlib.util.find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "wasm-ld")
    raise LinkError(
        "there is no linker for WebAssembly on this machine. Cure: install lld (wasm-ld), or "
        "`pip install graphc-compiler[aot]`, which brings one"
    )
