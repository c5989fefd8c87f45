"""Convolutions strip by strip, the channels of what they copy last."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from graphc.backends.host.machine import cpu
from graphc.backends.llvm.conv_reach import conv_reach, is_by_strips
from graphc.backends.llvm.conv_strips_tile import runs_of
from graphc.backends.llvm.emit import emit
from graphc.backends.llvm.libraries import template_libraries
from graphc.backends.llvm.target import Target, host_target
from graphc.ir import dtypes
from graphc.ir.kernel import Convolution, plan_convolution
from graphc.ir.kernel.plan_spans import Span
from graphc.ir.kernel.plan_strips import strips_of
from graphc.ir.record import replaced

from .contractions import Conv, narrow_targets, run
from .test_conv import check, check_edges, whole_registers

CASES = [
    Conv(2, 17, (28, 28), 40, (3, 3), pad=(1, 1)),
    Conv(2, 3, (60, 61), 33, (7, 7), (2, 2), (3, 3)),
    Conv(1, 5, (40, 39), 20, (3, 3), (3, 3), (1, 1)),
    Conv(1, 5, (19, 45), 20, (1, 4), (2, 2), (0, 1)),
    Conv(2, 6, (30, 25), 21, (3, 5), (2, 1), (4, 7), (3, 2)),  # more padding than taps need
    Conv(3, 8, (9, 7), 48, (5, 5), pad=(2, 2)),
    Conv(9, 6, (19, 3), 30, (7, 3), (2, 2), (3, 0)),  # lines of one position
    Conv(2, 130, (8, 32), 33, (3, 3), pad=(1, 1)),
    Conv(2, 2, (9, 9), 13, (9, 9), pad=(4, 4)),
    Conv(2, 40, (12, 16), 48, (3, 3), (2, 2), (1, 1), groups=2),
    Conv(3, 24, (100,), 40, (5,), (2,), (2,)),
    Conv(1, 64, (70, 90), 64, (3, 3), (2, 2), (1, 1)),
    Conv(1, 7, (4, 5), 3, (3, 3), (4, 4), (9, 9)),  # strips, and tiles, of nothing but padding
]
BACKWARD = [
    Conv(2, 17, (28, 28), 40, (3, 3), pad=(1, 1)),
    Conv(2, 33, (9, 7), 24, (5, 5), pad=(2, 2)),
    Conv(4, 6, (14, 14), 16, (5, 5)),  # LeNet: all taps of the padding that a window spans
    Conv(1, 70, (13, 11), 9, (3, 2), pad=(0, 1), dilation=(2, 3)),
    Conv(2, 40, (12, 16), 48, (3, 3), pad=(1, 1), groups=2),
    Conv(2, 5, (6, 6), 3, (2, 2), pad=(3, 3)),  # padding beyond the window
    Conv(3, 24, (100,), 40, (5,), pad=(2,)),
]


def _split() -> Target:
    """This machine's CPU with registers that are computed in halves."""
    host = host_target()
    if host.vector_bytes != 64:
        pytest.skip("such CPUs have AVX-512")
    return replaced(host, cpu="znver4")


def _kind(case: Conv, target: Target, kind: str = "conv") -> str:
    template = case.kernel(kind).template
    assert isinstance(template, Convolution)
    (found,) = plan_convolution.contractions(template, target.machine) or ()
    return found.kind


@pytest.fixture
def cheap(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """They cost nothing, so that this way is always chosen."""
    conv_reach.cache_clear()
    is_by_strips.cache_clear()

    def cheapest(*args: Any) -> Any:
        found = strips_of(*args)
        return found and replaced(found, cost=-(1 << 60))

    monkeypatch.setattr(plan_convolution, "strips_of", cheapest)
    yield
    conv_reach.cache_clear()
    is_by_strips.cache_clear()


@pytest.mark.usefixtures("cheap")
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.input}-{c.window}-{c.stride}")
def test_values(case: Conv) -> None:
    target = _split()
    assert _kind(case, target) == "strips"
    results = [check(case, "conv", target, threads) for threads in (1, 4)]
    assert results[0].tobytes() == results[1].tobytes()


