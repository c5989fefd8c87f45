"""Reductions in stages, as a machine whose lanes go along short stretches has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphc.backends.numpy import TABLE
from graphc.ir import dtypes, ops
from graphc.ir.dim import Dim, product
from graphc.ir.kernel import Kernel, Load, Local, Loop, walk
from graphc.ir.kernel.interpret import run_program
from graphc.ir.kernel.text import print_kernel

from . import kernel_cases as cases
from .kernel_cases import build, check, compiled, only_kernel, total
from .machines import CUTTING, WIDE
from .work import work_of


def moments(x: Any, dims: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """(x - mean) / deviation, mean, variance."""
    n = ops.full.like(x, shape=(), value=product(x.shape[d] for d in dims), dtype=dtypes.f32)
    mean = total(x, dims, True) / n
    centred = x - mean
    variance = total(centred * centred, dims, True) / n
    return centred * ops.rsqrt(variance + 1e-5), mean, variance


def reads(kernel: Kernel, buffer: str) -> int:
    return sum(
        isinstance(scalar, Load) and scalar.buffer == buffer
        for stage in kernel.stages for _, scalar in walk.evaluated(stage)
    )


@pytest.mark.parametrize(("shape", "dims"), [
    ((64, 64, 28, 28), (0, 2, 3)), ((1024, 128), (0,)), ((3, 40_000), (1,)),
])
def test_moments_are_had_from_one_reading(shape: tuple[int, ...], dims: tuple[int, ...]) -> None:
    graph = build(lambda x: moments(x, dims), shape)
    (kernel,) = (k for k in cases.kernels(compiled(graph, machine=WIDE)) if len(k.stages) > 1)
    assert len(kernel.stages) == 2
    rows = any(isinstance(s, Local) for s in walk.statements(kernel.stages[0]))
    assert reads(kernel, "a0") == (1 if rows else 2)  # the second of its first elements


@pytest.mark.parametrize("machine", [WIDE, CUTTING], ids=["wide", "cutting"])
@pytest.mark.parametrize(("shape", "dims"), [
    ((6, 5, 7, 9), (0, 2, 3)), ((400, 3, 33), (0, 2)), ((1031, 7), (0,)), ((2, 17_001), (1,)),
    ((9_001,), (0,)),
])
def test_moments(shape: tuple[int, ...], dims: tuple[int, ...], machine: Any) -> None:
    """Pieces of unequal length; a mean that is large beside the deviation."""
    x = np.random.default_rng(0).normal(3000.0, 1.0, shape).astype(np.float32)
    wide = x.astype(np.float64)
    program = compiled(build(lambda v: moments(v, dims), shape), machine=machine)
    _, mean, variance = run_program(program, [x], TABLE)
    np.testing.assert_allclose(mean, wide.mean(dims, keepdims=True), rtol=1e-6)
    np.testing.assert_allclose(variance, wide.var(dims, keepdims=True), rtol=2e-5)


@pytest.mark.parametrize("shape", [(4096, 24), (9_001, 8)])
def test_moments_of_columns_that_begin_far_away(shape: tuple[int, ...]) -> None:
    """Squares are taken around the first elements of a piece: here they are no typical ones."""
    x = np.random.default_rng(0).normal(3000.0, 1.0, shape).astype(np.float32)
    x[0] = -20_000.0
    x[1, ::2] = 9000.0
    x[600:603] = 0.0
    program = compiled(build(lambda v: moments(v, (0,)), shape), machine=WIDE)
    assert any(len(kernel.stages) > 1 for kernel in cases.kernels(program))
    _, _, variance = run_program(program, [x], TABLE)
    wide = x.astype(np.float64).var(0, keepdims=True)
    np.testing.assert_allclose(variance, wide, rtol=2e-6)


def test_moments_of_symbolic_sizes() -> None:
    graph = build(lambda x: moments(x, (0,)), (Dim.var("s0"), 6), dims={"s0": 37})
    check(graph, machine=CUTTING)


def test_what_is_stored_between_the_passes() -> None:
    """The centred values are results, too."""

    def function(x):
        mean = total(x, (0,), True) / 37.0
        centred = x - mean
        return centred, total(centred * centred, (0,))

    check(build(function, (37, 6)), machine=CUTTING)
    check(build(function, (37, 6)), machine=WIDE)


def test_passes_that_need_each_other() -> None:
    """Softmax along the axis that is not contiguous, with its maximum's place."""

    def function(x):
        return cases.softmax(x, 0), ops.argmax(x, dim=0, keepdim=False)

    for shape in ((50, 6), (3000, 40)):
        check(build(function, shape), machine=CUTTING)
        check(build(function, shape), machine=WIDE)


def test_equal_values_and_nan_have_the_first_place() -> None:
    graph = build(lambda x: ops.argmax(x, dim=1, keepdim=False), (dtypes.f64, (2, 600)))
    x = np.zeros((2, 600))
    x[0, 40] = x[0, 41] = 7.0
    x[1, 500] = x[1, 20] = np.nan
    check(graph, inputs=[x], machine=CUTTING)


def test_rows_are_read_once() -> None:
    kernel = only_kernel(cases.layer_norm, (300, 768), (768,), (768,), machine=WIDE)
    assert reads(kernel, "a0") == 1
    kernel = only_kernel(lambda x: cases.softmax(x, 1), (300, 768), machine=WIDE)
    assert reads(kernel, "a0") == 1


def test_long_sums_have_blocks_for_all() -> None:
    kernel = only_kernel(lambda x: total(x, (0,)), (8192, 768), machine=WIDE)
    works = work_of(kernel, {})
    assert works[0].blocks >= 512 and max(w.depth for w in works) <= 64


def test_what_is_the_same_everywhere_stands_before_the_loop() -> None:
    kernel = only_kernel(
        lambda x, a: x * ops.expand(ops.reshape(ops.exp(a), shape=(1, 1)), shape=(300, 40)),
        (300, 40), (1,), machine=WIDE,
    )
    (stage,) = kernel.stages
    before = stage[: next(i for i, s in enumerate(stage) if isinstance(s, Loop))]
    assert "exp" in print_kernel(kernel).split("parallel")[0] and len(before) == 2
