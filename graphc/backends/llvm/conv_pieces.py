"""Positions packed from the copy that conv_direct reads in place.

There a row (channel, tap) of positions beside each other is a piece of a line, whatever the stride,
and the padding is in it: nothing is masked or gathered. A register of positions that begins in one
line and ends in another is put together of a piece of each, read so that its lanes are where they
belong. So packing takes a third to a sixth of what it takes from the input (conv_pack), and no
position is computed in vain.
"""

from __future__ import annotations

from collections.abc import Callable

from graphc.backends.llvm.conv_copy import Copy
from graphc.backends.llvm.conv_geometry import Words
from graphc.backends.llvm.gemm_descriptor import Descriptor, Word
from graphc.backends.llvm.gemm_pack import RIGHT_PARAMETERS, packed_vectors
from graphc.backends.llvm.gemm_plan import choose
from graphc.backends.llvm.microkernel import Tile
from graphc.backends.llvm.text import Function, Module, Value
from graphc.backends.llvm.values import lane_numbers

MOST = 4  # pieces of a register that have code of their own
UNROLLED = 4  # rows at a time, of one or two pieces
MASKED_BYTES = 64  # of registers whose masks are no registers


def pieces_symbol(tile: Tile) -> str:
    """A pack_right."""
    return f"@graphc_pack_pieces_{tile.name}"


def emit_pack_pieces(module: Module, tile: Tile) -> None:
    """Defines it: k = (channel, tap), whose offsets are in the copy's table; n = position."""
    f = module.function(f"void {pieces_symbol(tile)}({RIGHT_PARAMETERS})", "internal")
    c = Words(f, Descriptor(f, "%d").pointer_at(Word.COPY))
    width, height, pitch, image = (
        c.read(field) for field in (Copy.OUT_WIDTH, Copy.OUT_HEIGHT, Copy.PITCH, Copy.IMAGE)
    )
    offsets = f.gep(c.read_pointer(Copy.OFFSETS), "%k", "i64")
    jump = f.sub(pitch, width)  # from behind a line to the next one,
    leap = f.sub(image, f.mul(height, pitch))  # and from behind the last one, on top
    line, across = f.sdiv("%n", width), f.srem("%n", width)
    number, down = f.sdiv(line, height), f.srem(line, height)
    place = f.add(f.add(f.mul(number, image), f.mul(down, pitch)), across)
    at = Words(f, f.alloca("i64", 3))
    for index, value in enumerate((across, down, place)):
        at.write(index, value)
    pieces = f.alloca("ptr", tile.lanes)
    with packed_vectors(f, tile, "%columns", "%steps") as (column, to, room):
        count = f.smin(f.sub("%columns", column), tile.lanes)
        begin = [("i64", str(at.read(index))) for index in range(3)]
        across, down, place = (value for _, value in begin)
        first = f.sub(width, across)  # lanes of the first piece
        f.store(f.gep("%base", place, tile.element), "ptr", pieces, 8)
        begin = [("i64", "1"), ("i64", down), ("i64", place), ("i64", str(f.sub(0, across)))]
        loop = f.carry_loop(first, count, width, begin)
        some, down, place, _ = loop.values
        down = f.add(down, 1)
        ended = f.cmp("eq", down, height)
        place = f.add(f.add(place, jump), choose(f, ended, leap, 0))
        f.store(f.gep("%base", place, tile.element), "ptr", f.gep(pieces, some, "ptr"), 8)
        down = choose(f, ended, 0, down)
        after = (f.add(some, 1), down, place, loop.index)
        some, down, place, start = loop.close([str(value) for value in after])
        _pack(f, tile, (pieces, offsets), (some, first, width), (to, room))
        across, place = f.sub(tile.lanes, start), f.add(place, tile.lanes)
        # a line that ends with the register
        full = f.cmp("eq", across, width)
        down = f.add(down, choose(f, full, 1, 0))
        ended = f.cmp("eq", down, height)
        place = f.add(place, choose(f, full, jump, 0))
        place = f.add(place, choose(f, ended, leap, 0))
        across, down = choose(f, full, 0, across), choose(f, ended, 0, down)
        for index, value in enumerate((across, down, place)):
            at.write(index, value)
    f.ret()


