"""The input gradient of a convolution where a weight is infinite or NaN.

Windows of y' have zeros where there is no y', and 0 times such a weight is NaN; but there is no
such term (Term.padded). So in front of the epilogue, sums that are NaN are added up again, from
those terms that there are, until they are NaN again.
"""

import math
from collections.abc import Callable

from graphc.backends.llvm.gemm_descriptor import ENTRY
from graphc.backends.llvm.gemm_pack import Source, first_lanes
from graphc.backends.llvm.gemm_store import sums_of
from graphc.backends.llvm.microkernel import Tile
from graphc.backends.llvm.text import Function, Module
from graphc.ir import dtypes
from graphc.ir.kernel import Convolution, Kernel

# Emits the body (all but `ret`) of void (ptr %args, i64 %b, i64 %m, i64 %n, i64 %channel,
# ptr %sum), which adds the terms of one channel to a sum.
TermsEmitter = Callable[[Function, Kernel, Tile], None]


def may_meet_nothing(c: Convolution) -> bool:
    """Whether terms of a sum may be none, where others have the same weights."""
    g = c.geometry
    return not c.padded and (math.prod(g.window) > 1 or any(g.pad_low))


def mended(f: Function, tile: Tile, own: tuple[str, str, str, str]) -> tuple[str, str]:
    """(an epilogue that mends the sums for another one, its arguments), for the kernel's arguments,
    the other's, itself, and what `emit_again` defines."""
    words = f.alloca("ptr", len(own))
    for index, pointer in enumerate(own):
        f.store(pointer, "ptr", f.gep(words, index, "ptr"), 8)
    types = "ptr, i64, i64, i64, i64, i64, ptr, i64"
    f.module.declare(f"declare void {mend_symbol(tile)}({types})")
    return mend_symbol(tile), words


def mend_symbol(tile: Tile) -> str:
    """The epilogue that all kernels share."""
    return f"@graphc_mend_{tile.name}"


def emit_mend(module: Module, tile: Tile) -> None:
    """Defines it."""
    f = module.function(
        f"void {mend_symbol(tile)}(ptr %words, i64 %b, i64 %m, i64 %rows, i64 %n, i64 %columns, "
        "ptr %tile, i64 %pitch)"
    )
    args, others, epilogue, again = (
        f.load(f.gep("%words", index, "ptr"), "ptr", 8) for index in range(4)
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
                f.call("void", again, f"ptr {args}", at, f"ptr {place}")
    f.call(
        "void", epilogue, f"ptr {others}", "i64 %b", "i64 %m", "i64 %rows", "i64 %n",
        "i64 %columns", "ptr %tile", "i64 %pitch",
    )
    f.ret()


def emit_again(
    module: Module, kernel: Kernel, c: Convolution, tile: Tile, symbol: str, terms: TermsEmitter
) -> str:
    """Defines @symbol.again(args, b, m, n, sum), which adds up one sum, and returns its name. It
    hardly ever runs: to optimise it would take as long as to compile the epilogue."""
    g = c.geometry
    places = "i64 %b, i64 %m, i64 %n"
    f = module.function(
        f"void @{symbol}.terms(ptr %args, {places}, i64 %channel, ptr %sum)", "internal", ENTRY
    )
    terms(f, kernel, tile)
    f.ret()
    name = f"@{symbol}.again"
    f = module.function(f"void {name}(ptr %args, {places}, ptr %sum)", "internal", ENTRY)
    f.store("0.0", tile.element, "%sum", tile.bytes)
    with f.loop(0, g.out_channels // g.groups) as channel:
        valid = f.let(f"xor i1 {_is_nan(f, tile, '%sum')}, true")
        with f.when(valid):
            f.call(
                "void", f"@{symbol}.terms", "ptr %args", places, f"i64 {channel}", "ptr %sum"
            )
    f.ret()
    return name


def _is_nan(f: Function, tile: Tile, place: str) -> str:
    value = f.load(place, tile.element, tile.bytes)
    return f.let(f"fcmp uno {tile.element} {value}, {value}")


def _broken(f: Function, tile: Tile, value: str) -> str:
    """The lanes that are NaN, as bits."""
    lanes = f.let(f"fcmp uno {tile.vector} {value}, {value}")
    bits = f.let(f"bitcast <{tile.lanes} x i1> {lanes} to i{tile.lanes}")
    return f.let(f"zext i{tile.lanes} {bits} to i64")
