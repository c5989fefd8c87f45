"""Products of one query with a block of keys, where there are too few queries for a register.

Vectors go along the width of a head: nothing is transposed, and each key is read once. Scores lie
along keys.
"""

from __future__ import annotations

from graphc.backends.llvm.attention_block import Head, copy
from graphc.backends.llvm.attention_tile import Matrix, load_lanes
from graphc.backends.llvm.gemm_dot import sum_lanes
from graphc.backends.llvm.text import Value
from graphc.ir.kernel.plan_attention import lies_in_rows

_ACCUMULATORS = 8  # registers of a sum over keys


def rows_of(h: Head, name: str, key: Value, keys: Value) -> Matrix:
    """A block of keys or values in rows: where it lies, or in scratch."""
    step, width = {"k": ("e", h.e), "v": ("f", h.f_width)}[name]
    source = h.input(name, "n", step).at(h.f, key)
    if lies_in_rows(h.t, name):
        return source
    into = Matrix(h.scratch[name], h.padded(width) * h.tile.bytes, h.tile.bytes)
    copy(h.f, h.tile, source, into, keys, width)
    return into


def dots(h: Head, query: str, block: Matrix, keys: Value, into: str, width: int) -> None:
    """Products of the row at `query` with the rows of a block, a register of them at a time. Up to
    the end of a register they are some number."""
    f, lanes = h.f, h.tile.lanes
    whole = f.mul(f.floordiv(keys, lanes), lanes)
    with f.loop(0, whole, lanes) as at:
        _dots(h, query, [block.at(f, f.add(at, row)).base for row in range(lanes)],
              f.gep(into, at, h.tile.element), width)
    with f.when(f.cmp("slt", whole, keys)):
        last = f.sub(keys, 1)
        rows = [f.smin(f.add(whole, row), last) for row in range(lanes)]
        _dots(h, query, [block.at(f, row).base for row in rows],
              f.gep(into, whole, h.tile.element), width)


def _dots(h: Head, query: str, rows: list[str], into: str, width: int) -> None:
    f, tile = h.f, h.tile
    whole, tail = divmod(width, tile.lanes)
    whole *= tile.lanes

    def step(index: Value, sums: list[str], lanes: int) -> list[str]:
        factor = load_lanes(f, tile, f.gep(query, index, tile.element), lanes)
        return [
            tile.multiply_add(
                f, factor, load_lanes(f, tile, f.gep(row, index, tile.element), lanes), total
            )
            for row, total in zip(rows, sums, strict=True)
        ]

    loop = f.carry_loop(0, whole, tile.lanes, [(tile.vector, tile.zero()) for _ in rows])
    sums = loop.close(step(loop.index, loop.values, 0))
    if tail:
        sums = step(whole, sums, tail)
    f.store(sum_lanes(f, tile, sums), tile.vector, into, tile.bytes)


def weighted_sum(
    h: Head, weights: str, block: Matrix, keys: Value, into: str, width: int, factor: str = ""
) -> None:
    """Adds the rows of a block, times a weight each, to the row at `into`, times a factor."""
    f, tile = h.f, h.tile
    vectors, tail = divmod(width, tile.lanes)
    columns = [(at * tile.lanes, 0) for at in range(vectors)]
    if tail:
        columns.append((vectors * tile.lanes, tail))
    for start in range(0, len(columns), _ACCUMULATORS):
        group = columns[start : start + _ACCUMULATORS]
        places = [f.gep(into, column, tile.element) for column, _ in group]
        sums = [f.load(place, tile.vector, tile.bytes) for place in places]
        if factor:
            sums = [h.lanes.mul(total, factor) for total in sums]
        loop = f.carry_loop(0, keys, 1, [(tile.vector, total) for total in sums])
        weight = tile.splat(
            f, f.load(f.gep(weights, loop.index, tile.element), tile.element, tile.bytes)
        )
        row = block.at(f, loop.index).base
        sums = loop.close([
            tile.multiply_add(
                f, weight, load_lanes(f, tile, f.gep(row, column, tile.element), lanes), total
            )
            for (column, lanes), total in zip(group, loop.values, strict=True)
        ])
        for place, total in zip(places, sums, strict=True):
            f.store(total, tile.vector, place, tile.bytes)