def _pack(
    f: Function, tile: Tile, from_: tuple[str, str], sizes: tuple[str, Value, str],
    to: tuple[str, Value],
) -> None:
    """A register of all rows. `sizes`: how many pieces it has, the lanes of the first one, and of
    others."""
    (pieces, offsets), (some, first, width), kind = from_, sizes, tile.vector
    packed = f.label("packed")

    def place(number: Value) -> str:
        return f.load(f.gep(pieces, number, "ptr"), "ptr", 8)

    def mask(number: Value) -> str:
        """Of the lanes from a piece on."""
        return _from_lane(f, tile, f.add(first, f.mul(f.sub(number, 1), width)))

    def load(place: str, offset: str) -> str:
        return f.load(f.gep(place, offset, "i8"), kind, tile.bytes)

    for count in range(1, MOST + 1):
        this, other = f.label("pieces"), f.label("more")
        f.cond_br(f.cmp("eq", some, count), this, other)
        f.block(this)
        places = [place(number) for number in range(count)]
        masks = [mask(number) for number in range(1, count)]

        def few(offset: str, places: list[str] = places, masks: list[str] = masks) -> str:
            value, *others = (load(each, offset) for each in places)
            for each, lanes in zip(others, masks, strict=True):
                value = _from(f, tile, lanes, each, value)
            return value

        _every_row(f, tile, offsets, to, few, UNROLLED if count < 3 else 1)
        f.br(packed)
        f.block(other)

    def many(offset: str) -> str:
        loop = f.carry_loop(1, some, 1, [(kind, load(place(0), offset))])
        value = load(place(loop.index), offset)
        return loop.close([_from(f, tile, mask(loop.index), value, loop.values[0])])[0]

    _every_row(f, tile, offsets, to, many, 1)
    f.br(packed)
    f.block(packed)


def _every_row(
    f: Function, tile: Tile, offsets: str, to: tuple[str, Value], read: Callable[[str], str],
    together: int,
) -> None:
    """Stores what `read` gives for a row's offset, so many rows at a time."""
    (target, room), several = to, f.mul(f.floordiv("%steps", together), together)
    apart = f.mul(room, tile.bytes)

    def copy(row: Value, at: str) -> str:
        value = read(f.load(f.gep(offsets, row, "i64"), "i64", 8))
        f.store(value, tile.vector, at, tile.bytes)
        return f.gep(at, apart, "i8")

    loop = f.carry_loop(0, several, together, [("ptr", target)])
    at = loop.values[0]
    for index in range(together):
        at = copy(f.add(loop.index, index), at)
    (at,) = loop.close([at])
    if together > 1:
        rest = f.carry_loop(several, "%steps", 1, [("ptr", at)])
        rest.close([copy(rest.index, rest.values[0])])


def _from_lane(f: Function, tile: Tile, lane: Value) -> str:
    """Those from one on, as `_from` takes them."""
    kind, width = f"<{tile.lanes} x i64>", 8 * tile.bytes
    first = f.let(f"insertelement {kind} poison, i64 {lane}, i64 0")
    zeros = f"<{tile.lanes} x i32> zeroinitializer"
    splat = f.let(f"shufflevector {kind} {first}, {kind} poison, {zeros}")
    bits = f.let(f"icmp sge {kind} {lane_numbers(tile.lanes)}, {splat}")
    if tile.target.vector_bytes >= MASKED_BYTES:
        return bits
    return f.let(f"sext <{tile.lanes} x i1> {bits} to <{tile.lanes} x i{width}>")


def _from(f: Function, tile: Tile, mask: str, value: str, other: str) -> str:
    """The lanes of a mask from a register, the others from another one."""
    if tile.target.vector_bytes < MASKED_BYTES:  # a vector of bits would be made of words each time
        words = f"<{tile.lanes} x i{8 * tile.bytes}>"
        mask = f.let(f"icmp slt {words} {mask}, zeroinitializer")
    bits, kind = f"<{tile.lanes} x i1>", tile.vector
    return f.let(f"select {bits} {mask}, {kind} {value}, {kind} {other}")
