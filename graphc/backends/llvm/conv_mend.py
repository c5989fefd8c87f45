"""The input gradient of a convolution where a weight is infinite or NaN.

Windows of y' have zeros where there is no y', and 0 times such a weight is NaN; but there is no
such term (Term.padded). So in front of the epilogue, sums that are NaN are added up again, from
those terms that there are, until they are NaN again.
"""

import enum
import math

from graphc.backends.llvm.conv_geometry import Words, in_three, product
from graphc.backends.llvm.gemm_arguments import Arguments
from graphc.backends.llvm.gemm_descriptor import ENTRY
from graphc.backends.llvm.gemm_pack import Source, first_lanes
from graphc.backends.llvm.gemm_store import sums_of
from graphc.backends.llvm.microkernel import Tile
from graphc.backends.llvm.text import Function, Module, Value
from graphc.ir import dtypes
from graphc.ir.kernel import Convolution


class Mend(enum.IntEnum):
    """What the mending epilogue is given: the other one, what adds up a sum again, and of what."""

    ARGUMENTS = 0  # the other epilogue's
    EPILOGUE = 1
    AGAIN = 2
    LEFT = 3
    RIGHT = 4
    CHANNELS = 5  # of a group
    OUTPUTS = 6  # of a group,
    ALL_OUTPUTS = 7  # and of all of them
    INPUT = 8  # three words each, from here on
    WINDOW = 11
    OUTPUT = 14
    STRIDE = 17
    PAD = 20
    DILATION = 23


MEND_WORDS = Mend.DILATION + 3


def may_meet_nothing(c: Convolution) -> bool:
    """Whether terms of a sum may be none, where others have the same weights."""
    g = c.geometry
    return not c.padded and (math.prod(g.window) > 1 or any(g.pad_low))


