"""Code objects taken apart into instructions, and put together again from changed ones.

The formats are CPython's Objects/locations.md and Objects/exception_handling_notes.txt
(https://github.com/python/cpython/tree/3.12/Objects). Offsets are in bytes.
"""

from __future__ import annotations

from itertools import accumulate
from types import CodeType

from ...ir.named import NamedTuple
from .opcodes import CACHES, EXTENDED_ARG, JUMPS, OPMAP, refuse

_LENGTHS = [2] * 10 + [3] * 3 + [1] * 3  # of location entries, or the least of them
_NO_EXTENSION = OPMAP["SEND"]  # gen.throw() reads its argument from the one byte


class Instruction(NamedTuple):
    """One instruction of the original code, with its EXTENDED_ARGs and caches."""

    op: int
    arg: int
    start: int  # where its first EXTENDED_ARG is
    offset: int  # where the opcode itself is
    end: int  # behind its caches
    target: int  # index of the instruction it jumps to, or -1
    line: int | None


class Handler(NamedTuple):
    """An entry of the exception table, in indices of instructions."""

    start: int
    stop: int
    target: int
    depth: int
    lasti: bool


class Location(NamedTuple):
    """An entry of the location table."""

    start: int
    form: int  # bits 3 to 6 of the first byte
    rest: bytes  # what follows the first byte
    line: int | None


class Jump(NamedTuple):
    """A jump in the new code, and what stands around it in the same original instruction."""

    before: bytes
    op: int
    behind: bytes
    target: int  # index of the original instruction


def one(name: str, arg: int = 0) -> bytes:
    """One instruction with its EXTENDED_ARGs and empty caches."""
    return encode(OPMAP[name], arg)


def encode(op: int, arg: int) -> bytes:
    """One instruction with its EXTENDED_ARGs and empty caches."""
    if arg < 256:
        return bytes((op, arg)) + bytes(2 * CACHES[op])
    prefix = b""
    high = arg >> 8
    while high:
        prefix = bytes((EXTENDED_ARG, high & 255)) + prefix
        high >>= 8
    return prefix + bytes((op, arg & 255)) + bytes(2 * CACHES[op])


def instructions_of(code: CodeType, locations: list[Location]) -> list[Instruction]:
    """The instructions of a code object in order."""
    raw = code.co_code
    result: list[Instruction] = []
    index: dict[int, int] = {}
    jumps: list[tuple[int, int]] = []
    starts = [location.start for location in locations[1:]] + [len(raw)]
    place, line = 0, locations[0].line if locations else None
    at, size = 0, len(raw)
    while at < size:
        start = at
        op, arg = raw[at], raw[at + 1]
        while op == EXTENDED_ARG:
            at += 2
            op, arg = raw[at], arg << 8 | raw[at + 1]
        while starts[place] <= start:
            place += 1
            line = locations[place].line
        offset = at
        at += 2 + 2 * CACHES[op]
        index[start] = number = len(result)
        if JUMPS[op]:
            jumps.append((number, at + JUMPS[op] * 2 * arg))
        result.append(Instruction(op, arg, start, offset, at, -1, line))
    for number, target in jumps:
        each = result[number]
        if target not in index:
            raise refuse(code, each.op, each.line, "it jumps to no instruction")
        result[number] = each._replace(target=index[target])
    return result


def locations_of(code: CodeType) -> list[Location]:
    """The location table. Its entries begin where the high bit is set."""
    table = code.co_linetable
    result = []
    line = code.co_firstlineno
    start = at = 0
    size = len(table)
    while at < size:
        first = table[at]
        form = first >> 3 & 15
        stop = at + _LENGTHS[form]
        if form in (13, 14):  # numbers of any length
            while stop < size and table[stop] < 128:
                stop += 1
        rest = table[at + 1 : stop]
        if form in (13, 14):
            line += _signed(rest)
        elif form >= 10 and form != 15:
            line += form - 10
        result.append(Location(start, form, rest, None if form == 15 else line))
        start += 2 * ((first & 7) + 1)
        at = stop
    return result


def _signed(rest: bytes) -> int:
    """The signed number at the start: six bits a byte, the lowest first, bit 6 for more."""
    value = shift = 0
    for byte in rest:
        value |= (byte & 63) << shift
        shift += 6
        if not byte & 64:
            break
    return -(value >> 1) if value & 1 else value >> 1


