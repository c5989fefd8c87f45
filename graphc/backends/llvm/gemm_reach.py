"""What of the shared code a product comes to: all of it where sizes are known in the call alone,
else what its plan reaches. All tiles and packers take as long to compile as ten kernels, and a
product of known sizes calls a few of them.
"""

from __future__ import annotations

from typing import NamedTuple

from graphc.backends.llvm.gemm_pack import right_packer
from graphc.backends.llvm.microkernel import RUN_STEPS, Tile
from graphc.ir.dim import evaluate
from graphc.ir.kernel import Product
from graphc.ir.kernel.plan_contraction import is_dot, plan_contraction
from graphc.ir.kernel.templates.operand import base_and_strides, panels_of


class Reach(NamedTuple):
    """Kernels by rows, and width in registers. None: any of them, so the table of all."""

    tiles: tuple[tuple[int, int], ...] | None
    runs: tuple[int, ...] | None
    dots: tuple[int, ...] | None
    packs: tuple[str, ...]  # packers: "left", what right_packer says, "point" to columns for dots


def reach(c: Product, tile: Tile) -> Reach:
    """What a product comes to whose steps of k are single values."""
    panels = panels_of(c.right.index) is not None
    packer = "rows" if panels else right_packer(*base_and_strides(c.right, "k", "n")[1:])
    plan = plan_contraction(c, tile.machine)
    if plan is None:
        if is_dot(c, tile.tiling):
            return Reach(None, None, None, ("left", packer, "point"))
        return Reach(None, None, (), ("left", packer))
    _, m, n, _ = (evaluate(size, {}) for size in c.sizes)
    rows, few = row_classes(tile, m), m <= tile.tiling.dot_rows or n <= tile.tiling.dot_columns
    if few and is_dot(c, tile.tiling):
        return Reach((), (), rows, ("point",))
    in_place = bool(plan.right_in_place)
    tiles = tuple((each, width) for each in rows for width in widths(tile, in_place, n))
    # of panels side by side, few steps at a time, whose sums wait for further blocks
    short = plan.block_k <= RUN_STEPS and n >= tile.columns
    runs = rows if plan.right_in_place and plan.area > 0 and short else ()
    packs = ["left"] if plan.left_packed else []
    if not panels and not (plan.right_in_place and n >= tile.lanes):
        packs.append(packer)
    return Reach(tiles, runs, (), tuple(packs))


def row_classes(tile: Tile, m: int) -> tuple[int, ...]:
    """The kernels that so many rows come to: all tiles are whole but for the last."""
    rest = m % tile.rows
    counts = [tile.rows] * (m >= tile.rows) + [rest] * (rest > 0)
    classes = [
        next(i for i, least in enumerate(tile.least_rows) if count >= least) for count in counts
    ]
    return tuple(dict.fromkeys(tile.row_classes[index] for index in classes))


def widths(tile: Tile, in_place: bool, n: int) -> tuple[int, ...]:
    """Of what `gemm.panels` makes: blocks of columns are whole tiles but for the last."""
    whole, ragged = divmod(n % tile.columns, tile.lanes)
    tail = bool(ragged) and in_place
    vectors = whole + (bool(ragged) and not tail)
    full = [tile.widths[0]] * (n >= tile.columns or vectors == tile.vectors)
    vectors %= tile.vectors
    narrow = [2] * (vectors >= 2) + [1] * (vectors % 2 or tail)
    return tuple(dict.fromkeys(full + narrow))
