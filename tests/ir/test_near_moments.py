"""Moments with what rounding kept out of the mean: one walk finds them, cut in pieces or not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphc.backends.numpy import TABLE
from graphc.ir.dim import product
from graphc.ir.kernel.interpret import run_program

from . import kernel_cases as cases
from .kernel_cases import CPU, build, compiled, only_kernel, total
from .machines import CUTTING, WIDE
from .test_lower_staged import reads


def moments(x: Any, dims: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """x - mean, mean, variance."""
    n = float(product(x.shape[d] for d in dims))  # type: ignore[arg-type]
    near = total(x, dims, True) / n
    around = x - near
    left = total(around, dims, True)
    mean = near + left / n
    return x - mean, mean, (total(around * around, dims, True) - left * (left / n)) / n


@pytest.mark.parametrize("machine", [CPU, WIDE, CUTTING], ids=["host", "wide", "cutting"])
@pytest.mark.parametrize(("shape", "dims"), [
    ((6, 5, 7, 9), (0, 2, 3)), ((400, 3, 33), (0, 2)), ((1031, 7), (0,)), ((2, 17_001), (1,)),
    ((9_001,), (0,)), ((5, 700), (1,)), ((40, 16), (0,)), ((3, 31), (1,)), ((2, 4096), (1,)),
])
def test_far_from_zero(shape: tuple[int, ...], dims: tuple[int, ...], machine: Any) -> None:
    x = np.random.default_rng(0).normal(1e5, 1.0, shape).astype(np.float32)
    wide = x.astype(np.float64)
    program = compiled(build(lambda v: moments(v, dims), shape), machine=machine)
    _, mean, variance = run_program(program, [x], TABLE)
    np.testing.assert_allclose(mean, wide.mean(axis=dims, keepdims=True), rtol=1.2e-7)
    np.testing.assert_allclose(variance, wide.var(axis=dims, keepdims=True), rtol=1e-5)


def test_short_rows_are_walked_once_before_the_result() -> None:
    kernel = only_kernel(lambda x: moments(x, (1,))[0], (300, 768))
    assert reads(kernel, "a0") == 3  # the first of its few first elements
    kernel = only_kernel(lambda x: moments(x, (1,))[0], (3, 20_000))
    assert reads(kernel, "a0") == 3  # sums, sums around the mean, and the result
    kernel = only_kernel(lambda x: moments(x, (1,))[0], (300, 768), machine=WIDE)
    assert reads(kernel, "a0") == 1


@pytest.mark.parametrize(("shape", "dims"), [((64, 64, 28, 28), (0, 2, 3)), ((3, 40_000), (1,))])
def test_pieces_are_read_once(shape: tuple[int, ...], dims: tuple[int, ...]) -> None:
    program = compiled(build(lambda x: moments(x, dims), shape), machine=WIDE)
    staged = [k for k in cases.kernels(program) if len(k.stages) > 1]
    assert len(staged) == 1 and len(staged[0].stages) == 2


def test_all_of_them_are_one_kernel() -> None:
    """What hangs on moments and what keeps them."""
    graph = build(lambda x: moments(x, (0, 2)), (32, 64, 300))
    kernels = cases.kernels(compiled(graph))
    assert sum(reads(kernel, f"a{i}") for kernel in kernels for i, p in enumerate(
        p for p in kernel.params if p.access == "in"
    ) if p.size == 32 * 64 * 300) == 3
