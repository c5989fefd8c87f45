"""Compiled code of the products of sparse matrices. Rows are gathered some at a time: where a
position may be outside, it is looked up in front of what is written."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import config
from ..engine.eager_form import Form
from ..engine.eager_kernels import Sized, code_for, pattern_of, sized
from ..ir import ops
from ..ir.dtypes import from_numpy
from ..ir.graph import Builder, Expr, Graph
from ..ir.types import TensorType

# numbers of rows that are gathered at a time; each time the result is gone through, too
_GATHERED = 1 << 24


def product(
    values: np.ndarray, dense: np.ndarray, rows: np.ndarray, columns: np.ndarray, size: int
) -> np.ndarray | None:
    """zeros [size, width], to whose `rows` values * dense[columns] is added; None: no compiler."""
    width = dense.shape[1]
    result = np.zeros((size, width), dense.dtype)
    names = [("m", "w"), ("n",), ("k", "w"), ("n",), ("n",)]
    step = max(1, _GATHERED // max(width, 1))
    for low in range(0, values.size, step):
        part = slice(low, low + step)
        arrays = [result, values[part], dense, rows[part], columns[part]]
        if _run("product", _product, arrays, names, {0: 0}) is None:
            return None
    return result


def sampled(
    left: np.ndarray, right: np.ndarray, rows: np.ndarray, columns: np.ndarray
) -> np.ndarray | None:
    """The sums along rows of left[rows] * right[columns]; None: there is no compiler."""
    found = _run(
        "sampled", _sampled, [left, right, rows, columns], [("m", "w"), ("k", "w"), ("n",), ("n",)]
    )
    return None if found is None else found[0]


def _product(builder: Builder, inputs: list[Any]) -> Any:
    result, values, dense, rows, columns = inputs
    gathered = ops.index(dense, columns, dim=0)
    scaled = gathered * ops.reshape(values, shape=(*values.shape, 1))
    return ops.index_put(result, scaled, rows, dim=0, accumulate=True)


def _sampled(builder: Builder, inputs: list[Any]) -> Any:
    left, right, rows, columns = inputs
    products = ops.index(left, rows, dim=0) * ops.index(right, columns, dim=0)
    return ops.sum(products, dims=(1,), keepdim=False)


def _run(
    name: str, make: Any, arrays: list[np.ndarray], names: list[tuple[str, ...]],
    mutated: dict[int, int] | None = None,
) -> list[np.ndarray] | None:
    if config.current().eager_kernels == "0" or arrays[0].dtype.kind not in "fiu":
        return None
    types = [TensorType(from_numpy(a.dtype), a.shape) for a in arrays]
    form = Form(
        tuple([tuple(zip(n, a.shape, strict=True)) for n, a in zip(names, arrays, strict=True)]), {}
    )

    def graph() -> Graph:
        env, given, _ = sized(form, types)
        builder = Builder(env)
        inputs = [Expr(builder, builder.input(t)) for t in given]
        return builder.build((make(builder, inputs).node,), f"sparse_{name}")

    key = f"sparse {name}", pattern_of(form.inputs), arrays[0].dtype
    engine = code_for(key, form, graph, mutated)
    return None if engine is None else Sized(engine, form).run(arrays)
