"""cat() and stack() of tensors of one shape that have few numbers, outside of traces: one call of
NumPy's and one node of history, however many tensors there are.

An episode's results are joined, and each episode is of another length: there is nothing to be known
from the one before.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import numpy as np

from graphc.ir import ops
from graphc.ir.dim import DimEnv
from graphc.ir.dtypes import from_numpy
from graphc.ir.numpy_calls import concatenate
from graphc.ir.types import TensorType

from ..anomaly import Anomaly
from ..context import local
from ..eager import _wrap
from ..history import edge, requires_grad
from ..nodes import World
from ..tensor import Parameter, Tensor
from ..values import Eager
from ..write_nodes import ViewNode

F = TypeVar("F", bound=Callable[..., Any])
_MOST = 1 << 14  # numbers
_RANKS = 3  # of the result; from 4 on its memory may be in another order
_TENSORS = frozenset({Tensor, Parameter})


class Joined(ViewNode):
    """The history of what was joined along `dim`, from `size` places of it each."""

    dim: int
    size: int
    shape: tuple[int, ...]  # of each that was joined

    def gradients(self, grads: list[Any], needs: Sequence[bool], world: World) -> Sequence[Any]:
        g = grads[0]
        if type(g) is not np.ndarray:
            return super().gradients(grads, needs, world)
        before, size, shape = (slice(None),) * self.dim, self.size, self.shape
        return [
            g[(*before, slice(i * size, (i + 1) * size))].reshape(shape) if need else None
            for i, need in enumerate(needs)
        ]

    def rule(self, g: Any, needs: Sequence[bool], env: DimEnv) -> Sequence[Any]:
        dim, size, sizes = self.dim, self.size, self.out_types[0].shape
        found: list[Any] = []
        for i, need in enumerate(needs):
            part = None
            if need:
                starts = tuple([i * size if d == dim else 0 for d in range(len(sizes))])
                stops = tuple([(i + 1) * size if d == dim else n for d, n in enumerate(sizes)])
                part = ops.slice(g, starts=starts, stops=stops, steps=(1,) * len(sizes))
                if self.shape != part.type.shape:
                    part = ops.reshape(part, shape=self.shape)
            found.append(part)
        return found


Joined.root = Joined


class CatBackward0(Joined):
    """torch's name."""


class StackBackward0(Joined):
    """torch's name."""


def few_joined(kind: type[Joined]) -> Callable[[F], F]:
    """cat() or stack(), those calls that are as this file says."""
    new = kind is StackBackward0

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if (
                local.trace is not None or local.counted is not None or Eager.prepare is None
                or Eager.elsewhere is not None or local.autocast is not None or Anomaly.enabled
                or not args or type(args[0]) not in (list, tuple)
            ):
                return function(*args, **kwargs)
            dim: Any = 0
            if len(args) == 2 and not kwargs:
                dim = args[1]
            elif len(args) == 1 and len(kwargs) == 1:
                dim = kwargs.get("dim")
            elif len(args) != 1 or kwargs:
                dim = None
            found = _joined(kind, args[0], dim, new) if type(dim) is int else None
            return function(*args, **kwargs) if found is None else found

        return cast(F, wrapper)

    return decorate


# by where tensors of a shape are joined: what does it
_known: dict[Any, Callable[..., Any]] = {}
_LIMIT = 4096


def _at_once(
    arrays: list[np.ndarray], shape: tuple[int, ...], dtype: np.dtype, dim: int, new: bool
) -> np.ndarray | None:
    """Arrays of one shape joined by one call of native code; None: there is none for such."""
    key = shape, dtype.itemsize, dim, new
    found = _known.get(key)
    if found is None:
        width = math.prod(shape[dim:])
        if not width:
            return None
        found = Eager.join(math.prod(shape[:dim]), width, dtype.itemsize)
        if found is None:
            return None
        if len(_known) >= _LIMIT:
            _known.clear()
        _known[key] = found
    count = len(arrays)
    sizes = (*shape[:dim], count, *shape[dim:]) if new else (
        *shape[:dim], shape[dim] * count, *shape[dim + 1 :]
    )
    joined: np.ndarray | None = found(*arrays, np.empty(sizes, dtype))
    return joined


def _joined(kind: type[Joined], tensors: Sequence[Any], dim: int, new: bool) -> Tensor | None:
    """The result; None: not of these."""
    if not tensors or type(tensors[0]) not in _TENSORS or tensors[0]._graphc_trace is not None:
        return None
    first = tensors[0]._graphc_array
    shape, dtype = first.shape, first.dtype
    rank = len(shape) + new
    if not 0 < rank <= _RANKS or not -rank <= dim < rank or shape == (0,) or (
        first.size * len(tensors) > _MOST
    ):
        return None
    recorded, arrays = False, []
    for t in tensors:
        if type(t) not in _TENSORS or t._graphc_trace is not None:
            return None
        array = t._graphc_array
        if array.shape != shape or array.dtype != dtype:
            return None
        arrays.append(array)
        recorded = recorded or t._graphc_node is not None or t._graphc_requires_grad or (
            t._base is not None
        )
    dim %= rank
    joined = _at_once(arrays, shape, dtype, dim, new)
    if joined is None:
        if new:
            part = (*shape[:dim], 1, *shape[dim:])
            arrays = [array.reshape(part) for array in arrays]
        joined = concatenate(arrays, dim)
        if not joined.flags.c_contiguous:
            joined = np.ascontiguousarray(joined)
    result = _wrap(joined)
    if recorded and local.grad:
        type_ = TensorType(from_numpy(dtype), shape)
        edges = tuple([edge(t, type_) if requires_grad(t) else None for t in tensors])
        if any(place is not None for place in edges):
            node = kind(edges, (TensorType(type_.dtype, joined.shape),))
            node.dim, node.size, node.shape = dim, 1 if new else shape[dim], shape
            result._graphc_node = node
    return result
