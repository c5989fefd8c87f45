"""Objects linked to one block of bytes that runs wherever it is mapped: x86-64, ELF.

An image is three runs of whole pages: code; what is only read, with the addresses that code goes
by (a table like a shared library's GOT); what is written. Distances inside it are settled here.
What is left for whoever maps it are words that get the image's own address added, and words that
get the address of a name of the process.

Source: System V ABI, AMD64 supplement, "Relocation Types".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from graphc.backends.host import elf
from graphc.ir.named import NamedTuple

PAGE = 4096
_WORD = 8
# relocations: an address; distances of four bytes, to a place, a function, an entry of the table
_ADDRESS, _DISTANCE, _CALL = 1, 2, 4
_BY_TABLE = frozenset({9, 41, 42})
_JUMP = b"\xff\x25"  # jmp [rip + distance]
_STUB = 8  # bytes of one, padded


class UnlinkableError(ValueError):
    """An object has something in it that images do not hold."""


class Image(NamedTuple):
    """See above. `data` is what the pages hold; behind it are zeros up to `size`."""

    data: bytes
    read_only: int  # where code ends
    writable: int  # where the second run ends
    size: int
    moved: tuple[int, ...]  # places of words that get the image's address added
    imports: dict[str, list[int]]  # places of words that get an address of the process
    exports: dict[str, int]

    def encode(self) -> bytes:
        """Bytes that `decode` reads."""
        head = json.dumps(
            [self.read_only, self.writable, self.size, self.moved, self.imports, self.exports],
            separators=(",", ":"),
        ).encode()
        return len(head).to_bytes(8, "little") + head + self.data

    @classmethod
    def decode(cls, data: bytes) -> Image:
        """The image that was encoded: of bytes that are known to be whole."""
        end = 8 + int.from_bytes(data[:8], "little")
        first, second, size, moved, imports, exports = json.loads(data[8:end])
        return cls(data[end:], first, second, size, tuple(moved), imports, exports)


def link(objects: Iterable[bytes]) -> Image:
    """Raises UnlinkableError. Names that no object defines become imports; that none is defined
    twice is for the caller to see."""
    read = [elf.read(data) for data in objects]
    found = [each for each in read if each is not None and each.machine == elf.X86_64]
    if len(found) != len(read):
        raise UnlinkableError("an object is not x86-64 ELF")
    return _Linker(found).image()


def _aligned(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


class _Linker:
    def __init__(self, objects: Sequence[elf.Object]) -> None:
        self.objects = objects
        self.places: list[dict[int, int]] = [{} for _ in objects]  # of sections, by object
        self.table: dict[tuple[str, int], int] = {}  # entries, by imported name or place
        self.stubs: dict[str, int] = {}  # of imported functions
        self.moved: list[int] = []
        self.imports: dict[str, list[int]] = {}
        self.exports: dict[str, int] = {}

    def image(self) -> Image:
        code = self._lay_out(0, elf.EXECUTE, elf.EXECUTE)
        wanted = self._wanted()
        for name in sorted(wanted):
            self.stubs[name] = code = _aligned(code, _STUB)
            code += _STUB
        read_only = _aligned(code, PAGE)
        # what is written once, by whoever maps the image, counts as read
        end = self._lay_out(read_only, elf.EXECUTE | elf.WRITE, 0)
        end = self._lay_out(end, elf.WRITE, elf.WRITE, relocated=True)
        table = _aligned(end, _WORD)
        end = table + _WORD * (len(wanted) + self._most_entries())
        writable = _aligned(end, PAGE)
        filled = self._lay_out(writable, elf.WRITE, elf.WRITE, relocated=False, zeros=False)
        size = self._lay_out(filled, elf.WRITE, elf.WRITE, relocated=False, zeros=True)
        self._name_exports()
        self._lay_out_table(table, wanted)
        self.bytes = bytearray(filled if filled > writable else end)
        self._fill()
        return Image(
            bytes(self.bytes), read_only, writable, max(_aligned(size, PAGE), PAGE),
            tuple(self.moved), self.imports, self.exports,
        )

    def _lay_out(
        self, at: int, mask: int, flags: int, relocated: bool | None = None,
        zeros: bool | None = None,
    ) -> int:
        """Give sections with these flags places from `at` on; where they end."""
        for places, found in zip(self.places, self.objects, strict=True):
            for number, section in enumerate(found.sections):
                if not section.flags & elf.ALLOC or section.flags & mask != flags:
                    continue
                if section.flags & elf.THREAD_LOCAL:
                    raise UnlinkableError(f"section {section.name} is of each thread")
                once = section.name.startswith(".data.rel.ro")
                empty = section.kind == elf.NO_BITS
                if relocated not in (None, once) or zeros not in (None, empty):
                    continue
                places[number] = at = _aligned(at, max(section.alignment, 1))
                at += section.size
        return at

    def _wanted(self) -> set[str]:
        """Names that relocations ask for and no object defines."""
        defined = {
            symbol.name for found in self.objects for symbol in found.symbols
            if symbol.binding >= elf.GLOBAL and symbol.section
        }
        asked: set[str] = set()
        for found in self.objects:
            for _, relocation in found.relocations():
                symbol = found.symbols[relocation.symbol]
                if not symbol.section:
                    asked.add(symbol.name)
        return asked - defined

    def _name_exports(self) -> None:
        for number, found in enumerate(self.objects):
            for symbol in found.symbols:
                if symbol.binding >= elf.GLOBAL and symbol.section:
                    self.exports[symbol.name] = self._place(number, symbol)

    def _place(self, number: int, symbol: elf.Symbol) -> int:
        place = self.places[number].get(symbol.section)
        if place is None:  # absolute, common, or in a section that is not loaded
            raise UnlinkableError(f"symbol {symbol.name} lies in section {symbol.section:#x}")
        return place + symbol.value

    def _most_entries(self) -> int:
        """How many places code may find by the table."""
        return len({
            (number, relocation.symbol) for number, found in enumerate(self.objects)
            for _, relocation in found.relocations() if relocation.kind in _BY_TABLE
        })

    def _lay_out_table(self, at: int, wanted: set[str]) -> None:
        """An entry for each name of the process, and each place that code finds by the table."""
        for name in sorted(wanted):
            self.imports[name], self.table[name, 0] = [at], at
            at += _WORD
        for _, _, relocation, target in self._resolved():
            if relocation.kind in _BY_TABLE and target not in self.table:
                self.table[target] = at
                self.moved.append(at)
                at += _WORD

    def _resolved(self) -> Iterator[tuple[int, int, elf.Relocation, tuple[str, int]]]:
        """Each relocation of what is loaded: object, place, itself, and what it means: a name of
        the process, or a place in the image."""
        for number, found in enumerate(self.objects):
            for section, relocation in found.relocations():
                place = self.places[number].get(section)
                if place is None:
                    continue
                symbol = found.symbols[relocation.symbol]
                if symbol.section:
                    target = "", self._place(number, symbol)
                elif symbol.name in self.exports:
                    target = "", self.exports[symbol.name]
                else:
                    target = symbol.name, 0
                yield number, place + relocation.offset, relocation, target

    def _fill(self) -> None:
        for places, found in zip(self.places, self.objects, strict=True):
            for number, place in places.items():
                content = found.sections[number].data
                self.bytes[place : place + len(content)] = content
        for name, stub in self.stubs.items():
            distance = self.table[name, 0] - (stub + 6)
            self.bytes[stub : stub + 6] = _JUMP + distance.to_bytes(4, "little", signed=True)
        for (name, place), entry in self.table.items():
            if not name:
                self._write(entry, place, _WORD)
        for _, place, relocation, target in self._resolved():
            self._relocate(place, relocation, target)

    def _relocate(self, place: int, relocation: elf.Relocation, target: tuple[str, int]) -> None:
        name, value = target
        kind, addend = relocation.kind, relocation.addend
        if kind == _ADDRESS and place % _WORD:
            raise UnlinkableError("an address is not aligned")
        if kind in _BY_TABLE:
            self._write(place, self.table[target] + addend - place, 4)
        elif kind in (_DISTANCE, _CALL) and (not name or kind == _CALL):
            to = self.stubs[name] if name else value
            self._write(place, to + addend - place, 4)
        elif kind == _ADDRESS and not name:
            self._write(place, value + addend, _WORD)
            self.moved.append(place)
        elif kind == _ADDRESS and not addend:
            self.imports[name].append(place)
        else:
            raise UnlinkableError(f"a relocation is of kind {kind}, to {name or 'the image'}")

    def _write(self, place: int, value: int, size: int) -> None:
        try:
            self.bytes[place : place + size] = value.to_bytes(size, "little", signed=True)
        except OverflowError:
            raise UnlinkableError("an image is larger than two gigabytes") from None
