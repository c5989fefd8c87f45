"""Sums over columns beside rows: the gradients of a norm in one reading."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from graphc.ir import dtypes, ops
from graphc.ir.dim import Dim
from graphc.ir.kernel import Kernel, Launch, Load, Loop, leaves, walk
from graphc.ir.machine import Machine

from . import kernel_cases as cases
from .kernel_cases import build, check, only_kernel, total
from .machines import CUTTING, WIDE
from .work import work_of


def layer_norm(x: Any, g: Any, weight: Any) -> tuple[Any, ...]:
    """The gradients of x, of the weight and of the bias."""
    rows = tuple(range(len(x.shape) - 1))
    last = len(x.shape) - 1
    n = float(x.shape[last])
    mean = total(x, (last,), True) / n
    deviation = ops.rsqrt(total(ops.square(x - mean), (last,), True) / n + 1e-5)
    normal = (x - mean) * deviation
    scaled = g * weight
    slope = total(scaled * normal, (last,), True) / n
    gx = (scaled - total(scaled, (last,), True) / n - normal * slope) * deviation
    return gx, total(g * normal, rows), total(g, rows)


def rms_norm(x: Any, g: Any, weight: Any) -> tuple[Any, ...]:
    last = len(x.shape) - 1
    n = float(x.shape[last])
    deviation = ops.rsqrt(total(ops.square(x), (last,), True) / n + 1e-5)
    scaled = g * weight
    slope = total(scaled * x, (last,), True) / n * deviation * deviation
    gx = (scaled - x * slope) * deviation
    return gx, total(g * (x * deviation), tuple(range(last)))


def reads(kernel: Kernel, buffer: str) -> int:
    return sum(
        isinstance(scalar, Load) and scalar.buffer == buffer
        for stage in kernel.stages for _, scalar in walk.evaluated(stage)
    )


@pytest.mark.parametrize("function", [layer_norm, rms_norm])
def test_the_gradients_of_a_norm_are_had_from_one_reading(function: Callable[..., Any]) -> None:
    kernel = only_kernel(function, (2, 200, 768), (2, 200, 768), (768,), machine=WIDE)
    assert len(kernel.stages) == 2
    large = [p.name for p in kernel.params if p.access == "in" and p.size == 2 * 200 * 768]
    assert [reads(kernel, name) for name in large] == [1, 1]


SHAPES: list[tuple[Any, ...]] = [(37, 6), (5, 9, 12), (3, 4), (64, 24), (2, 3, 5, 4)]


@pytest.mark.parametrize("function", [layer_norm, rms_norm])
@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_of_norms(function: Callable[..., Any], shape: tuple[int, ...]) -> None:
    """Rows that are left over, rows of several axes, more rows than iterations."""
    for dtype in (dtypes.f32, dtypes.bf16):
        graph = build(function, (dtype, shape), (dtype, shape), (dtype, shape[-1:]))
        check(graph, machine=CUTTING)


@pytest.mark.parametrize("machine", [WIDE, CUTTING], ids=["wide", "cutting"])
def test_rows_of_a_symbolic_number(machine: Machine) -> None:
    shape = (Dim.var("s0"), 6)
    check(build(layer_norm, shape, shape, (6,), dims={"s0": 37}), machine=machine)


def test_what_follows_from_the_sums_is_in_the_kernel() -> None:
    """A gradient that is rounded and added to one that there is already."""

    def function(x, g, weight, before):
        gx, slope, bias = layer_norm(x, g, weight)
        return gx, ops.cast(slope, dtype=dtypes.bf16), before - 0.1 * bias

    program = check(build(function, (37, 6), (37, 6), (6,), (6,)), machine=CUTTING)
    assert len(program.steps) == 1


def test_as_many_rows_as_columns_stay_apart() -> None:
    """What is constant along rows cannot be told from what is constant along columns."""
    check(build(layer_norm, (12, 12), (12, 12), (12,)), machine=CUTTING)


def test_a_sum_over_columns_of_other_rows_stays_apart() -> None:
    """It needs the softmax of a row that another iteration computes."""

    def function(x):
        s = cases.softmax(x, 1)
        turned = ops.flip(s, dims=(0,))
        return s, total(turned * x, (0,))

    check(build(function, (9, 12)), machine=CUTTING)


def test_a_row_that_waits_for_the_sums_stays_apart() -> None:
    def function(x):
        s = cases.softmax(x, 1)
        return cases.softmax(s - total(s, (0,), True), 1)

    check(build(function, (9, 12)), machine=CUTTING)


def test_a_sum_of_what_the_rows_give() -> None:
    """A bias's gradient reads what the rows' kernel stores: now it need not."""
    program = check(
        build(lambda x, y: (lambda s: (s, total(s * y, (0,))))(cases.softmax(x, 1)),
              (37, 12), (37, 12)),
        machine=CUTTING,
    )
    kernels = [s.kernel for s in leaves(program.steps) if isinstance(s, Launch)]
    assert len(kernels) == 1
    (rows,) = (s for s in walk.statements(kernels[0].stages[0])
               if isinstance(s, Loop) and s.var == "row")
    assert rows.kind == "serial" and max(w.depth for w in work_of(kernels[0], {})) <= 6