@pytest.mark.usefixtures("cheap")
@pytest.mark.skipif(not narrow_targets(), reason="such CPUs have AVX2")
def test_registers_of_32_bytes() -> None:
    target = narrow_targets()[0]
    for case in (CASES[0], CASES[3], CASES[5], CASES[9]):
        assert _kind(case, target) == "strips"
        check(case, "conv", target)
    for case in BACKWARD[:2]:
        assert _kind(case, target, "conv_input_grad") == "strips"
        check(case, "conv_input_grad", target)


@pytest.mark.usefixtures("cheap")
@pytest.mark.parametrize("channels, size", [(20, (8, 128)), (128, (4, 10))])
def test_nothing_beside_an_image_is_read(channels: int, size: tuple[int, int]) -> None:
    check_edges(Conv(1, channels, size, 40, (3, 3), pad=(1, 1)), _split())


@pytest.mark.usefixtures("cheap")
def test_infinite_weights_beside_an_image_give_no_nan() -> None:
    """A sum has no terms there, as in those of torch's kernels that this size gets."""
    case = Conv(2, 17, (28, 27), 40, (3, 3), (2, 1), (1, 2))
    rng = np.random.default_rng(0)
    w, x = (rng.standard_normal(case.shapes[name]).astype(np.float32) for name in "wx")
    w[0, 0, 0, 0], w[1, 3, 2, 2], w[2, 2, 1, 0] = np.inf, np.nan, -np.inf
    y = np.zeros(case.shapes["y"], np.float32)
    run(case.kernel("conv"), [w, x, y], target=_split())
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (2, 2)))
    inside = np.pad(np.ones_like(x), ((0, 0), (0, 0), (1, 1), (2, 2)))
    want = np.zeros_like(y)
    lines, columns = y.shape[2:]
    for kh, kw in np.ndindex(3, 3):
        place = np.s_[:, :, kh : kh + 2 * lines : 2, kw : kw + columns]
        seen = padded[place][:, :, :lines], inside[place][:, :, :lines]
        with np.errstate(invalid="ignore"):
            terms = seen[0][:, None] * w[None, :, :, kh, kw, None, None]
        want += np.where(seen[1][:, None] > 0, terms, 0).sum(2)
    np.testing.assert_allclose(y, want, atol=2e-4)


@pytest.mark.usefixtures("cheap")
@pytest.mark.parametrize("case", BACKWARD, ids=lambda c: f"{c.input}-{c.window}-{c.dilation}")
@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.bf16], ids=str)
def test_input_gradients(case: Conv, dtype: dtypes.DType) -> None:
    target = _split()
    if dtype is dtypes.bf16 and "bf16" not in target.machine.tiling.steps:  # type: ignore[union-attr]
        pytest.skip("no instruction for pairs")
    typed = replaced(case, dtype=dtype, acc=dtypes.f32)
    assert _kind(typed, target, "conv_input_grad") == "strips"
    results = [check(typed, "conv_input_grad", target, threads) for threads in (1, 4)]
    assert results[0].tobytes() == results[1].tobytes()


@pytest.mark.usefixtures("cheap")
def test_input_gradients_with_steps_go_other_ways() -> None:
    case = Conv(2, 17, (28, 28), 40, (3, 3), (2, 1), (1, 1))
    template = case.kernel("conv_input_grad").template
    assert isinstance(template, Convolution)
    found = plan_convolution.contractions(template, _split().machine) or ()
    assert {"strips"}.isdisjoint(each.kind for each in found)


@pytest.mark.usefixtures("cheap")
def test_infinite_weights_give_input_gradients_no_nan() -> None:
    case = Conv(2, 17, (14, 13), 40, (3, 3), pad=(1, 2))
    rng = np.random.default_rng(0)
    w, gy = (rng.standard_normal(case.shapes[name]).astype(np.float32) for name in "wy")
    w[0, 0, 0, 0], w[3, 1, 2, 2] = np.inf, -np.inf
    results = []
    for target in (_split(), whole_registers()):
        gx = np.zeros(case.shapes["x"], np.float32)
        run(case.kernel("conv_input_grad"), [w, gy, gx], target=target)
        results.append(gx)
    np.testing.assert_allclose(*results, atol=2e-4)


