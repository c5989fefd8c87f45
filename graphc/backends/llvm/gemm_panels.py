"""The panels of a block of columns, and the kernels that rows come to, as the driver goes along."""

from collections.abc import Iterator
from contextlib import contextmanager

from graphc.backends.llvm.gemm_plan import choose
from graphc.backends.llvm.microkernel import Tile
from graphc.backends.llvm.text import Function, Value


@contextmanager
def panels(
    f: Function, tile: Tile, columns: Value, in_place: str, first: Value = 0
) -> Iterator[tuple[Value, Value, Value, str]]:
    """A loop over the panels of `columns` columns, from the `first` on: yields (first column,
    width, class, is tail).

    Packed panels are 4 registers wide as long as that many remain (rounded up), then 2, then 1. In
    place (an i1) the last columns that fill no register are a panel of their own, the tail.
    """
    wide = tile.vectors
    extra = choose(f, in_place, 0, tile.lanes - 1)
    vectors = f.floordiv(f.add(columns, extra), tile.lanes)
    whole, rest = f.floordiv(vectors, wide), f.mod(vectors, wide)
    count = f.add(whole, f.add(f.floordiv(rest, 2), f.mod(rest, 2)))
    tail = f.let(f"and i1 {in_place}, {f.cmp('ne', f.mod(columns, tile.lanes), 0)}")
    total = f.add(count, f.let(f"zext i1 {tail} to i64"))
    two = f.cmp("sge", rest, 2)
    with f.loop(first, total) as panel:
        index = f.sub(panel, whole)
        full = f.cmp("slt", index, 0)
        double = f.let(f"and i1 {two}, {f.cmp('eq', index, 0)}")
        narrow = choose(f, double, 2, 1)
        width = choose(f, full, wide, narrow)
        kind = choose(f, full, 0, choose(f, double, tile.widths.index(2), len(tile.widths) - 1))
        start = f.add(f.mul(whole, wide), f.mul(index, 2))
        start = choose(f, full, f.mul(panel, wide), start)
        is_tail = f.cmp("eq", panel, count)
        start = choose(f, is_tail, vectors, start)
        yield f.mul(start, tile.lanes), width, kind, is_tail


def row_class_of(f: Function, tile: Tile, rows: Value) -> Value:
    """The number of the class for so many rows."""
    *others, last = range(len(tile.row_classes))
    kind: Value = last
    for index in reversed(others):
        kind = choose(f, f.cmp("sge", rows, tile.least_rows[index]), index, kind)
    return kind


def reads_back(f: Function, tile: Tile, n: Value, in_place: str) -> str:
    """Whether the tail of an operand that is read in place is read with the columns before it, as
    one register (their sums are there already, and are left): there are so many. An i1."""
    return f.let(f"and i1 {in_place}, {f.cmp('sge', n, tile.lanes)}")


def before_tail(f: Function, tile: Tile, columns: Value, reads: str) -> Value:
    """How many columns before the tail of so many a register begins, if it `reads` some."""
    return choose(f, reads, f.sub(tile.lanes, f.mod(columns, tile.lanes)), 0)
