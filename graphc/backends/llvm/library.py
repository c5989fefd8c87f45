"""Object bytes to addresses in this process."""

from __future__ import annotations

import functools
import itertools
import platform
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from graphc.backends.host import elf
from graphc.backends.llvm.image import Image, UnlinkableError, link
from graphc.backends.llvm.mapped import Mapped, missing

MAPS_IMAGES = sys.platform == "linux" and platform.machine() == "x86_64"


class LLVMError(RuntimeError):
    """LLVM refused a module or an object; the message shows the offending line."""


class Library:
    """Objects linked together in this process; addresses stay valid as long as the Library lives.

    A name that no object defines is looked up in `symbols`, then among the process's own (libc,
    libm, CPython). Raises LLVMError for a missing or doubled name. `image` is what may be kept for
    another process; None where LLVM's linker did it, of what images do not hold.
    """

    image: Image | None = None

    def __init__(self, objects: Iterable[bytes], symbols: Mapping[str, int] | None = None) -> None:
        objects, symbols = list(objects), symbols or {}
        names = _check_symbols(objects, symbols)
        self._code: Mapped | _Jitted
        try:
            if not MAPS_IMAGES:
                raise UnlinkableError("images are made for Linux on x86-64")
            self.image = link(objects)
            self._code = Mapped(self.image, symbols)
        except UnlinkableError:
            self._code = _Jitted(objects, symbols, names or set())

    @classmethod
    def of(cls, image: Image, symbols: Mapping[str, int] | None = None) -> Library:
        """An image that another process has kept. Raises LLVMError for a missing name."""
        library = cls.__new__(cls)
        library.image = image
        try:
            library._code = Mapped(image, symbols or {})
        except KeyError as error:
            raise LLVMError(f"undefined symbols: {error.args[0]}") from None
        return library

    def address(self, name: str) -> int:
        """The address of a function or global defined by one of the objects."""
        try:
            return self._code.address(name)
        except KeyError:
            raise KeyError(f"no object of this library defines {name!r}") from None


@functools.cache
def _linker() -> Any:
    """The process's one in-memory linker (JITLink: small code, any distance between objects)."""
    from graphc.backends.llvm.binding import binding

    llvm = binding()
    machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
        reloc="pic", codemodel="small", jit=True
    )
    return llvm.create_lljit_compiler(machine, use_jit_link=True, suppress_errors=True)


class _Jitted:
    """Objects linked by LLVM."""

    _serial = itertools.count()

    def __init__(
        self, objects: Iterable[bytes], symbols: Mapping[str, int], names: set[str]
    ) -> None:
        from graphc.backends.llvm.binding import LOCK, binding

        with LOCK:
            builder = binding().JITLibraryBuilder().add_current_process()
            for data in objects:
                builder.add_object_img(data)
            for name, address in symbols.items():
                builder.import_symbol(name, address)
            for name in names:
                builder.export_symbol(name)
            self._name = f"graphc.{next(self._serial)}"
            try:
                self._tracker = builder.link(_linker(), self._name)
            except RuntimeError as error:
                raise LLVMError(f"cannot link generated code: {error}") from None
        self._addresses = {name: int(self._tracker[name]) for name in names}

    def address(self, name: str) -> int:
        """Raises KeyError."""
        from graphc.backends.llvm.binding import LOCK

        if name not in self._addresses:
            with LOCK:
                try:
                    found = _linker().lookup(self._name, name)
                except RuntimeError:
                    raise KeyError(name) from None
                self._addresses[name] = int(found[name])
        return self._addresses[name]


def _check_symbols(objects: list[bytes], symbols: Mapping[str, int]) -> set[str] | None:
    """The defined names; None where the object format is not ELF and the linker must judge."""
    defined: set[str] = set()
    wanted: set[str] = set()
    for data in objects:
        table = elf.global_names(data)
        if table is None:
            return None
        doubled = defined & table[0]
        if doubled:
            raise LLVMError(f"two objects define {sorted(doubled)[0]!r}")
        defined |= table[0]
        wanted |= table[1]
    outside = missing(sorted(wanted - defined - symbols.keys()))
    if outside:
        raise LLVMError(f"undefined symbols: {', '.join(outside)}")
    return defined