def _continued(form: int, rest: bytes) -> tuple[int, bytes]:
    """The same place once more: its line relative to itself is 0."""
    if form in (13, 14):
        length = 1
        while rest[length - 1] & 64:
            length += 1
        return form, b"\0" + rest[length:]
    return (10 if form in (11, 12) else form), rest


def location_table(
    locations: list[Location], instructions: list[Instruction], positions: list[int]
) -> bytes:
    """The table for instructions that now start at `positions`, the end of the code being last."""
    result = bytearray()
    at, count = 0, len(instructions)
    for number, location in enumerate(locations):
        stop = locations[number + 1].start if number + 1 < len(locations) else 1 << 60
        first = at
        while at < count and instructions[at].start < stop:
            at += 1
        units = (positions[at] - positions[first]) // 2
        if not units:
            continue
        form, rest = location.form, location.rest
        result.append(128 | form << 3 | (min(units, 8) - 1))
        result += rest
        if units > 8:
            form, rest = _continued(form, rest)
            whole, left = divmod(units - 8, 8)
            result += (bytes((128 | form << 3 | 7,)) + rest) * whole
            if left:
                result.append(128 | form << 3 | (left - 1))
                result += rest
    return bytes(result)


def handlers_of(code: CodeType, instructions: list[Instruction]) -> list[Handler]:
    """The exception table."""
    table = iter(code.co_exceptiontable)
    index = {instruction.start: number for number, instruction in enumerate(instructions)}
    index[len(code.co_code)] = len(instructions)
    result = []
    for first in table:
        start = 2 * _number(first, table)
        stop = start + 2 * _number(next(table), table)
        target = 2 * _number(next(table), table)
        depth = _number(next(table), table)
        result.append(
            Handler(index[start], index[stop], index[target], depth >> 1, bool(depth & 1))
        )
    return result


def _number(byte: int, table) -> int:
    """A number of the exception table: six bits a byte, the highest first, bit 6 for more."""
    value = byte & 63
    while byte & 64:
        byte = next(table)
        value = value << 6 | byte & 63
    return value


def exception_table(handlers: list[Handler], positions: list[int]) -> bytes:
    """The table for instructions that now start at `positions`."""
    result = bytearray()
    for handler in handlers:
        start, stop = positions[handler.start], positions[handler.stop]
        first = len(result)
        for value in (
            start // 2,
            (stop - start) // 2,
            positions[handler.target] // 2,
            handler.depth << 1 | handler.lasti,
        ):
            digits = [value & 63]
            while value := value >> 6:
                digits.append(value & 63 | 64)
            result += bytes(reversed(digits))
        result[first] |= 128
    return bytes(result)


def assemble(
    code: CodeType, chunks: list[bytes], jumps: dict[int, Jump]
) -> tuple[bytes, list[int]]:
    """The bytes of the new code, and where each original instruction now starts.

    `chunks` has the new bytes of each instruction, empty where `jumps` has a jump.
    """
    sizes = [len(chunk) for chunk in chunks]
    wide = dict.fromkeys(jumps, 0)  # EXTENDED_ARGs of each jump; they only ever grow
    for at, jump in jumps.items():
        sizes[at] = len(jump.before) + 2 + 2 * CACHES[jump.op] + len(jump.behind)
    while True:
        positions = list(accumulate(sizes, initial=0))
        grown = False
        for at, jump in jumps.items():
            end = positions[at + 1] - len(jump.behind)
            arg = (positions[jump.target] - end) * JUMPS[jump.op] // 2
            if arg < 0:
                raise refuse(code, jump.op, None, "it jumps in the wrong direction")
            needed = 0 if arg < 256 else (arg.bit_length() - 1) // 8
            if needed > wide[at]:
                sizes[at] += 2 * (needed - wide[at])
                wide[at] = needed
                grown = True
            pad = bytes((EXTENDED_ARG, 0)) * (wide[at] - needed)
            chunks[at] = jump.before + pad + encode(jump.op, arg) + jump.behind
            if needed and jump.op == _NO_EXTENSION:
                raise refuse(code, jump.op, None, "it jumps too far")
        if not grown:
            return b"".join(chunks), positions
