"""What a relocatable ELF64 object holds: sections, symbols, relocations.

Source: the System V ABI's object files chapter (section header 64 bytes, symbol 24 bytes,
relocation with an addend 24 bytes).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from graphc.ir.named import NamedTuple

MAGIC = b"\x7fELF\x02\x01"  # 64 bits, little-endian
X86_64, AARCH64 = 62, 183
# kinds of sections, and flags
SYMBOLS, RELOCATIONS, NO_BITS = 2, 4, 8
WRITE, ALLOC, EXECUTE, THREAD_LOCAL = 1, 2, 4, 0x400
ABSOLUTE, COMMON = 0xFFF1, 0xFFF2  # in place of a section's number
GLOBAL = 1  # the binding of a symbol that other objects see


class Section(NamedTuple):
    """One section; `data` is empty where it holds zeros."""

    name: str
    kind: int
    flags: int
    size: int
    alignment: int
    data: bytes
    target: int  # of relocations: the section that they are in


class Symbol(NamedTuple):
    """One symbol. `section` 0: somebody else's."""

    name: str
    section: int
    value: int
    binding: int


class Relocation(NamedTuple):
    """An address to be put in at `offset` of a section."""

    offset: int
    kind: int
    symbol: int
    addend: int


class Object(NamedTuple):
    """A relocatable object."""

    machine: int
    sections: list[Section]
    symbols: list[Symbol]

    def relocations(self) -> Iterator[tuple[int, Relocation]]:
        """Every relocation, with the number of the section that it is in."""
        for section in self.sections:
            if section.kind == RELOCATIONS:
                for offset, info, addend in struct.iter_unpack("<QQq", section.data):
                    found = Relocation(offset, info & 0xFFFFFFFF, info >> 32, addend)
                    yield section.target, found


def read(data: bytes) -> Object | None:
    """The object; None if it is something else."""
    if data[:6] != MAGIC:
        return None
    (table,) = struct.unpack_from("<Q", data, 40)
    count, names = struct.unpack_from("<HH", data, 60)
    headers = [
        struct.unpack_from("<IIQQQQIIQQ", data, table + 64 * index) for index in range(count)
    ]
    symbols: list[Symbol] = []
    sections: list[Section] = []
    for name, kind, flags, _, offset, size, link, info, alignment, _ in headers:
        content = b"" if kind == NO_BITS else data[offset : offset + size]
        spelled = _text(data, headers[names][4] + name)
        sections.append(Section(spelled, kind, flags, size, alignment, content, info))
        if kind == SYMBOLS:
            strings = headers[link][4]
            symbols = [
                Symbol(_text(data, strings + at), section, value, info >> 4)
                for at, info, _, section, value, _ in struct.iter_unpack("<IBBHQQ", content)
            ]
    return Object(machine(data), sections, symbols)


def machine(data: bytes) -> int:
    """The CPU that an object is for, as ELF numbers it."""
    return int.from_bytes(data[18:20], "little")


def _text(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode()


def global_names(data: bytes) -> tuple[set[str], set[str]] | None:
    """The global names that an object defines and wants; None if it is something else."""
    found = read(data)
    if found is None:
        return None
    defined: set[str] = set()
    wanted: set[str] = set()
    for symbol in found.symbols:
        if symbol.binding >= GLOBAL:
            (defined if symbol.section else wanted).add(symbol.name)
    wanted.discard("_GLOBAL_OFFSET_TABLE_")
    return defined, wanted
