"""A handful of operations on the bare core, so that these tests need no function library."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.backends.numpy import TABLE
from graphc.frontend import autograd as _attaches_backward
from graphc.frontend import promote
from graphc.frontend.captured import NumberInput, TracedGraph
from graphc.frontend.dispatch import apply, inplace
from graphc.frontend.tensor import Tensor, from_array
from graphc.ir import interpret, ops

assert _attaches_backward


def tensor(data: Any, requires_grad: bool = False, dtype: Any = np.float32) -> Tensor:
    return from_array(np.array(data, dtype), requires_grad)


def values(t: Tensor | None) -> Any:
    assert t is not None and t._graphc_trace is None
    return t._graphc_array.tolist()


def add(a: Any, b: Any) -> Tensor:
    return promote.binary("add", a, b)


def mul(a: Any, b: Any) -> Tensor:
    return promote.binary("mul", a, b)


def exp(a: Tensor) -> Tensor:
    return promote.unary("exp", a)


def total(a: Tensor) -> Tensor:
    return apply(ops.sum, a, dims=tuple(range(a.ndim)), keepdim=False)


def matmul(a: Tensor, b: Tensor) -> Tensor:
    sides = {"batch_a": (), "batch_b": (), "contract_a": (1,), "contract_b": (0,)}
    return apply(ops.dot_general, a, b, **sides)


def reshape(a: Tensor, *shape: Any) -> Tensor:
    return apply(ops.reshape, a, shape=shape)


def transpose(a: Tensor) -> Tensor:
    return apply(ops.permute, a, dims=(1, 0))


def expand(a: Tensor, *shape: int) -> Tensor:
    return apply(ops.expand, a, shape=shape)


def rows(a: Tensor, start: int, stop: int) -> Tensor:
    """a[start:stop]."""
    rest = tuple(a._graphc_type.shape[1:])
    return apply(
        ops.slice, a, starts=(start, *[0] * len(rest)), stops=(stop, *rest),
        steps=(1,) * (1 + len(rest)),
    )


def row(a: Tensor, i: int) -> Tensor:
    """a[i]."""
    part = rows(a, i, i + 1)
    return reshape(part, *part._graphc_type.shape[1:])


def add_(a: Tensor, b: Any) -> Tensor:
    return inplace(a, add(a, b))


def mul_(a: Tensor, b: Any) -> Tensor:
    return inplace(a, mul(a, b))


def fill_(a: Tensor, value: float) -> Tensor:
    return inplace(a, promote.operand(value, a.dtype), overwrite=True)


def arrays_of(traced: TracedGraph, arguments: list[Any], numbers: dict[Any, Any]) -> list[Any]:
    """The arrays of a traced graph's inputs, as compile.py fetches them at each call."""
    found = []
    for source in traced.inputs:
        if isinstance(source, NumberInput):
            value = source.expression.evaluate(numbers, {})
            found.append(np.asarray(value, source.type.dtype.numpy))
        elif source.kind == "storage":
            found.append(source.tensor._graphc_storage.root.flat())
        elif source.kind == "grad":
            found.append(source.tensor.grad._graphc_array)
        elif source.index >= 0:
            found.append(arguments[source.index]._graphc_array)
        elif source.tensor is not None:
            found.append(source.tensor._graphc_array)
        else:
            found.append(np.ones(source.type.static_shape, source.type.dtype.numpy))
    return found


def evaluate(
    traced: TracedGraph, arguments: list[Any] = (), numbers: dict[Any, Any] | None = None
) -> list[np.ndarray]:
    """Run a traced graph on the NumPy interpreter."""
    arrays = arrays_of(traced, list(arguments), numbers or {})
    return interpret.evaluate(traced.graph, arrays, TABLE)
