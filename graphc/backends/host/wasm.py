"""Relocatable WebAssembly objects: the names that they define and want, changed names, and an
object of data alone.

Source: the WebAssembly specification's binary format, and tool-conventions' "WebAssembly Object
File Linking" (version 2): the custom section "linking" holds a table of symbols.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

MAGIC = b"\0asm\1\0\0\0"
_CUSTOM, _IMPORT, _DATA, _DATA_COUNT = 0, 2, 11, 12  # sections
_SEGMENTS, _SYMBOLS = 5, 8  # parts of "linking"
_FUNCTION, _DATA_SYMBOL, _GLOBAL, _SECTION, _EVENT, _TABLE = range(6)  # kinds of symbols
_LOCAL, _HIDDEN, _UNDEFINED, _EXPLICIT = 0x2, 0x4, 0x10, 0x40  # flags of symbols
_VERSION = 2


class Symbol(NamedTuple):
    """One symbol; `rest` is what of a data symbol stands behind the name."""

    kind: int
    flags: int
    name: str
    number: int
    rest: bytes


def number(value: int) -> bytes:
    """Unsigned LEB128."""
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def _text(text: str) -> bytes:
    data = text.encode()
    return number(len(data)) + data


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def number(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def bytes(self, count: int) -> bytes:
        self.at += count
        return self.data[self.at - count : self.at]

    def text(self) -> str:
        return self.bytes(self.number()).decode()


def _sections(data: bytes) -> Iterator[tuple[int, bytes]]:
    reader = _Reader(data)
    reader.at = len(MAGIC)
    while reader.at < len(data):
        kind = reader.bytes(1)[0]
        yield kind, reader.bytes(reader.number())


def _imports(data: bytes) -> dict[int, list[str]]:
    """Names by kind (0: functions, 1: tables, 2: memories, 3: globals), in their order."""
    found: dict[int, list[str]] = {kind: [] for kind in range(5)}
    for section, content in _sections(data):
        if section != _IMPORT:
            continue
        reader = _Reader(content)
        for _ in range(reader.number()):
            reader.text()
            name, kind = reader.text(), reader.bytes(1)[0]
            found[kind].append(name)
            if kind == 0:
                reader.number()
            elif kind == 3:
                reader.bytes(2)
            else:
                if kind == 1:
                    reader.bytes(1)
                if reader.number() & 1:
                    reader.number()
                reader.number()
    return found


def _symbols(part: bytes, imports: Mapping[int, list[str]]) -> list[Symbol]:
    reader, found = _Reader(part), []
    of_imports = {_FUNCTION: 0, _TABLE: 1, _GLOBAL: 3}
    for _ in range(reader.number()):
        kind, flags = reader.bytes(1)[0], reader.number()
        name, index, rest = "", 0, b""
        if kind == _DATA_SYMBOL:
            name = reader.text()
            if not flags & _UNDEFINED:
                start = reader.at
                for _ in range(3):
                    reader.number()
                rest = part[start : reader.at]
        else:
            index = reader.number()
            if kind != _SECTION:
                named = not flags & _UNDEFINED or flags & _EXPLICIT
                name = reader.text() if named else imports[of_imports[kind]][index]
        found.append(Symbol(kind, flags, name, index, rest))
    return found


def _linking(data: bytes) -> list[Symbol]:
    imports = _imports(data)
    for kind, content in _sections(data):
        reader = _Reader(content)
        if kind == _CUSTOM and reader.text() == "linking":
            reader.number()
            while reader.at < len(content):
                part, size = reader.bytes(1)[0], reader.number()
                inside = reader.bytes(size)
                if part == _SYMBOLS:
                    return _symbols(inside, imports)
    return []


def global_names(data: bytes) -> tuple[set[str], set[str]] | None:
    """The global names of functions and data that an object defines and wants; None if it is
    something else."""
    if data[: len(MAGIC)] != MAGIC:
        return None
    defined: set[str] = set()
    wanted: set[str] = set()
    for symbol in _linking(data):
        if symbol.kind in (_FUNCTION, _DATA_SYMBOL) and not symbol.flags & _LOCAL:
            (wanted if symbol.flags & _UNDEFINED else defined).add(symbol.name)
    return defined, wanted


def renamed(data: bytes, names: Mapping[str, str]) -> bytes:
    """The object with these global names changed, whether it defines or wants them; hidden, too."""
    imports = _imports(data)
    result = bytearray(MAGIC)
    for kind, content in _sections(data):
        reader = _Reader(content)
        if kind == _CUSTOM and reader.text() == "linking":
            reader.number()
            changed = bytearray(content[: reader.at])
            while reader.at < len(content):
                part, size = reader.bytes(1)[0], reader.number()
                inside = reader.bytes(size)
                if part == _SYMBOLS:
                    inside = _renamed(_symbols(inside, imports), names)
                changed += bytes([part]) + _sized(inside)
            content = bytes(changed)
        result += bytes([kind]) + _sized(content)
    return bytes(result)


def _sized(content: bytes) -> bytes:
    return number(len(content)) + content


def _renamed(symbols: list[Symbol], names: Mapping[str, str]) -> bytes:
    result = bytearray(number(len(symbols)))
    for symbol in symbols:
        flags, name = symbol.flags, symbol.name
        if symbol.kind in (_FUNCTION, _DATA_SYMBOL) and not flags & _LOCAL and name in names:
            name, flags = names[name], flags | _HIDDEN
            if symbol.kind == _FUNCTION and flags & _UNDEFINED:
                flags |= _EXPLICIT  # else its import's name is the symbol's
        result += bytes([symbol.kind]) + number(flags)
        if symbol.kind == _DATA_SYMBOL:
            result += _text(name) + symbol.rest
            continue
        result += number(symbol.number)
        if symbol.kind != _SECTION and (not flags & _UNDEFINED or flags & _EXPLICIT):
            result += _text(name)
    return bytes(result)


def data_object(content: bytes, symbol: str, alignment: int) -> bytes:
    """An object that defines the hidden name `symbol` as these bytes."""
    memory = number(1) + _text("env") + _text("__linear_memory") + bytes([2, 0, 0])
    zero = b"\x41\x00\x0b"  # i32.const 0, end
    segment = number(1) + b"\0" + zero + _sized(content)
    info = number(1) + _text(".rodata.graphc") + number(alignment.bit_length() - 1) + number(0)
    table = number(1) + bytes([_DATA_SYMBOL]) + number(_HIDDEN) + _text(symbol)
    table += number(0) + number(0) + number(len(content))
    linking = _text("linking") + number(_VERSION)
    linking += bytes([_SEGMENTS]) + _sized(info) + bytes([_SYMBOLS]) + _sized(table)
    sections = ((_IMPORT, memory), (_DATA_COUNT, number(1)), (_DATA, segment), (_CUSTOM, linking))
    return MAGIC + b"".join(bytes([kind]) + _sized(inside) for kind, inside in sections)
