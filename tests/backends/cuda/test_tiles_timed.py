"""Tiles that no rule takes, and timing may (gemm_plan.OTHERS): what they compute, and that they do
not spill."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from graphc.backends.cuda.emit import emit
from graphc.backends.cuda.emulator import ALL, Schedule, Toolchain
from graphc.backends.cuda.source import Source, Target
from graphc.backends.cuda.templates import choices
from graphc.backends.cuda.templates.gemm_plan import OTHERS, Plan, Tile
from graphc.ir.kernel import Kernel

from . import needs
from .product_cases import Case, wrong

SCHEDULES = (Schedule(), ALL[-2], Schedule(watch=True), Schedule(watch=True, early=True))
DTYPES = {16: "bf16", 32: "f32", 64: "f64", "tf32": "f32"}
TILES = tuple((kind, tile) for kind, tiles in OTHERS.items() for tile in tiles)


def case_of(kind: int | str, tile: Tile, left: str, right: str) -> Case:
    """More than a tile each way; k in two pieces that are not full."""
    m, n, k = tile.m + 5, tile.n + 3, 3 * tile.k + 5
    return Case(DTYPES[kind], m, n, k, left, right, tf32=kind == "tf32")


def made(kind: int | str, tile: Tile, left: str, right: str) -> tuple[Kernel, Source]:
    kernel = case_of(kind, tile, left, right).kernel()
    return kernel, emit(kernel, Target("sm_80"), Plan(tile, 2, 2 * tile.k))


def check(pairs: Sequence[tuple[Kernel, Source]], toolchain: Toolchain, full: bool) -> None:
    texts = {source.stages[0].name: source.text for _, source in pairs}
    library = toolchain.compile(texts)
    for kernel, source in pairs:
        for schedule in SCHEDULES if full else SCHEDULES[2:3]:
            assert not wrong(kernel, source, library, schedule), source.stages[0]


def test_sums(toolchain: Toolchain) -> None:
    picked = (("tf32", TILES[-1][1], "k", "r"), (32, OTHERS[32][0], "r", "k"))
    check([made(*each) for each in picked], toolchain, full=False)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "tile"), TILES, ids=str)
def test_sums_of_all(kind: int | str, tile: Tile, toolchain: Toolchain) -> None:
    check([made(kind, tile, a, b) for a in "kr" for b in "kr"], toolchain, full=True)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ("sm_80", "sm_90"))
def test_nothing_spills(architecture: str) -> None:
    nvrtc = needs.compiler(12)
    for kind, tile in TILES:
        for left, right in ("kk", "rr", "kr"):
            kernel = case_of(kind, tile, left, right).kernel()
            source = emit(kernel, Target(architecture), Plan(tile, 1, 512))
            uses = nvrtc.compile(source.text, architecture).uses
            assert not any(use.spilled for use in uses.values()), (tile, left, right)


def test_what_there_is_to_choose() -> None:
    """The usual plan first, each once; nothing that a block has no room for, nor much too large."""
    large = Case("bf16", 1024, 4096, 1024).kernel()
    for architecture in ("sm_80", "sm_86", "sm_90", "sm_90a"):
        target = Target(architecture)
        plans = choices(large, target)
        sources = [emit(large, target, plan) for plan in plans]
        assert sources[0] == emit(large, target)
        assert len({source.text for source in sources}) == len(plans) >= 4
        assert all(source.stages[0].shared <= target.shared for source in sources)
    engines = [plan.tile.engine for plan in plans if isinstance(plan, Plan)]
    assert engines[0] == "wgmma" and engines.count("wgmma") == 2 and "mma" in engines
    few = choices(Case("f32", 5, 70, 300).kernel(), Target("sm_80"))
    tiles = [plan.tile for plan in few if isinstance(plan, Plan)]
    assert tiles[0].engine == "dots" and len(set(tiles)) > 1 and max(t.m for t in tiles) == 64
