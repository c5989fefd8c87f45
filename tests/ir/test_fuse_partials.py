"""Sums over the rows of what a contraction makes are begun in its epilogue."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphc.backends.cuda.machine import GPU
from graphc.backends.host.machine import CPU
from graphc.backends.numpy import TABLE
from graphc.ir import dtypes, ops
from graphc.ir.dim import Dim
from graphc.ir.graph import Graph
from graphc.ir.kernel import Kernel, Partial, Program
from graphc.ir.kernel.interpret import run_kernel, run_program
from graphc.ir.kernel.text import parse_kernel, print_kernel
from graphc.ir.kernel.verify import KernelError, verify_kernel
from graphc.ir.passes.decompose import decompose
from graphc.ir.passes.layout import layout
from graphc.ir.passes.lower.template_loops import as_loops
from graphc.ir.record import replaced

from . import kernel_cases as cases
from .kernel_cases import build, check, dot, total

bf16, f32, f64 = dtypes.bf16, dtypes.f32, dtypes.f64
SMALL = replaced(GPU, partial_rows=16, split_least=8)


def partials(program: Program) -> list[str]:
    """The kinds of each template's partial sums."""
    return [
        " ".join(s.kind for s in k.template.epilogue if isinstance(s, Partial))
        for k in cases.kernels(program) if k.template is not None
    ]


def normed(y: Any, weight: Any, bias: Any) -> Any:
    return ops.batch_norm(y, weight, bias, eps=1e-5)


def in_places(rank: int, **attrs: Any) -> dict[str, Any]:
    same = {"stride": 1, "pad_low": 1, "pad_high": 1, "dilation": 1}
    return {k: (v,) * rank for k, v in {**same, **attrs}.items()} | {"groups": 1}


def conv_norm(x: Any, w: Any, weight: Any, bias: Any) -> Any:
    y = ops.conv(x, w, **in_places(2))
    result, mean, variance = normed(y, weight, bias)
    return ops.relu(result), mean, variance


def made(graph: Graph, machine: Any = SMALL) -> Program:
    return check(layout(decompose(graph), machine), machine=machine)


@pytest.mark.parametrize("images", (1, 3, 5))
@pytest.mark.parametrize("dtype", (f32, f64, bf16))
def test_a_batch_norm_reads_its_convolution_once(dtype: dtypes.DType, images: int) -> None:
    shapes = ((dtype, (images, 8, 5, 7)), (dtype, (9, 8, 3, 3)), (dtype, (9,)), (dtype, (9,)))
    program = made(build(conv_norm, *shapes))
    assert partials(program) in (["squares mean"], ["mean squares"])
    large = images * 9 * 5 * 7
    reads = [p for k in cases.kernels(program) for p in k.params if p.size == large]
    assert [p.access for p in reads] == ["out", "in", "out"]  # the result, read to be normalised


def test_a_machine_that_does_not_keeps_its_kernels() -> None:
    graph = build(conv_norm, (3, 8, 5, 7), (9, 8, 3, 3), (9,), (9,))
    assert partials(made(graph, replaced(SMALL, partial_rows=0))) == [""]
    assert partials(made(graph, CPU)) == [""]


def test_what_is_small_is_summed_as_it_was() -> None:
    graph = build(conv_norm, (3, 8, 5, 7), (9, 8, 3, 3), (9,), (9,))
    assert partials(made(graph, GPU)) == [""]


def test_the_gradients_of_a_layer() -> None:
    """Sums of slopes, alone and times what was normalised, where another layer makes the slopes."""
    def back(g, v, act, y, mean, deviation):
        slope = ops.conv_input_grad(g, v, input_shape=y.shape, **in_places(2))
        slope = ops.where(ops.le(act, 0.0), slope * 0.0, slope)
        normal = (y - mean) * deviation
        sums = total(slope, (0, 2, 3), True), total(slope * normal, (0, 2, 3), True)
        return (slope - sums[0] / 105.0 - normal * (sums[1] / 105.0)) * deviation, *sums

    column = (1, 8, 1, 1)
    image = (3, 8, 5, 7)
    graph = build(back, (3, 16, 5, 7), (16, 8, 3, 3), image, image, column, column)
    program = made(graph)
    assert partials(program) == ["sum sum"]
    assert len(cases.kernels(program)) <= 5


@pytest.mark.parametrize("shape", ((6, 10), (2, 3, 10), (13, 10), (64, 10), (3, 43, 10)))
def test_a_bias_of_a_layer(shape: tuple[int, ...]) -> None:
    """Its gradient, from slopes that a product makes; of any number of rows."""
    def back(g, w, h):
        last = len(g.shape) - 1
        slope = ops.tanh(ops.dot_general(
            g, w, batch_a=(), batch_b=(), contract_a=(last,), contract_b=(1,)
        )) * h
        return slope, total(slope, tuple(range(len(slope.shape) - 1)))

    graph = build(back, shape, (7, 10), (*shape[:-1], 7))
    assert partials(made(graph)) == ["sum"]


