"""How x[index] lies in memory where x is not row-major: its dimensions are in the order in which
torch's iterator over x and the positions has them, that of their strides. The positions' own, along
which x does not move, stay where they are."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from .context import local
from .functionalize import TracedState
from .storage import contiguous_strides, strides_of
from .tensor import Tensor


def as_indexed(result: Tensor, x: Tensor, dim: int, count: int) -> Tensor:
    """`result`, which has just been made of x by positions in `count` dims from `dim` on."""
    trace = result._graphc_trace
    if trace is None:
        array = x._graphc_array
        if array.ndim < 3 or type(array) is not np.ndarray or array.flags.c_contiguous:
            return result
        if local.counted is not None:
            local.counted.looked()
        found = result._graphc_array
        order = _order(array.ndim, strides_of(array), found.shape, dim, count)
        if order is not None and result._base is None:
            laid = np.empty([found.shape[d] for d in order], found.dtype)
            back = laid.transpose(sorted(range(len(order)), key=order.__getitem__))
            back[...] = found
            result._graphc_array, result._graphc_storage.array = back, back
        return result
    state = x._graphc_traced if x._graphc_trace is trace else trace.shadow(x)._graphc_traced
    made = result._graphc_traced
    if len(state.type.shape) < 3 or state.is_contiguous() or made.path:
        return result
    shape = made.type.shape
    hints = tuple([trace.env.hint(s) for s in state.strides])
    sizes = tuple([trace.env.hint(s) for s in shape])
    order = _order(len(hints), hints, sizes, dim, count)
    if order is not None:
        dense = contiguous_strides(tuple([shape[d] for d in order]))
        strides = tuple([dense[order.index(d)] for d in range(len(shape))])
        result._graphc_traced = TracedState(made.type, made.value, made.stamp, trace, (), strides)
        result._graphc_storage.layout = strides
    return result


@functools.lru_cache(maxsize=256)
def _order(
    ndim: int, strides: Sequence[int], shape: Sequence[int], dim: int, count: int
) -> tuple[int, ...] | None:
    """The result's dims, outermost first; None: as they are."""
    several = len(shape) - (ndim - count)  # dims of the positions
    steps = [*strides[:dim], *[0] * several, *strides[dim + count:]]
    order = list(reversed(range(len(shape))))  # innermost first
    for i in range(1, len(order)):
        at = i
        for before in reversed(range(i)):
            a, b = order[before], order[at]
            if not steps[a] or not steps[b]:
                continue
            if steps[a] < steps[b]:
                break
            if steps[a] > steps[b] or shape[a] > shape[b]:
                order[before], order[at] = b, a
                at = before
    found = tuple(reversed(order))
    return None if found == tuple(range(len(shape))) or 0 in shape else found