def mended(
    f: Function, c: Convolution, tile: Tile, arguments: Arguments, other: tuple[str, str]
) -> tuple[str, str]:
    """(an epilogue that mends the sums for the other one, its arguments)."""
    g, words = c.geometry, Words(f, f.alloca("i64", MEND_WORDS))
    left, right = Source(c.left.dtype, tile), Source(c.right.dtype, tile)
    f.module.declare(f"declare void {again_symbol(left, right)}(ptr, i64, i64, i64, ptr)")
    for field, pointer in (
        (Mend.EPILOGUE, other[0]), (Mend.ARGUMENTS, other[1]),
        (Mend.AGAIN, again_symbol(left, right)),
        (Mend.LEFT, arguments.buffer(c.left.buffer)),
        (Mend.RIGHT, arguments.buffer(c.right.buffer)),
    ):
        words.write_pointer(field, pointer)
    words.write(Mend.CHANNELS, g.in_channels // g.groups)
    words.write(Mend.OUTPUTS, g.out_channels // g.groups)
    words.write(Mend.ALL_OUTPUTS, g.out_channels)
    for field, sizes, missing in (
        (Mend.INPUT, g.input, 1), (Mend.WINDOW, g.window, 1), (Mend.OUTPUT, g.output, 1),
        (Mend.STRIDE, g.stride, 1), (Mend.PAD, g.pad_low, 0), (Mend.DILATION, g.dilation, 1),
    ):
        for dim, size in enumerate(in_three(sizes, missing)):
            words.write(field, arguments.size(size), dim)
    types = "ptr, i64, i64, i64, i64, i64, ptr, i64"
    f.module.declare(f"declare void {mend_symbol(tile)}({types})")
    return mend_symbol(tile), words.pointer


def mend_symbol(tile: Tile) -> str:
    """The epilogue that all kernels share."""
    return f"@graphc_mend_{tile.name}"


def again_symbol(left: Source, right: Source) -> str:
    """What adds up one sum: void (words, b, m, n, sum)."""
    return f"@graphc_again_{left.name}_{right.dtype.name}"


def emit_mend(module: Module, tile: Tile) -> None:
    """Defines it."""
    f = module.function(
        f"void {mend_symbol(tile)}(ptr %words, i64 %b, i64 %m, i64 %rows, i64 %n, i64 %columns, "
        "ptr %tile, i64 %pitch)"
    )
    words = Words(f, "%words")
    others, epilogue, again = (
        words.read_pointer(field) for field in (Mend.ARGUMENTS, Mend.EPILOGUE, Mend.AGAIN)
    )
    source = Source(dtypes.by_name(tile.accumulator), sums_of(tile))
    whole = f.mul(f.floordiv("%columns", tile.lanes), tile.lanes)
    mask = first_lanes(f, tile, f.sub("%columns", whole))
    with f.loop(0, "%rows") as row:
        sums = f.gep("%tile", f.mul(row, "%pitch"), tile.element)
        last = _broken(f, tile, source.load_masked(f, f.gep(sums, whole, tile.element), mask))
        loop = f.carry_loop(0, whole, tile.lanes, [("i64", last)])
        value = source.load_vector(f, f.gep(sums, loop.index, tile.element))
        (found,) = loop.close([f.let(f"or i64 {loop.values[0]}, {_broken(f, tile, value)}")])
        with f.when(f.cmp("ne", found, 0)), f.loop(0, "%columns") as column:
            place = f.gep(sums, column, tile.element)
            with f.when(_is_nan(f, tile, place)):
                at = f"i64 %b, i64 {f.add('%m', row)}, i64 {f.add('%n', column)}"
                f.call("void", again, "ptr %words", at, f"ptr {place}")
    f.call(
        "void", epilogue, f"ptr {others}", "i64 %b", "i64 %m", "i64 %rows", "i64 %n",
        "i64 %columns", "ptr %tile", "i64 %pitch",
    )
    f.ret()


def emit_again(module: Module, left: Source, right: Source) -> None:
    """Defines what adds up one sum, for operands of any sizes. It hardly ever runs: to optimise it
    would take long."""
    tile = left.tile
    f = module.function(
        f"void {again_symbol(left, right)}(ptr %words, i64 %b, i64 %m, i64 %n, ptr %sum)", "", ENTRY
    )
    words = Words(f, "%words")
    channels, outputs, all_outputs = (
        words.read(field) for field in (Mend.CHANNELS, Mend.OUTPUTS, Mend.ALL_OUTPUTS)
    )
    sizes, window, output = (
        words.read3(field) for field in (Mend.INPUT, Mend.WINDOW, Mend.OUTPUT)
    )
    taps, positions = product(f, window), product(f, output)
    first, channel = f.mul(f.sdiv("%m", channels), outputs), f.srem("%m", channels)
    lines = f.sdiv("%n", sizes[2])
    at = (f.sdiv(lines, sizes[1]), f.srem(lines, sizes[1]), f.srem("%n", sizes[2]))
    f.store("0.0", tile.element, "%sum", tile.bytes)
    with f.loop(0, outputs) as number:
        filter_ = f.add(first, number)
        weights = f.gep(
            words.read_pointer(Mend.LEFT),
            f.mul(f.add(f.mul(filter_, channels), channel), taps), left.element,
        )
        plane = f.gep(
            words.read_pointer(Mend.RIGHT),
            f.mul(f.add(f.mul("%b", all_outputs), filter_), positions), right.element,
        )
        valid = f.let(f"xor i1 {_is_nan(f, tile, '%sum')}, true")
        with (
            f.when(valid), f.loop(0, window[0]) as depth, f.loop(0, window[1]) as height,
            f.loop(0, window[2]) as width,
        ):
            tap = f.add(f.mul(f.add(f.mul(depth, window[1]), height), window[2]), width)
            inside, position = _place(f, words, at, (depth, height, width))
            with f.when(inside):
                weight = left.load(f, f.gep(weights, tap, left.element))
                value = right.load(f, f.gep(plane, position, right.element))
                term = f.let(f"fmul {tile.element} {weight}, {value}")
                before = f.load("%sum", tile.element, tile.bytes)
                after = f.let(f"fadd {tile.element} {before}, {term}")
                f.store(after, tile.element, "%sum", tile.bytes)
    f.ret()


def _place(
    f: Function, words: Words, at: tuple[Value, ...], tap: tuple[Value, ...]
) -> tuple[str, Value]:
    """(whether there is an output that reads a place of the input with a tap, which)."""
    inside = "true"
    position: Value = 0
    for dim in range(3):
        stride, pad, dilation, size = (
            words.read(field, dim)
            for field in (Mend.STRIDE, Mend.PAD, Mend.DILATION, Mend.OUTPUT)
        )
        reach = f.sub(f.add(at[dim], pad), f.mul(tap[dim], dilation))
        place = f.sdiv(reach, stride)
        for condition in (
            f.cmp("sge", reach, 0), f.cmp("eq", f.srem(reach, stride), 0),
            f.cmp("slt", place, size),
        ):
            inside = f.let(f"and i1 {inside}, {condition}")
        position = f.add(f.mul(position, size), place)
    return inside, position


def _is_nan(f: Function, tile: Tile, place: str) -> str:
    value = f.load(place, tile.element, tile.bytes)
    return f.let(f"fcmp uno {tile.element} {value}, {value}")


def _broken(f: Function, tile: Tile, value: str) -> str:
    """The lanes that are NaN, as bits."""
    lanes = f.let(f"fcmp uno {tile.vector} {value}, {value}")
    bits = f.let(f"bitcast <{tile.lanes} x i1> {lanes} to i{tile.lanes}")
    return f.let(f"zext i{tile.lanes} {bits} to i64")
