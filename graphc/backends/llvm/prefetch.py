"""Loads that ask memory ahead, where the core does not.

A core that reads along one row asks memory by itself for what comes next. In blocks that are a piece
of each of several rows of other pages it meets every row anew: the loads of a block ask for those of
the next one. And Zen 5 learns nothing from loads under a mask: 50 MB took 7.4 ms with a mask of all
lanes, 2.9 without one, and 3.7 when each load asks for what lies _ALONG bytes further on; from the
caches all three take the same time. The second cache takes what is asked for: from the first, rows a
page apart would drive each other out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graphc.ir.dim import Size
from graphc.ir.kernel import Kernel, Load, Loop, Stmt, walk
from graphc.ir.passes.lower.index_maps import coefficient

LINE = 64  # bytes of the caches' lines
_CACHED = 1 << 20  # bytes of a buffer that the second cache has anyway
_ALONG = 1024  # bytes: 512 to 8192 took the same time
_APART = 512  # bytes: rows that are nearer are as good as one

Key = tuple[str, Size]  # buffer and index of a load


def distances(kernel: Kernel, body: Sequence[Stmt]) -> dict[Key, int]:
    """Of a stage's loads: how many elements further the next block's lies."""
    widths = {
        param.name: param.dtype.itemsize for param in kernel.params if param.access == "in"
        and not (isinstance(param.size, int) and param.size * param.dtype.itemsize < _CACHED)
    }
    found: dict[Key, int] = {}
    for block, lanes, rows in _blocks(body):
        for _, scalar in walk.evaluated((rows,)):
            if isinstance(scalar, Load) and scalar.mask is None and scalar.buffer in widths:
                row = _row(scalar.index, block, lanes, rows)
                if row * widths[scalar.buffer] >= _APART:
                    assert isinstance(rows.extent, int)
                    found[scalar.buffer, scalar.index] = row * rows.extent
    return found


def along(kernel: Kernel) -> dict[str, int]:
    """Of the buffers that may come from memory: how many elements ahead a row is asked for."""
    return {
        param.name: _ALONG // param.dtype.itemsize for param in kernel.params
        if not (isinstance(param.size, int) and param.size * param.dtype.itemsize < _CACHED)
    }


def _blocks(body: Sequence[Stmt]) -> Iterator[tuple[Loop, Loop, Loop]]:
    """Serial loops with a vector loop in them, whose lanes go along some rows."""
    for block in walk.statements(body):
        if not isinstance(block, Loop) or block.kind != "serial":
            continue
        for lanes in block.body:
            if isinstance(lanes, Loop) and lanes.kind == "vector":
                for rows in lanes.body:
                    if isinstance(rows, Loop) and isinstance(rows.extent, int):
                        yield block, lanes, rows


def _row(index: Size, block: Loop, lanes: Loop, rows: Loop) -> int:
    """Elements from row to row, where the next block's rows follow; else 0."""
    row, further = coefficient(index, rows.var), coefficient(index, block.var)
    if not isinstance(row, int) or further != row * rows.extent:
        return 0
    return row if coefficient(index, lanes.var) == 1 else 0
