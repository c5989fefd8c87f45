"""Extension modules that are linked to PyTorch's own libraries: refused by name, never loaded.

Loaded beside graphc they would bring a second torch into the process, or fail on a symbol.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from pathlib import Path
from typing import IO, Any, NamedTuple

_OF_PYTORCH = re.compile(r"lib(torch|c10|caffe2)(_\w+)?\.(so|dylib)(\.\d+)*")
_LOAD, _DYNAMIC = 1, 2  # kinds of segments
_END, _NEEDED, _STRINGS = 0, 1, 5  # tags of the dynamic section
_LONGEST = 256  # bytes of a library's name
_MOST = 1 << 24  # bytes of a table: sections and segments are told apart by 16 bits


class _Segment(NamedTuple):
    kind: int
    offset: int  # in the file
    address: int
    size: int  # in the file


def needed(path: str | Path) -> list[str]:
    """The libraries that an ELF file names as needed (its DT_NEEDED entries); none for a file of
    another kind, or a damaged one, of which its loader has more to say. Raises OSError."""
    with open(path, "rb") as file:
        try:
            return list(_needed(file))
        except (struct.error, IndexError, OverflowError, ValueError):
            return []


def of_pytorch(path: str | Path) -> list[str]:
    """PyTorch's libraries among those that a file needs."""
    return [name for name in needed(path) if _OF_PYTORCH.fullmatch(name)]


def _needed(file: IO[bytes]) -> Iterator[str]:
    head = file.read(64)
    if head[:4] != b"\x7fELF":
        return
    wide, order = head[4] == 2, "<" if head[5] == 1 else ">"
    segments = list(_segments(file, head, wide, order))
    entry = struct.Struct(order + ("QQ" if wide else "II"))
    for dynamic in segments:
        if dynamic.kind != _DYNAMIC:
            continue
        entries = list(_entries(_read(file, dynamic.offset, dynamic.size), entry))
        tables = [value for tag, value in entries if tag == _STRINGS]
        places = [
            segment.offset + table - segment.address for segment in segments for table in tables
            if segment.kind == _LOAD and 0 <= table - segment.address < segment.size
        ]
        for tag, value in entries if places else ():
            if tag == _NEEDED:
                text = _read(file, places[0] + value, _LONGEST)
                yield text[: text.index(b"\0")].decode()


def _segments(file: IO[bytes], head: bytes, wide: bool, order: str) -> Iterator[_Segment]:
    # the file header's e_phoff, and its e_phentsize and e_phnum
    (start,) = struct.unpack_from(order + ("Q" if wide else "I"), head, 32 if wide else 28)
    size, count = struct.unpack_from(order + "HH", head, 54 if wide else 42)
    table = _read(file, start, size * count)
    for at in range(0, size * count, size):
        if wide:
            kind, _, offset, address, _, length = struct.unpack_from(order + "IIQQQQ", table, at)
        else:
            kind, offset, address, _, length = struct.unpack_from(order + "IIIII", table, at)
        yield _Segment(kind, offset, address, length)


def _entries(section: bytes, entry: struct.Struct) -> Iterator[tuple[int, int]]:
    for at in range(0, len(section) - entry.size + 1, entry.size):
        tag, value = entry.unpack_from(section, at)
        if tag == _END:
            return
        yield tag, value


def _read(file: IO[bytes], offset: int, size: int) -> bytes:
    if size > _MOST:
        raise ValueError(f"{size} bytes for a table")
    file.seek(offset)
    return file.read(size)


_create: Callable[..., Any] | None = None  # of the loader, while it is guarded


def guard() -> None:
    """From now on importing such a module raises ImportError, by whatever finder it was found."""
    global _create
    if _create is not None:
        return
    create = _create = ExtensionFileLoader.create_module

    def create_module(self: ExtensionFileLoader, spec: ModuleSpec) -> Any:
        _refuse(spec.name, str(self.path))
        return create(self, spec)

    ExtensionFileLoader.create_module = create_module  # type: ignore[method-assign]


def unguard() -> None:
    """Undo `guard`."""
    global _create
    if _create is not None:
        ExtensionFileLoader.create_module = _create  # type: ignore[method-assign]
        _create = None


def _refuse(name: str, path: str) -> None:
    try:
        libraries = of_pytorch(path)
    except OSError:  # the loader says it
        return
    if libraries:
        raise ImportError(
            f"{name} is compiled code that is built on PyTorch's own ({', '.join(libraries)}); "
            "`torch` is graphc here, which has no such libraries, so it was not loaded. Cure: the "
            f"parts of {name.partition('.')[0]} that need no compiled code, or PyTorch itself in "
            "an environment of its own",
            name=name, path=path,
        )
