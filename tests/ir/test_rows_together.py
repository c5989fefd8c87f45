"""Running sums and extrema along rows: several rows take their steps at a time."""

from __future__ import annotations

import re
from typing import Any

import pytest

import graphc
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


@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_the_next_step_of_an_extremum_waits_for_one_operation(name: str) -> None:
    """A comparison and a choice for each step took four times as long: 46 us for 10,000 numbers."""
    (kernel,) = kernels(check(build(lambda x: getattr(ops, name)(x, dim=0), (40,))))
    text = print_kernel(kernel)
    ahead = "gt" if name == "cummax" else "lt"
    (held,) = re.findall(rf"= {ahead}\.bool\((c\d), (t\d+)\)", text)
    (best,) = re.findall(rf"(t\d+) = where\.f32\(t\d+, {held[0]}, {held[1]}\)", text)
    assert f"next {held[0]} set {best}" in text


@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_extrema_of_what_is_not_a_number(name: str) -> None:
    """NaN wins, and stays; its place is the last one's; of equals, zeros too, the last one's."""
    nan, inf = float("nan"), float("inf")
    rows = [
        [1, nan, 2, nan, 3], [nan, -inf, inf, 0, nan], [-inf, -inf, 0.0, -0.0, 0.0],
        [inf, inf, -0.0, 0.0, -0.0], [0.0, -0.0, -0.0, 0.0, nan],
    ]
    wanted = {
        "cummax": [[0, 1, 1, 3, 3], [0, 0, 0, 0, 4], [0, 1, 2, 3, 4], [0, 1, 1, 1, 1],
                   [0, 1, 2, 3, 4]],
        "cummin": [[0, 1, 1, 3, 3], [0, 0, 0, 0, 4], [0, 1, 1, 1, 1], [0, 1, 2, 3, 4],
                   [0, 1, 2, 3, 4]],
    }[name]
    for count in (1, 5):  # one row, and several beside each other
        for first in range(0, 5, count):
            x = graphc.tensor(rows[first : first + count])
            values, places = graphc.compile(lambda x: getattr(x, name)(1))(x)
            assert places.tolist() == wanted[first : first + count]
            expected = x.gather(1, places)
            assert values.numpy().tobytes() == expected.numpy().tobytes()
