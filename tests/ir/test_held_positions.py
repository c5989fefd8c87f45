"""Positions that must be in range are held there by a clamp: no check, and code for 32 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc
import graphc.nn.functional as F
from graphc.ir import dtypes, ops
from graphc.ir.graph import Expr
from graphc.ir.passes.fuse.positions import held_positions
from graphc.ir.passes.lower.limits import limits

from .kernel_cases import build
from .test_limits import number

_I32 = (dtypes.i32, (4,))


def test_positions_of_a_grid_are_computed_once_for_all_channels() -> None:
    x, grid = graphc.randn(2, 8, 9, 9), graphc.rand(2, 30, 30, 2) * 2 - 1
    text = graphc.explain(lambda x, g: F.grid_sample(x, g, align_corners=False), x, grid)
    last = text.kernels_text.rpartition("kernel ")[2]
    assert "check" not in last and last.count("clamp.i32") == 4
    assert "floor" not in last and last.count("mul.f32") == 4


def _wrapping(x: Any) -> Any:
    low, high = number(x, 0), number(x, 1 << 20)
    held = ops.clamp(x, low, high)
    return ops.mul(held, number(x, 1 << 12))


@pytest.mark.parametrize(("function", "want"), [
    (lambda x: ops.clamp(x, number(x, 2), number(x, 5)), (2, 5)),
    (lambda x: ops.cast(ops.clamp(x, number(x, 2), number(x, 5)), dtype=dtypes.i64), (2, 5)),
    (lambda x: ops.cast(ops.clamp(x, number(x, 2), number(x, 300)), dtype=dtypes.u8),
     (None, None)),
    (lambda x: ops.clamp(x, number(x, 2), number(x, 5)) * number(x, -3), (-15, -6)),
    (lambda x: ops.clamp(x, number(x, 2), number(x, 5)) + number(x, 7), (9, 12)),
    (_wrapping, (None, None)),
    (lambda x: ops.minimum(x, number(x, 5)), (None, 5)),
    (lambda x: ops.maximum(x, number(x, 5)), (5, None)),
    (lambda x: x + number(x, 1), (None, None)),
], ids=range(9))
def test_what_is_known(function: Any, want: Any) -> None:
    assert limits(build(function, _I32).outputs[0]) == want


def _lookup(places: Any, x: Any) -> Any:
    held = ops.clamp(places, number(places, 0), number(places, 2))
    return ops.gather(x, ops.cast(held + number(places, 1), dtype=dtypes.i64), dim=0)


@pytest.mark.parametrize(("size", "changed"), [(4, True), (3, False)])
def test_only_what_is_in_range_is_held(size: int, changed: bool) -> None:
    graph = build(_lookup, _I32, (dtypes.f32, (size,)))
    assert (held_positions(graph) is not graph) is changed


def test_a_position_out_of_range_is_still_an_error() -> None:
    def taken(x: Any, places: Any) -> Any:
        return x.gather(0, places.clamp(0, 3) + 1)

    compiled = graphc.compile(taken)
    x = graphc.arange(4.0)
    np.testing.assert_array_equal(compiled(x, graphc.tensor([-9, 2])).numpy(), [1, 3])
    with pytest.raises((IndexError, RuntimeError)):
        compiled(x, graphc.tensor([3, 0]))


def test_many_constant_positions() -> None:
    places = np.random.default_rng(0).integers(0, 50, 3000)
    x = graphc.arange(50.0)
    fixed = graphc.tensor(places)
    compiled = graphc.compile(lambda x: x[fixed] * 2)
    np.testing.assert_array_equal(compiled(x).numpy(), places * 2.0)


def test_nothing_else_is_wrapped() -> None:
    graph = build(lambda x: Expr(x.builder, x.node) + 1, (dtypes.i64, (4,)))
    assert held_positions(graph) is graph


@pytest.mark.parametrize("added", [
    lambda x, at, y: x.index_add(0, at.clamp(0, 6), y),
    lambda x, at, y: x.scatter_add(0, at.clamp(0, 6), y),
    lambda x, at, y: graphc.index_put(x, (at.clamp(0, 6),), y, accumulate=True),
], ids=["index_add", "scatter_add", "index_put"])
def test_writes_at_positions_in_range_ask_nothing(added: Any) -> None:
    """A check for each of 20,000 positions took a third of the time."""
    x, at, y = graphc.zeros(7), graphc.tensor([-3, 2, 9, 6, 2]), graphc.arange(5.0)
    assert "check" not in graphc.explain(added, x, at, y).kernels_text
    want = np.zeros(7, np.float32)
    np.add.at(want, [0, 2, 6, 6, 2], np.arange(5, dtype=np.float32))
    np.testing.assert_array_equal(graphc.compile(added)(x, at, y).numpy(), want)
