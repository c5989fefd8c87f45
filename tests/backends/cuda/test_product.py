"""Products rendered as CUDA C: what they compute on the emulator."""

from __future__ import annotations

import random

import numpy as np
import pytest

from graphc.backends.cuda.emit import emit
from graphc.backends.cuda.emulator import ALL, Library, Schedule, Toolchain
from graphc.backends.cuda.source import Target
from graphc.backends.cuda.templates import gemm_plan, renders
from graphc.ir.kernel.text import parse_kernel
from graphc.ir.kernel.verify import verify_kernel

from .product_cases import Case, arrays, launch, wrong

SCHEDULES = (ALL[1], ALL[-2], Schedule(watch=True), Schedule(watch=True, early=True))

CASES = (
    Case("bf16", 70, 66, 264),
    Case("bf16", 70, 66, 264, "r", "r"),
    Case("f16", 65, 130, 72, "k", "r", batch=2),
    Case("bf16", 33, 40, 100, "r", "k", pad=1),
    Case("bf16", 40, 24, 80, "k", "r", batch=6, heads=3, pad=8),
    Case("bf16", 20, 24, 64, "r", "r", offset=1),
    Case("f16", 1, 1, 1, "k", "r"),
    Case("bf16", 16, 72, 520, "k", "r", batch=2),
    Case("f16", 5, 130, 1040, pad=3),
    Case("bf16", 7, 40, 72, "r", "k"),
    Case("f32", 5, 70, 300, batch=2),
    Case("f32", 1, 40, 1210, pad=1),
    Case("f64", 8, 33, 130, offset=1),
    Case("bf16", 64, 64, 0, "r", "k"),
    Case("f32", 70, 66, 50, "k", "r"),
    Case("f32", 65, 130, 33, "k", "r", batch=2),
    Case("f32", 9, 17, 600, "r", "k"),
    Case("f32", 3, 2, 0, "k", "r"),
    Case("f64", 17, 70, 300, "r", "r", pad=1),
)
# the large tiles: their emulation takes longer; and more layouts
LARGE = (
    Case("bf16", 5, 3, 7, "s", "s"),
    Case("f32", 70, 66, 50, "r", "r", pad=2),
    Case("f32", 70, 66, 50),
    Case("f32", 20, 24, 64, "r", "k", batch=4, heads=2, offset=3),
    Case("f32", 7, 5, 3, "s", "s"),
    Case("f64", 70, 66, 50),
    Case("bf16", 130, 136, 72, "k", "k"),
    Case("bf16", 136, 130, 72, "r", "r", batch=2),
    Case("f32", 130, 136, 20, "k", "r"),
    Case("f32", 136, 130, 20, "r", "k"),
)


def compiled(cases: tuple[Case, ...], toolchain: Toolchain) -> Library:
    """The texts of all, once each."""
    texts = {source.stages[0].name: source.text for source in (emit(c.kernel()) for c in cases)}
    return toolchain.compile(texts)


@pytest.fixture(scope="module")
def library(toolchain: Toolchain) -> Library:
    return compiled(CASES, toolchain)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_sums_and_the_epilogue(case: Case, library: Library) -> None:
    kernel = case.kernel()
    assert kernel.template is not None and renders(kernel.template)
    source = emit(kernel)
    for schedule in SCHEDULES:
        assert not wrong(kernel, source, library, schedule)


def test_all_schedules(library: Library) -> None:
    for case in (CASES[1], CASES[14]):
        for schedule in ALL:
            assert not wrong(case.kernel(), emit(case.kernel()), library, schedule)


@pytest.mark.slow
@pytest.mark.parametrize("case", LARGE, ids=str)
def test_large_tiles_and_other_layouts(
    case: Case, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gemm_plan, "BLOCKS", 1)
    kernel = case.kernel()
    for schedule in SCHEDULES:
        assert not wrong(kernel, emit(kernel), compiled((case,), toolchain), schedule)


