"""The oracle: what rounding alone may do to a result, and what it may not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphc.doubt.evaluate import Evaluator
from graphc.doubt.oracle import Oracle
from graphc.ir import dtypes, ops
from graphc.ir.graph import Builder, Expr, Graph
from graphc.ir.types import TensorType

COUNT = 1601


def graph_of(name: str) -> Graph:
    builder = Builder()

    def value(dtype: Any, *shape: int) -> Expr:
        return Expr(builder, builder.input(TensorType(dtype, shape)))

    x, index = value(dtypes.f64, 1), value(dtypes.i64, COUNT)
    if name == "index_put":
        source = value(dtypes.f64)
        made = ops.index_put(x, source, index, dim=0, accumulate=True)
    else:
        source = value(dtypes.f64, COUNT)
        made = ops.scatter(x, index, source, dim=0, reduce="add")
    return builder.build((made.node,), name)


@pytest.mark.parametrize("name", ["index_put", "scatter"])
def test_terms_that_are_added_one_after_another(name: str) -> None:
    """Each of the sums is rounded, where NumPy may add them up in another order."""
    term, start = -0.4271533, np.array([0.85008588])
    source = np.array(term) if name == "index_put" else np.full(COUNT, term)
    places = -(np.arange(COUNT) % 2) if name == "index_put" else np.zeros(COUNT, np.int64)
    oracle = Oracle(graph_of(name), [start, places, source], {})
    total = start.copy()
    for _ in range(COUNT):
        total += term
    assert oracle.compare([total]) == ""
    assert oracle.compare([total * (1 + 3e-12)]) != ""
    assert oracle.compare([total - term]) != ""


def test_what_stands_for_a_number_that_is_not_there() -> None:
    builder = Builder()
    x, place = (
        Expr(builder, builder.input(TensorType(dtype, shape)))
        for dtype, shape in ((dtypes.f64, (2,)), (dtypes.i64, ()))
    )
    graph = builder.build((ops.index(x, place, dim=0).node,), "outside")
    for at, found in ((1, 4.0), (9, 7.0)):
        (result,) = Evaluator({}, excuse=7).outputs(graph, [np.array([3.0, 4.0]), np.array(at)])
        assert result == found


def test_a_softmax_of_a_long_row() -> None:
    """Its total is a sum in eight lanes, one after another, where NumPy adds up in pairs."""
    builder = Builder()
    x = Expr(builder, builder.input(TensorType(dtypes.f32, (200_000,))))
    graph = builder.build((ops.softmax(x, dim=0).node,), "softmax")
    row = (np.random.default_rng(3).random(200_000) * 13 - 4).astype(np.float32)
    powers = np.exp(row - row.max()).reshape(-1, 8)
    total = np.zeros(8, np.float32)
    for each in powers:
        total += each
    oracle = Oracle(graph, [row], {})
    found = powers.reshape(-1) / total.sum()
    assert oracle.compare([found]) == ""
    assert oracle.compare([found * np.float32(1.001)]) != ""
