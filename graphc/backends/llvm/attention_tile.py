"""The register tile of attention: C[rows, columns] (+)= A[rows, steps] * B[steps, columns].

Rows of A may lie anywhere; B and C have rows of vectors. Every product of attention and of its
gradient is such a tile where vectors go along queries (scores, and what is summed over keys), or
along the width of a head (what is summed over queries): no operand in memory is packed.
"""

from __future__ import annotations

from graphc.backends.llvm.microkernel import MR, Tile
from graphc.backends.llvm.text import Function, Module, Value
from graphc.ir.record import record

_PARAMETERS = (
    "ptr noalias readonly %a, i64 %a_row, i64 %a_step, ptr noalias readonly %b, i64 %b_step, "
    "ptr noalias %c, i64 %c_row, i64 %rows, i64 %steps"
)
_TYPES = "ptr, i64, i64, ptr, i64, ptr, i64, i64, i64"


@record
class Matrix:
    """Rows of elements in memory, both distances in bytes."""

    base: str
    row: Value
    step: Value

    def at(self, f: Function, row: Value, step: Value = 0) -> Matrix:
        """What begins at another row and step."""
        offset = f.add(f.mul(row, self.row), f.mul(step, self.step))
        return Matrix(f.gep(self.base, offset, "i8"), self.row, self.step)

    def turned(self) -> Matrix:
        """Rows as steps."""
        return Matrix(self.base, self.step, self.row)


def widths_of(tile: Tile) -> range:
    """The registers in a row of a tile, widest first: a block of any number of queries is as wide
    as it must be, for its exponentials take as long as its products."""
    return range(tile.vectors, 0, -1)


def emit_tiles(module: Module, tile: Tile) -> None:
    """Defines the tiles of whole registers: `fresh` ones store the product, the others add it."""
    for width in widths_of(tile):
        for fresh in (True, False):
            _emit_tile(module, tile, _symbol(tile, width, fresh), width, fresh, 0)


def whole_tile(module: Module, tile: Tile, width: int, fresh: bool) -> str:
    """A tile of `width` registers, of the library."""
    symbol = _symbol(tile, width, fresh)
    module.declare(f"declare void {symbol}({_TYPES})")
    return symbol


def ragged_tile(module: Module, tile: Tile, tail: int) -> str:
    """A tile of one register, `tail` lanes of which are columns of C; it adds the product."""
    symbol = f"@graphc_attention_ragged{tail}"
    if module.count_use(symbol) == 1:
        _emit_tile(module, tile, symbol, 1, False, tail, "internal")
    return symbol


def chosen_tile(f: Function, tile: Tile, width: Value, fresh: bool) -> str:
    """A pointer to the tile of a width that is known at run time."""
    *others, last = widths_of(tile)
    chosen = whole_tile(f.module, tile, last, fresh)
    for other in reversed(others):
        symbol = whole_tile(f.module, tile, other, fresh)
        is_other = f.cmp("eq", width, other)
        chosen = f.let(f"select i1 {is_other}, ptr {symbol}, ptr {chosen}")
    return chosen


def _symbol(tile: Tile, width: int, fresh: bool) -> str:
    return f"@graphc_attention_{'fresh' if fresh else 'add'}{width}_{tile.name}"


def call_tiles(
    f: Function, symbol: str, a: Matrix, b: Matrix, c: Matrix, rows: Value, steps: Value
) -> None:
    """C[rows] (+)= A * B, tile after tile."""
    with f.loop(0, rows, MR) as row:
        left, into = a.at(f, row), c.at(f, row)
        f.call(
            "void", symbol, f"ptr {left.base}", f"i64 {a.row}", f"i64 {a.step}", f"ptr {b.base}",
            f"i64 {b.row}", f"ptr {into.base}", f"i64 {c.row}",
            f"i64 {f.smin(f.sub(rows, row), MR)}", f"i64 {steps}",
        )


def _emit_tile(
    module: Module, tile: Tile, symbol: str, width: int, fresh: bool, tail: int,
    linkage: str = "",
) -> None:
    """A row that is missing is the last one once more: it is computed and stored twice."""
    f = module.function(f"void {symbol}({_PARAMETERS})", linkage, "noinline nounwind")
    last = f.sub("%rows", 1)
    rows = [f.smin(row, last) for row in range(MR)]
    left = [f.gep("%a", f.mul(row, "%a_row"), "i8") for row in rows]
    into = [f.gep("%c", f.mul(row, "%c_row"), "i8") for row in rows]
    lanes = [tail if tail and index == width - 1 else 0 for index in range(width)]
    starts = [tile.zero()] * (MR * width) if fresh else [
        load_lanes(f, tile, f.gep(place, index * tile.lanes, tile.element), lanes[index])
        for place in into for index in range(width)
    ]
    loop = f.carry_loop(
        0, "%steps", 1, [("i64", "0"), ("ptr", "%b"), *((tile.vector, start) for start in starts)]
    )
    offset, b, *sums = loop.values
    columns = [
        f.load(f.gep(b, index * tile.lanes, tile.element), tile.vector, tile.bytes)
        for index in range(width)
    ]
    for row, place in enumerate(left):
        scalar = f.load(f.gep(place, offset, "i8"), tile.element, tile.bytes)
        factor = tile.splat(f, scalar)
        for index, column in enumerate(columns):
            at = row * width + index
            sums[at] = tile.multiply_add(f, factor, column, sums[at])
    following = f.let(f"add i64 {offset}, %a_step"), f.gep(b, "%b_step", "i8")
    results = loop.close([*following, *sums])[2:]
    for at, total in enumerate(results):
        place = f.gep(into[at // width], at % width * tile.lanes, tile.element)
        _store(f, tile, total, place, lanes[at % width])
    f.ret()


def _mask(tile: Tile, lanes: int) -> str:
    """The first lanes, as a constant."""
    return f"<{', '.join(f'i1 {int(lane < lanes)}' for lane in range(tile.lanes))}>"


def load_lanes(f: Function, tile: Tile, place: str, lanes: int) -> str:
    """One register; of the first `lanes` only, if that is not 0."""
    if not lanes:
        return f.load(place, tile.vector, tile.bytes)
    callee = f"@llvm.masked.load.v{tile.lanes}{tile.accumulator}.p0"
    kinds = f"ptr, i32, <{tile.lanes} x i1>, {tile.vector}"
    f.module.declare(f"declare {tile.vector} {callee}({kinds})")
    return f.call(
        tile.vector, callee, f"ptr {place}", f"i32 {tile.bytes}",
        f"<{tile.lanes} x i1> {_mask(tile, lanes)}", f"{tile.vector} zeroinitializer",
    )


def _store(f: Function, tile: Tile, value: str, place: str, lanes: int) -> None:
    if not lanes:
        f.store(value, tile.vector, place, tile.bytes)
        return
    callee = f"@llvm.masked.store.v{tile.lanes}{tile.accumulator}.p0"
    f.module.declare(
        f"declare void {callee}({tile.vector}, ptr, i32, <{tile.lanes} x i1>)"
    )
    f.call(
        "void", callee, f"{tile.vector} {value}", f"ptr {place}", f"i32 {tile.bytes}",
        f"<{tile.lanes} x i1> {_mask(tile, lanes)}",
    )
