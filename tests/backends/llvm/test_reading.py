"""How code reads what is far: in blocks of rows that ask for the next ones, by half registers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc.backends.llvm.emit import emit
from graphc.backends.llvm.jit import compile_assembly
from graphc.backends.llvm.target import make_target
from graphc.ir import ops
from tests.ir.kernel_cases import build, compiled, kernels, softmax, total

WIDE = make_target(
    "x86_64-unknown-linux-gnu", "znver4", "+avx2,+fma,+avx512f,+avx512vl,+avx512bw,+avx512dq"
)


def assembly(function: Any, *shape: int) -> str:
    (kernel,) = kernels(compiled(build(function, shape)))
    return compile_assembly(emit(kernel, WIDE), WIDE)


def test_sums_along_rows_read_by_half_registers() -> None:
    text = assembly(lambda x: total(x, (1,)), 4096, 1000)
    assert "ymm" in text and "zmm" not in text


@pytest.mark.parametrize("function", [
    lambda x: total(ops.exp(x), (1,)), lambda x: softmax(x, 1), lambda x: total(x * x, (1,)),
    lambda x: ops.amax(x, dims=(1,), keepdim=False), lambda x: total(x, (0,)),
])
def test_what_computes_has_whole_ones(function: Any) -> None:
    assert "zmm" in assembly(function, 4096, 1000)


@pytest.mark.parametrize("shape", [(1000, 600), (397, 1031), (70, 9001)])
def test_sums_over_rows_that_are_asked_for_ahead(shape: tuple[int, int]) -> None:
    """Beyond the last row nothing is there to be had, and nothing happens."""
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    found = torch.compile(lambda x: x.sum(0))(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(found, x.sum(0, dtype=np.float64), atol=2e-4)
