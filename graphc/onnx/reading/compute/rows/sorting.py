"""Sorted values and their positions."""

from __future__ import annotations

from typing import Any

import numpy as np

from .....frontend import functions as T
from .....frontend.tensor import Tensor
from ..numbers import Numbers
from ..table import Node, operator


@operator("TopK", 1)
def topk_by_attribute(node: Node, x: Tensor) -> Any:
    return _topk(node, x, node.get("k", 1))


@operator("TopK", 10, numbers=(1,))
def topk(node: Node, x: Tensor, k: Numbers) -> Any:
    return _topk(node, x, k.integers()[0])


def _topk(node: Node, x: Tensor, k: Any) -> Any:
    """Equal ones by their positions."""
    dim = node.get("axis", -1)
    values, places = T.sort(x, dim, bool(node.get("largest", 1)), stable=True)
    return values.narrow(dim, 0, k), places.narrow(dim, 0, k)


@operator("Unique", 11)
def unique(node: Node, x: Tensor) -> Any:
    """How many there are depends on values: of a compiled function's recording this is the end."""
    axis = node.get("axis")
    if axis is not None:
        axis %= max(x.dim(), 1)
    array = x.detach().reshape(-1) if axis is None else x.detach()
    array = (array.float() if array.dtype is T.bfloat16 else array).numpy()
    _, first, inverse, counts = np.unique(
        array, return_index=True, return_inverse=True, return_counts=True, axis=axis or 0
    )
    inverse = inverse.reshape(-1)
    order = np.arange(len(first)) if node.get("sorted", 1) else np.argsort(first)
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    flat = x.reshape(-1) if axis is None else x
    made = flat.index_select(axis or 0, T.from_numpy(first[order].astype(np.int64)))
    rest = (first[order], places[inverse], counts[order])
    return (made, *[T.from_numpy(each.astype(np.int64)) for each in rest])
