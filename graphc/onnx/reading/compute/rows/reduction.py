"""Reductions."""

from __future__ import annotations

import math
from typing import Any

from .....frontend import functions as T
from .....frontend.tensor import Tensor
from ..numbers import Numbers
from ..table import Node, operator
from .movement import dims_of


def _sum(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    return T.sum(x, dims, keepdim=keep, dtype=x.dtype)


def _prod(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    for dim in sorted(dims, reverse=True):
        x = T.prod(x, dim, keepdim=keep, dtype=x.dtype)
    return x


def _mean(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    if x.dtype.is_floating_point:
        return T.mean(x, dims, keepdim=keep)
    count = math.prod(x.shape[dim] for dim in dims)
    # of 64 bits, since a sum may be more than the dtype holds where its mean is not
    return T.div(_sum(x.long(), dims, keep), count, rounding_mode="trunc").to(x.dtype)


def _largest(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    return _extreme(x, dims, keep, True)


def _smallest(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    return _extreme(x, dims, keep, False)


def _extreme(x: Tensor, dims: list[int], keep: bool, largest: bool) -> Tensor:
    if x.dtype is T.bool:
        return (T.any if largest else T.all)(x, dims, keepdim=keep)
    if any(x.shape[dim] == 0 for dim in dims):  # the least element of the type
        info = T.finfo(x.dtype) if x.dtype.is_floating_point else T.iinfo(x.dtype)
        end: Any = info.min if largest else info.max
        if x.dtype.is_floating_point:
            end = -math.inf if largest else math.inf
        return T.full(_sum(x, dims, keep).shape, end, dtype=x.dtype)
    return (T.amax if largest else T.amin)(x, dims, keepdim=keep)


def _log_sum_exp(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    wide = x if x.dtype.is_floating_point else x.float()
    return T.logsumexp(wide, dims, keepdim=keep)


def _log_sum(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    return T.log(_sum(x, dims, keep))


def _l1(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    return _sum(x.abs(), dims, keep)


def _l2(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    wide = x if x.dtype.is_floating_point else x.double()
    return T.sqrt(_sum(wide * wide, dims, keep)).to(x.dtype)


def _squares(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    return _sum(x * x, dims, keep)


_REDUCTIONS = {
    "ReduceSum": _sum, "ReduceProd": _prod, "ReduceMean": _mean, "ReduceMax": _largest,
    "ReduceMin": _smallest, "ReduceLogSumExp": _log_sum_exp, "ReduceLogSum": _log_sum,
    "ReduceL1": _l1, "ReduceL2": _l2, "ReduceSumSquare": _squares,
}


def _reduced(node: Node, function: Any, x: Tensor, axes: Any) -> Any:
    keep = bool(node.get("keepdims", 1))
    if axes is None or not len(axes):
        if node.get("noop_with_empty_axes", 0):
            return _of_single(function, x)
        axes = range(x.dim())
    dims = dims_of(axes, x.dim())
    if any(not 0 <= dim < x.dim() for dim in dims):
        node.refuse(f"its axes are {list(axes)} for an input of {x.dim()} dims", "give others")
    return function(x, dims, keep) if dims else _of_single(function, x)


def _of_single(function: Any, x: Tensor) -> Tensor:
    """Each element reduced by itself: its absolute value, its square, ..."""
    return function(x.unsqueeze(-1), [x.dim()], False)


def _rows(name: str, function: Any) -> None:
    fold: Any = {
        "ReduceProd": math.prod, "ReduceSum": sum, "ReduceMax": max, "ReduceMin": min
    }.get(name)

    def folded(node: Node, x: Numbers, axes: Numbers | None = None) -> Numbers | None:
        if fold is None or x.rank != 1 or x.kind.kind not in "iu" or not x.items:
            return None
        if axes is None and node.get("noop_with_empty_axes", 0):
            return None
        return Numbers([fold(x.items)], (1,) if node.get("keepdims", 1) else (), x.kind)

    def by_attribute(node: Node, x: Tensor) -> Any:
        return _reduced(node, function, x, node.get("axes"))

    def by_input(node: Node, x: Tensor, axes: Numbers | None = None) -> Any:
        return _reduced(node, function, x, None if axes is None else axes.integers())

    operator(name, 1, folded=folded)(by_attribute)
    operator(name, 13 if name == "ReduceSum" else 18, numbers=(1,), folded=folded)(by_input)


for _name, _function in _REDUCTIONS.items():
    _rows(_name, _function)


def _position(node: Node, x: Tensor, function: Any) -> Any:
    dim, keep = node.get("axis", 0), bool(node.get("keepdims", 1))
    if not node.get("select_last_index", 0):
        return function(x, dim, keepdim=keep)
    return x.shape[dim] - 1 - function(x.flip(dim), dim, keepdim=keep)


@operator("ArgMax", 1)
def argmax(node: Node, x: Tensor) -> Any:
    return _position(node, x, T.argmax)


@operator("ArgMin", 1)
def argmin(node: Node, x: Tensor) -> Any:
    return _position(node, x, T.argmin)


def _cumulative(node: Node, x: Tensor, axis: Numbers, function: Any, first: int) -> Any:
    dim = axis.integers()[0] % max(x.dim(), 1)
    reverse = node.get("reverse", 0)
    x = x.flip(dim) if reverse else x
    if node.get("exclusive", 0):
        length = x.shape[dim]
        start = T.full_like(x.narrow(dim, 0, 1), first)
        x = T.cat([start, x.narrow(dim, 0, length - 1)], dim)
    found = function(x, dim, dtype=x.dtype)
    return found.flip(dim) if reverse else found


@operator("CumSum", 11, numbers=(1,))
def cumsum(node: Node, x: Tensor, axis: Numbers) -> Any:
    return _cumulative(node, x, axis, T.cumsum, 0)


@operator("CumProd", 26, numbers=(1,))
def cumprod(node: Node, x: Tensor, axis: Numbers) -> Any:
    return _cumulative(node, x, axis, T.cumprod, 1)


@operator("GlobalAveragePool", 1)
def global_average(node: Node, x: Tensor) -> Any:
    return T.mean(x, list(range(2, x.dim())), keepdim=True)


@operator("GlobalMaxPool", 1)
def global_max(node: Node, x: Tensor) -> Any:
    return T.amax(x, list(range(2, x.dim())), keepdim=True)


@operator("GlobalLpPool", 2)
def global_power(node: Node, x: Tensor) -> Any:
    p = node.get("p", 2)
    return (x.abs() ** p).sum(list(range(2, x.dim())), keepdim=True) ** (1.0 / p)
