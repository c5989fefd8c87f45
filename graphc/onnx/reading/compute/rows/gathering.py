"""Operators that read and write at positions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .....frontend import functions as T
from .....frontend.tensor import Tensor
from ..carried import Carried
from ..numbers import Numbers
from ..table import Node, operator


def wrapped(index: Tensor, size: Any) -> Tensor:
    """Positions from the front; negative ones count from the end."""
    index = index.long()
    return T.where(index < 0, index + size, index)


def _fold_gather(node: Node, x: Numbers, index: Numbers) -> Numbers | None:
    if index.traced:
        return None
    return x.moved(lambda places: np.take(places, index.array(), node.get("axis", 0)))


@operator("Gather", 1, folded=_fold_gather, raw=True)
def gather(node: Node, x: Any, index: Any) -> Any:
    if type(x) is Carried:
        return Carried(gather(node, x.tensor, index), x.kind)
    x = x.tensor(index) if type(x) is Numbers else x
    dim = node.get("axis", 0) % x.dim()
    if type(index) is Numbers and len(index.items) == 1:  # a view
        at = index.integers()[0]
        at = at + x.shape[dim] if at < 0 else at
        found = x.narrow(dim, at, 1)
        shape = (*x.shape[:dim], *index.shape, *x.shape[dim + 1:])
        return found if index.rank == 1 else found.reshape(shape)
    index = index.tensor(x) if type(index) is Numbers else index
    flat = wrapped(index, x.shape[dim]).reshape(-1)
    found = x.index_select(dim, flat)
    if index.dim() == 1:
        return found
    return found.reshape(*x.shape[:dim], *index.shape, *x.shape[dim + 1:])


@operator("GatherElements", 11)
def gather_elements(node: Node, x: Tensor, index: Tensor) -> Any:
    dim = node.get("axis", 0) % x.dim()
    return T.gather(x, dim, wrapped(index, x.shape[dim]))


@operator("GatherND", 11)
def gather_nd(node: Node, x: Tensor, index: Tensor) -> Any:
    """Each last row of `index` is a position in x, behind `batch_dims` common dims."""
    batch = node.get("batch_dims", 0)
    depth = index.shape[-1]
    if not 1 <= depth <= x.dim() - batch or index.dim() <= batch:
        node.refuse(
            f"its positions have {depth} numbers for an input of {x.dim()} dims", "give fewer"
        )
    return x[_positions(x, index.long(), batch, int(depth))]


def _positions(x: Tensor, index: Tensor, batch: int, depth: int) -> tuple[Tensor, ...]:
    rank = index.dim() - 1
    found = []
    for dim in range(batch):
        line = T.arange(x.shape[dim])
        found.append(line.reshape([-1 if i == dim else 1 for i in range(rank)]))
    found += [index.select(-1, i) for i in range(depth)]
    return tuple(found)


_REDUCED = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@operator("Scatter", 9)
@operator("ScatterElements", 11)
def scatter_elements(node: Node, x: Tensor, index: Tensor, updates: Tensor) -> Any:
    dim = node.get("axis", 0) % x.dim()
    index = wrapped(index, x.shape[dim])
    how = node.one_of("reduction", "none", ("none", *_REDUCED))
    if how == "none":
        return T.scatter(x, dim, index, updates)
    return T.scatter_reduce(x, dim, index, updates, _REDUCED[how])


@operator("ScatterND", 11)
def scatter_nd(node: Node, x: Tensor, index: Tensor, updates: Tensor) -> Any:
    how = node.one_of("reduction", "none", ("none", *_REDUCED))
    depth = int(index.shape[-1])
    if not 0 <= depth <= x.dim():
        node.refuse(
            f"its positions have {depth} numbers for an input of {x.dim()} dims", "give fewer"
        )
    if depth == 0:
        return updates.reshape(x.shape)
    places = _positions(x, index.long(), 0, depth)
    if how in ("none", "add"):
        return x.index_put(places, updates, accumulate=how == "add")
    # as one scatter along all dims that positions name
    inner = x.shape[depth:]
    rows = math.prod(x.shape[:depth])
    flat = T.zeros_like(places[0])
    for size, place in zip(x.shape[:depth], places, strict=True):
        flat = flat * size + wrapped(place, size)
    flat = flat.reshape(-1, *[1] * len(inner)).expand(flat.numel(), *inner)
    found = T.scatter_reduce(
        x.reshape(rows, *inner), 0, flat, updates.reshape(-1, *inner), _REDUCED[how]
    )
    return found.reshape(x.shape)


@operator("TensorScatter", 24)
def tensor_scatter(
    node: Node, cache: Tensor, update: Tensor, starts: Tensor | None = None
) -> Any:
    """Rows of a cache, for each sample from its own start on."""
    mode = node.one_of("mode", "linear", ("linear", "circular"))
    dim = node.get("axis", -2) % cache.dim()
    if dim == 0:
        node.refuse("axis is 0, the samples' own", "give another one")
    line = T.arange(update.shape[dim])
    if starts is None:
        starts = T.zeros(cache.shape[0], dtype=T.int64)
    index = starts.long().reshape(-1, 1) + line
    if mode == "circular":
        index = index % cache.shape[dim]
    shape = [1] * cache.dim()
    shape[0], shape[dim] = index.shape[0], index.shape[1]
    return T.scatter(cache, dim, index.reshape(shape).expand(update.shape), update)


@operator("Compress", 9)
def compress(node: Node, x: Tensor, taken: Tensor) -> Any:
    axis = node.get("axis")
    if axis is None:
        x, axis = x.reshape(-1), 0
    index = T.nonzero(taken).reshape(-1)
    return x.index_select(axis % x.dim(), index)


def _fold_nonzero(node: Node, x: Numbers) -> Numbers | None:
    if x.traced:
        return None
    found = np.array(np.nonzero(x.array()), np.int64)
    return Numbers.of(found) if x.rank else None


@operator("NonZero", 9, folded=_fold_nonzero)
def nonzero(node: Node, x: Tensor) -> Any:
    return T.nonzero(x.reshape(1) if x.dim() == 0 else x).t()[: max(x.dim(), 0) or None]


@operator("OneHot", 9, numbers=(1,), settings=(2,))
def one_hot(node: Node, index: Tensor, depth: Numbers, values: Tensor) -> Any:
    """values[1] at the index, values[0] elsewhere; an index out of range is nowhere."""
    count = depth.integers()[0]
    axis = node.get("axis", -1)
    axis += index.dim() + 1 if axis < 0 else 0
    if index.dtype.is_floating_point:
        index = index.trunc()
    line = T.arange(count).reshape([-1] + [1] * (index.dim() - axis))
    at = wrapped(index, count).unsqueeze(axis)
    return T.where(at == line, values[1], values[0])


@operator("ReverseSequence", 10)
def reverse_sequence(node: Node, x: Tensor, lengths: Tensor) -> Any:
    """The first `lengths` steps of each sample the other way round."""
    time, batch = node.get("time_axis", 0) % x.dim(), node.get("batch_axis", 1) % x.dim()
    rows = x.movedim((batch, time), (0, 1))
    line = T.arange(rows.shape[1]).unsqueeze(0)
    ends = lengths.long().unsqueeze(1)
    index = T.where(line < ends, ends - 1 - line, line)
    index = index.reshape(*index.shape, *[1] * (rows.dim() - 2)).expand(rows.shape)
    return T.gather(rows, 1, index).movedim((0, 1), (batch, time))