@pytest.mark.parametrize("case", (
    Case("bf16", 130, 72, 328), Case("f16", 66, 270, 72), Case("bf16", 66, 130, 100, pad=1),
    Case("f16", 66, 200, 0), Case("bf16", 70, 130, 70, "k", "r"), Case("f16", 72, 72, 136, "r"),
    Case("bf16", 130, 100, 100, "r", "r", pad=1),
), ids=str)
def test_warpgroups_give_the_bits_of_warps(
    case: Case, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the emulator, which adds exactly: what two chips do within an instruction may differ."""
    monkeypatch.setattr(gemm_plan, "BLOCKS", 1)
    wide, narrow = gemm_plan.WARPGROUPS
    monkeypatch.setattr(gemm_plan, "WARPGROUPS", (wide, narrow) if case.n > 128 else (narrow, wide))
    kernel = case.kernel()
    sources = [emit(kernel, Target(each)) for each in ("sm_90", "sm_90a")]
    names = [each.stages[0].name for each in sources]
    assert names[0] != names[1]
    library = toolchain.compile(dict(zip(names, (s.text for s in sources), strict=True)))
    results = []
    for source in sources:
        found = arrays(kernel, {})
        launch(library, source, found, {}, Schedule())
        results.append(found)
    for x, y in zip(*results, strict=True):
        np.testing.assert_array_equal(x, y)
    for schedule in (ALL[1], ALL[6], Schedule(watch=True)):
        assert not wrong(kernel, sources[1], library, schedule)


def test_any_grid_gives_the_same_bits(library: Library) -> None:
    for case in (CASES[2], CASES[7], CASES[11], CASES[13], CASES[15], CASES[18]):
        source = emit(case.kernel())
        results = []
        for blocks in (None, 1, 3):
            found = arrays(case.kernel(), {})
            launch(library, source, found, {}, Schedule(ahead=True), blocks)
            results.append(found)
        for other in results[1:]:
            for x, y in zip(results[0], other, strict=True):
                np.testing.assert_array_equal(x, y)


def test_a_text_is_for_many_shapes() -> None:
    same = (
        Case("bf16", 70, 72, 264), Case("bf16", 71, 48, 264), Case("bf16", 64, 8, 200, pad=5),
    )
    sources = [emit(case.kernel()) for case in same]
    assert len({source.text for source in sources}) == 1
    assert len({source.sizes for source in sources}) == 3
    other = (
        Case("bf16", 70, 72, 264, "r"), Case("f16", 70, 72, 264), Case("bf16", 70, 72, 1024),
        Case("bf16", 70, 66, 264),  # rows of results are not aligned
    )
    assert len({emit(case.kernel()).text for case in (same[0], *other)}) == 5


SYMBOLIC = """kernel symbolic(a: bf16[64*T] in, w: bf16[2112] in, o: bf16[33*T] out) dims (T) {
  gemm batch [1] m [T] n [33] k [64] acc f32 {
  left a[64*m + k]: bf16
  right w[64*n + k]: bf16
    epilogue {
      store o[33*m + n] = cast.bf16(acc)
    }
  }
}"""
SYMBOLIC_DEPTH = """kernel depth(a: f32[20*T] in, w: f32[12*T] in, o: f32[240] out) dims (T) {
  gemm batch [1] m [20] n [12] k [T] acc f32 {
  left a[20*k + m]: f32
  right w[n*T + k]: f32
    epilogue {
      store o[12*m + n] = acc
    }
  }
}"""


@pytest.mark.parametrize("text", (SYMBOLIC, SYMBOLIC_DEPTH))
def test_symbolic_sizes(text: str, toolchain: Toolchain) -> None:
    kernel = parse_kernel(text)
    verify_kernel(kernel)
    source = emit(kernel)
    library = toolchain.compile({"symbolic": source.text})
    for size in (2, 70, 200):
        for schedule in (Schedule(watch=True), ALL[-2]):
            assert not wrong(kernel, source, library, schedule, {"T": size})


def drawn(seed: int) -> Case:
    """A product of odd sizes."""
    rng = random.Random(seed)
    sizes = (1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 40, 63, 64, 65, 96, 100, 127, 130)
    m, n = rng.choice(sizes), rng.choice(sizes)
    k = rng.choice((*sizes, 0, 300, 520))
    batch = rng.choice((1, 1, 1, 2, 5, 6))
    heads = rng.choice((1, 2, 3)) if batch > 1 else 1
    return Case(
        rng.choice(("bf16", "bf16", "f16", "f32", "f32", "f64")), m, n, k, rng.choice("kkrrs"),
        rng.choice("kkrrs"), batch, rng.choice((0, 0, 1, 3, 8)), rng.choice((0, 0, 1, 4, 8)), heads,
    )


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 300, 20))
def test_drawn_products(first: int, toolchain: Toolchain) -> None:
    seeds = range(first, first + 20)
    cases = tuple(drawn(seed) for seed in seeds)
    library = compiled(cases, toolchain)
    for seed, case in zip(seeds, cases, strict=True):
        schedule = (*SCHEDULES, *ALL)[seed % 14]
        found = wrong(case.kernel(), emit(case.kernel()), library, schedule)
        assert not found, (seed, case, found)
