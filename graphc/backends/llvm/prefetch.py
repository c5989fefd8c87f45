"""Loads that ask memory ahead, where the core does not.

A core that reads along one row asks memory by itself for what comes next. In blocks that are a
piece of each of several rows of other pages it meets every row anew: the loads of a block ask for
those of the next one. Where a row is gone through several times, all but the first time in the
first cache, the core asks for nothing meanwhile: the second time, loads ask for the next row (the
layer norm of 16 MB took 1.35 ms without it, and 1.06 with it). And Zen 5 learns nothing from loads
under a mask: 50 MB took 7.4 ms under a mask of all lanes, 2.9 without one, and 3.7 where each load
asks for what lies _ALONG bytes further on; what is in the caches takes the same time in all three.
The second cache takes what is asked for: from the first, rows a page apart would drive each other
out. Lines to be written soon are asked for by the loop before (`written_next`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from graphc.backends.llvm.target import Target
from graphc.backends.llvm.vector_plan import HEAVY, survey
from graphc.ir.dim import Dim, Size, substitute
from graphc.ir.kernel import Kernel, Load, Loop, Stmt, Store, walk
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


def next_rows(kernel: Kernel, body: Sequence[Stmt]) -> dict[int, dict[Key, Size]]:
    """By the identity of a vector loop: of its loads that read what the loop before has read, how
    many elements further the next row lies, which may be so many as a size says."""
    far = along(kernel)
    found: dict[int, dict[Key, Size]] = {}
    for rows in walk.statements(body):
        if not isinstance(rows, Loop) or rows.kind == "vector":
            continue
        seen: dict[Key, int] = {}
        for lanes in rows.body:
            if not isinstance(lanes, Loop) or lanes.kind != "vector":
                continue
            for key in _loads(lanes):
                row = coefficient(key[1], rows.var)
                if key[0] not in far or row is None or row == 0:
                    continue
                if isinstance(row, int) and row < far[key[0]] // 2:
                    continue
                seen[key] = seen.get(key, 0) + 1
                if seen[key] == 2 and coefficient(key[1], lanes.var) == 1:
                    found.setdefault(id(lanes), {})[key] = row
    return found


def written_next(
    kernel: Kernel, body: Sequence[Stmt], target: Target
) -> dict[int, list[Key]]:
    """By the identity of a vector loop: the places that the loop behind it writes, along the same
    elements. A store reads its line first, and a loop that does little but write what was kept of
    a row waits for that; the one before it, which computes, can ask for the lines meanwhile (Zen 3,
    16 MB: softmax 4.1 ms without it and 2.8 with it, layer norm 2.3 and 1.9). Stores around the
    caches gain half as much, which whoever reads the result next loses again. CPUs with 512-bit
    registers write whole lines at once, and some need not read them: they are not asked, but where
    the third cache is far away and the loop before takes as long for a line as that does (Emerald
    Rapids: softmax of 16 MB 1.61 ms without it and 1.42 with it, of 4 MB 0.49 and 0.34; what
    computes less in that loop lost 10%)."""
    if target.arch != "x86_64" or (target.vector_bytes != 32 and not target.far):
        return {}
    large = along(kernel)
    found: dict[int, list[Key]] = {}
    for rows in walk.statements(body):
        if not isinstance(rows, Loop) or rows.kind == "vector":
            continue
        loops = [stmt for stmt in rows.body if isinstance(stmt, Loop)]
        for before, last in itertools.pairwise(loops):
            if not before.kind == last.kind == "vector" or before.extent != last.extent:
                continue
            if target.vector_bytes != 32 and survey(before).cost < HEAVY:
                continue
            for stmt in last.body:
                if isinstance(stmt, Store) and stmt.buffer in large and stmt.mask is None and (
                    not stmt.combine and coefficient(stmt.index, last.var) == 1
                ):
                    place = substitute(stmt.index, {last.var: Dim.var(before.var)})
                    found.setdefault(id(before), []).append((stmt.buffer, place))
    return found


def beside(epilogue: Sequence[Stmt], rows: int, columns: int) -> dict[Key, int]:
    """Of what an epilogue reads and writes along rows of its own: how many elements further the
    tile lies that is so many rows or columns further. It comes next, and meets as little of each
    row as this one, in which the core sees no stream (Zen 3: 1x1 that add a residual 1.50 and
    1.39 ms)."""
    found = {}
    for each in (*walk.parts(walk.roots(epilogue)), *epilogue):
        if isinstance(each, Load | Store) and each.mask is None:
            row = coefficient(each.index, "m")
            if coefficient(each.index, "n") == 1 and isinstance(row, int) and row:
                found[each.buffer, each.index] = rows * row + columns
    return found


def _loads(loop: Loop) -> dict[Key, None]:
    """What a loop reads at all of its iterations, once each."""
    return {
        (scalar.buffer, scalar.index): None for _, scalar in walk.evaluated((loop,))
        if isinstance(scalar, Load) and scalar.mask is None
    }


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
