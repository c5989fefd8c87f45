"""Positions of which it is known that they are not negative are not counted from the end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc
from graphc.ir import dtypes, op, ops
from graphc.ir.graph import Expr
from graphc.ir.passes.lower.limits import limits

from .kernel_cases import build


def test_an_index_that_is_not_negative_is_asked_once() -> None:
    def taken(x: Any, places: Any) -> Any:
        return x.index_select(1, places)

    x = graphc.arange(12.0).reshape(3, 4)
    text = graphc.explain(taken, x, graphc.tensor([1, 3])).kernels_text
    assert " ge." not in text and "add." not in text
    compiled = graphc.compile(taken)
    got = compiled(x, graphc.tensor([3, 0]))
    np.testing.assert_array_equal(got.numpy(), x.numpy()[:, [3, 0]])
    for places in ([0, -1], [4, 0]):
        with pytest.raises((IndexError, RuntimeError)):
            compiled(x, graphc.tensor(places))


@pytest.mark.parametrize(("function", "want"), [
    (lambda x: ops.maximum(x, x * 0 + 3), None),
    (lambda x: ops.maximum(x, number(x, 3)), 3),
    (lambda x: ops.minimum(x, number(x, 3)), None),
    (lambda x: ops.clamp(x, number(x, 2), number(x, -5)), -5),
    (lambda x: ops.where(ops.lt(x, number(x, 0)), number(x, 7), x), 0),
    (lambda x: ops.where(ops.le(x, number(x, 0)), number(x, 7), x), None),
    (lambda x: ops.where(ops.lt(x, number(x, 0)), x, number(x, 7)), None),
], ids=range(7))
def test_what_is_known(function: Any, want: int | None) -> None:
    graph = build(function, (dtypes.i64, (4,)))
    assert limits(graph.outputs[0])[0] == want


def number(x: Any, value: int) -> Any:
    full = x.builder.emit(op.get("full"), shape=(), value=value, dtype=x.dtype)
    return Expr(x.builder, full)


@pytest.mark.parametrize(("dtype", "want"), [(dtypes.i8, None), (dtypes.i32, 0), (dtypes.i64, 0)])
def test_what_counts_up_in_few_bits_may_wrap_around(dtype: Any, want: int | None) -> None:
    def counted(x: Any) -> Any:
        return Expr(x.builder, x.builder.emit(op.get("iota"), shape=(200,), dim=0, dtype=dtype))

    graph = build(counted, (dtypes.i64, (4,)))
    assert limits(graph.outputs[0])[0] == want
