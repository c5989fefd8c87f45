"""Running sums and extrema along rows: several rows take their steps at a time."""

from __future__ import annotations

from typing import Any

import pytest

from graphc.ir import dtypes, ops
from graphc.ir.kernel.text import print_kernel

from .kernel_cases import build, check, kernels
from .machines import TINY, WIDE

SHAPES: list[tuple[tuple[int, ...], int]] = [
    ((8, 30), 1), ((11, 5), 1), ((3, 5, 17), 2), ((2, 6, 9, 1), 2), ((9, 1), 1), ((64, 300), 1),
]


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "cummin"])
@pytest.mark.parametrize(("shape", "dim"), SHAPES)
@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.f64, dtypes.bf16, dtypes.i64], ids=str)
def test_rows(name: str, shape: tuple[int, ...], dim: int, dtype: Any) -> None:
    check(build(lambda x: getattr(ops, name)(x + x, dim=dim), (dtype, shape)))


@pytest.mark.parametrize("machine", [TINY, WIDE], ids=["tiny", "wide"])
def test_on_another_machine(machine: Any) -> None:
    check(build(lambda x: ops.cummax(x, dim=1), (11, 5)), machine=machine)


def test_four_rows_go_along_beside_each_other() -> None:
    """One after the other, each step waited for the one before: three times as long."""
    (kernel,) = kernels(check(build(lambda x: ops.cumsum(x, dim=1), (65, 300))))
    first, rest = print_kernel(kernel).split("parallel")[-1], kernel.stages[1]
    assert first.count("carry") >= 1 and first.count("next ") == 5 and len(rest) == 1