def test_columns_that_are_transposed_or_of_batches_are_summed_as_they_were() -> None:
    def turned(a, b):
        y = ops.permute(dot(a, b), dims=(1, 0))
        return y, total(y, (0,))

    def batched(a, b):
        y = ops.dot_general(a, b, batch_a=(0,), batch_b=(0,), contract_a=(2,), contract_b=(1,))
        return y, total(y, (0, 1))

    assert partials(made(build(turned, (12, 6), (20, 6)))) == [""]
    assert partials(made(build(batched, (3, 12, 6), (3, 6, 20)))) == [""]


def test_phases_groups_and_weights_are_summed_as_they_were() -> None:
    def strided(g, w):
        attrs = in_places(1, stride=2) | {"input_shape": (3, 8, 13)}
        y = ops.conv_input_grad(g, w, **attrs)
        return y, total(y, (0, 2))

    def depthwise(x, w):
        y = ops.conv(x, w, **in_places(1) | {"groups": 16})
        return y, total(y, (0, 2))

    assert partials(made(build(strided, (3, 8, 7), (8, 8, 3)))) == [""]
    assert partials(made(build(depthwise, (3, 16, 7), (16, 1, 3)))) == [""]


def test_sums_beside_rows_stay_there() -> None:
    """A layer norm's gradient reads its slopes for their rows: columns cost it nothing."""
    def back(g, w, x):
        slope = dot(g, w)
        mean = total(slope, (1,), True) / 70.0
        return slope - mean, total(slope * x, (0,)), total(slope, (0,))

    assert partials(made(build(back, (40, 6), (70, 6), (40, 70)))) == [""]


def test_a_symbolic_number_of_images() -> None:
    images = (Dim.var("s0"), 8, 5, 7)
    graph = build(conv_norm, images, (9, 8, 3, 3), (9,), (9,), dims={"s0": 5})
    assert partials(made(graph)) in (["squares mean"], ["mean squares"])


def test_a_large_mean_costs_no_digits() -> None:
    def moments(x, w):
        y = dot(x, w)
        n = float(y.shape[0])
        mean = total(y, (0,), True) / n
        left = y - mean
        return y, mean, total(left * left, (0,), True) / n

    graph = build(moments, (1000, 1), (3, 1))
    program = cases.compiled(decompose(graph), machine=replaced(SMALL, partial_rows=64))
    assert partials(program) in (["squares mean"], ["mean squares"])
    x = np.random.default_rng(0).normal(1e3, 1, (1000, 1)).astype(np.float32)
    y, mean, variance = run_program(program, [x, np.ones((3, 1), np.float32)], TABLE)
    np.testing.assert_allclose(mean[0], y.mean(0, dtype=np.float64), rtol=1e-6)
    np.testing.assert_allclose(variance[0], y.astype(np.float64).var(0), rtol=1e-5)


# --- kernels --------------------------------------------------------------------------------------

TEXT = """kernel k(a0: f32[130] in, a1: f32[21] in, o0: f32[182] out, o1: f32[49] out, \
o2: f32[49] out) dims () {
  gemm batch [1] m [26] n [7] k [3] acc f32 {
    left a0[(k + 5*m)]: f32
    right a1[(7*k + n)]: f32
    epilogue {
      t0 = mul.f32(acc, 2.0:f32)
      store o0[(7*m + n)] = t0
      partial o1 = mean of acc rows 4
      partial o2 = squares of t0 rows 4
    }
  }
}
"""


def memory(kernel: Kernel) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(int(str(p.size))).astype(np.float32) for p in kernel.params]


def test_text_meaning_and_loops() -> None:
    kernel = parse_kernel(TEXT)
    assert print_kernel(kernel) == TEXT
    verify_kernel(kernel)
    want = memory(kernel)
    run_kernel(kernel, want, (), TABLE)
    rows = want[2].reshape(26, 7)
    np.testing.assert_allclose(want[3].reshape(7, 7)[6], rows[24:].mean(0) / 2, rtol=1e-6)
    np.testing.assert_allclose(want[4].reshape(7, 7)[1], rows[4:8].var(0) * 4, rtol=1e-5)
    loops = as_loops(kernel, SMALL)
    verify_kernel(loops)
    assert len(loops.stages) == 3
    got = memory(loops)
    run_kernel(loops, got, (), TABLE)
    for a, b in zip(want[2:], got[2:], strict=False):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("old", "new", "fault"), [
    ("o2: f32[49]", "o2: f32[48]", "49 elements"), ("squares of", "median of", "median"),
    ("mean of acc rows 4", "mean of acc rows 0", "0 rows"), ("partial o1", "partial a1", "a1"),
    ("o1: f32[49]", "o1: f64[49]", "f32"),
])
def test_what_a_partial_may_not_be(old: str, new: str, fault: str) -> None:
    with pytest.raises(KernelError, match=fault):
        verify_kernel(parse_kernel(TEXT.replace(old, new)))