@pytest.mark.usefixtures("cheap")
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.input}-{c.window}-{c.stride}")
def test_pairs_of_bfloat16(case: Conv) -> None:
    target = _split()
    if "bf16" not in target.machine.tiling.steps:
        pytest.skip("no instruction for pairs")
    typed = replaced(case, dtype=dtypes.bf16, acc=dtypes.f32)
    assert _kind(typed, target) == "strips"
    results = [check(typed, "conv", target, threads) for threads in (1, 4)]
    assert results[0].tobytes() == results[1].tobytes()


def test_which_go_this_way() -> None:
    """Those of few positions and of few lines; of large images where registers are computed in
    halves, beside which masks cost more."""
    split, whole = cpu(64, 32, split=True), cpu(64, 32)
    large = Conv(8, 64, (56, 56), 64, (3, 3), pad=(1, 1))
    for case, kinds in (
        (Conv(4, 72, (9, 9), 56, (5, 5), (2, 2), (2, 2)), ("strips", "strips")),
        (Conv(8, 128, (28, 28), 128, (3, 3), pad=(1, 1)), ("strips", "strips")),
        (Conv(8, 512, (7, 7), 512, (3, 3), pad=(1, 1)), ("strips", "strips")),
        (large, ("strips", "places")),
    ):
        template = case.kernel("conv").template
        assert isinstance(template, Convolution)
        found = [plan_convolution.contractions(template, each) or () for each in (split, whole)]
        assert tuple(each.kind for (each,) in found) == kinds
    for machine, kind in ((cpu(32, 16), "strips"), (cpu(16, 16), "windows")):  # none was timed
        assert (plan_convolution.contractions(template, machine) or ())[0].kind == kind
    names = template_libraries(large.kernel("conv"), _split())
    tiles = [name for name in names if name.startswith("strip_tile.")]
    assert {*names} == {"conv_strips.f32", "transpose.f32", "store.f32", *tiles}


def test_kernels_share_their_code() -> None:
    """A kernel has nothing but its entry and its epilogue; sides of lines, and other windows, have
    the same tiles."""
    target = _split()
    tiles = set[str]()
    for case in (
        Conv(8, 64, (56, 56), 64, (3, 3), pad=(1, 1)),
        Conv(2, 256, (48, 48), 64, (3, 3), pad=(1, 1)),
        Conv(4, 72, (11, 11), 56, (5, 5), (2, 2), (2, 2)),
    ):
        kernel = case.kernel("conv")
        assert _kind(case, target) == "strips"
        assert emit(kernel, target).count("\ndefine ") <= 2
        tiles.update(n for n in template_libraries(kernel, target) if n.startswith("strip_tile."))
    assert len(tiles) == 2


def test_runs_of_taps() -> None:
    """Taps that the same rows meet follow each other; those that none meets are left out."""
    usual = ((1, 5), (0, 5), (0, 4))
    for taps, runs in (
        (((0, 5),) * 3, ((0, 0), (0, 3), (0, 0))),
        (((1, 5), (0, 5), (0, 5)), ((0, 1), (1, 2), (0, 0))),
        (((0, 0), (1, 5), (0, 4), (0, 4)), ((1, 1), (0, 0), (2, 2))),
        (((0, 0),), ((0, 0),) * 3),
    ):
        assert runs_of(Span(1, 0, 5, taps)) == (usual, runs)
    apart = ((2, 5), (0, 5), (0, 0), (0, 5), (0, 2))
    assert runs_of(Span(1, 0, 5, apart)) == (
        ((2, 5), (0, 5), (0, 5), (0, 2)), ((0, 1), (1, 1), (3, 1), (4, 1))
    )
    assert runs_of(Span(1, 0, 1, ((0, 0), (0, 1)))) == (((0, 1),), ((1, 1),))
