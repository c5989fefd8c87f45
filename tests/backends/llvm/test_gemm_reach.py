"""What a product of known sizes comes to is what its tables hold: the driver's loops, in Python."""

import random

import pytest

from graphc.backends.llvm.contraction import tile_of
from graphc.backends.llvm.gemm_reach import reach
from graphc.backends.llvm.libraries import emit_library, template_libraries
from graphc.backends.llvm.microkernel import RUN_STEPS, Tile
from graphc.backends.llvm.target import Target, host_target
from graphc.ir import dtypes
from graphc.ir.dim import Dim
from graphc.ir.kernel import Product
from graphc.ir.kernel.blocking import Blocking
from graphc.ir.kernel.plan_contraction import is_dot, plan_contraction

from .contractions import Gemm, narrow_targets


def random_product(rng: random.Random) -> Gemm:
    """Small and large sizes, and those around whole tiles."""
    def size() -> int:
        near = rng.choice((6, 8, 16, 32, 64, 128, 384, 1000)) * rng.randint(1, 5)
        return rng.choice((rng.randint(0, 70), near, max(near + rng.randint(-3, 3), 0)))

    dtype, b_dtype = rng.choice(((dtypes.f32, None), (dtypes.f64, None), (dtypes.f32, dtypes.bf16)))
    if rng.random() < 0.1:  # few rows that meet much: runs
        return Gemm(rng.randint(1, 16), 600 + size(), 900 + size(), dtype=dtype)
    return Gemm(
        size(), size(), size(), rng.choice((1, 1, 3)), rng.random() < 0.5, rng.random() < 0.5,
        dtype, dtypes.f64 if dtype is dtypes.f64 else dtypes.f32, b_dtype,
    )


def row_class(tile: Tile, rows: int) -> int:
    """As `gemm._row_class`."""
    return next(c for c, least in zip(tile.row_classes, tile.least_rows, strict=True)
                if rows >= least)


def walked(
    m: int, n: int, tile: Tile, plan: Blocking
) -> tuple[set[tuple[int, int]], set[int], bool]:
    """The tiles and runs that the driver calls for one product, and whether it packs the right
    operand: the loops of `gemm._emit_chunk`, `_emit_product`, `emit_block` and `panels`."""
    tiles, runs, packs = set(), set(), False
    for m_start in range(0, m, plan.chunk_m):
        for n_start in range(0, n, plan.chunk_n):
            n_end = min(n_start + plan.chunk_n, n)
            for start in range(n_start, n_end, plan.block_n):
                columns = min(n_end - start, plan.block_n)
                packed = n < tile.lanes if plan.right_in_place else columns
                packs |= packed > 0
                most_blocks = min(plan.chunk_blocks, plan.blocks)
                lasts = {False} if plan.split_k > 1 else {False, True}
                lasts -= {False} if plan.split_k == 1 and most_blocks == 1 else set()
                for row in range(m_start, min(m_start + plan.chunk_m, m), tile.rows):
                    rows = row_class(tile, min(min(m_start + plan.chunk_m, m) - row, tile.rows))
                    vectors = columns // tile.lanes
                    if not plan.right_in_place:
                        vectors = -(-columns // tile.lanes)
                    tail = plan.right_in_place and columns % tile.lanes
                    whole, rest = divmod(vectors, tile.vectors)
                    for last in lasts:
                        in_runs = plan.right_in_place and plan.area > 0 and not last
                        in_runs = in_runs and plan.block_k <= RUN_STEPS
                        if whole and in_runs:
                            runs.add(rows)
                        elif whole:
                            tiles.add((rows, tile.vectors))
                        tiles |= {(rows, 2)} if rest >= 2 else set()
                        tiles |= {(rows, 1)} if rest % 2 or tail else set()
    return tiles, runs, packs


@pytest.mark.parametrize("target", [host_target(), *narrow_targets()], ids=lambda t: t.cpu)
def test_nothing_is_called_that_is_not_linked(target: Target) -> None:
    rng, seen = random.Random(0), set()
    for _ in range(100):
        kernel = random_product(rng).kernel()
        c = kernel.template
        assert isinstance(c, Product)
        tile, names = tile_of(c, target), template_libraries(kernel, target)
        plan, reached = plan_contraction(c, tile.machine), reach(c, tile)
        assert plan is not None and None not in reached
        tiles, runs, packs = walked(int(c.m), int(c.n), tile, plan)
        if reached.packs == ("point",):
            assert is_dot(c, tile.tiling)
            assert {rows for rows, _ in tiles} <= set(reached.dots or ())
            seen.add("dots")
            continue
        assert tiles <= set(reached.tiles or ()), (c.sizes, tiles, reached)
        assert runs <= set(reached.runs or ()), (c.sizes, runs, reached)
        assert bool(plan.left_packed) == ("left" in reached.packs)
        assert not packs or set(reached.packs) - {"left"}
        wide = {(rows, tile.vectors) for rows in reached.runs or ()}  # the last block's tiles
        assert set(reached.tiles or ()) - wide <= tiles, (c.sizes, tiles, reached)
        assert not reached.dots and not any(name.startswith("dot") for name in names)
        seen |= {each for each in ("tiles", "runs", "packs") if getattr(reached, each)}
    assert seen == {"dots", "tiles", "runs", "packs"}


def test_sizes_of_the_call_come_to_everything() -> None:
    n = Dim.var("n0")
    c = Gemm(7, 9, 33, b_t=True).kernel().template
    assert isinstance(c, Product)
    symbolic = Product(c.batch, n, c.n, c.k, c.left, c.right, c.acc_dtype, c.epilogue)
    tile = tile_of(symbolic, host_target())
    assert reach(symbolic, tile)[:3] == (None, None, None)


def test_a_product_of_few_sizes_is_linked_with_little() -> None:
    """Six rows and whole panels: one tile, of all there are."""
    target = host_target()
    tile = Tile("f32", target)
    names = template_libraries(Gemm(12, 2 * tile.columns, 40).kernel(), target)
    full = f"tile.6.{tile.widths[0]}.f32"
    assert [name for name in names if name.startswith(("tile", "plan", "dot"))] == [full]
    one, every = (len(emit_library(name, target).text()) for name in (full, "tiles.f32"))
    assert one < every / 3
