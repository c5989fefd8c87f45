"""Where a tensor is not 0: results whose size depends on values, so eager only."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dispatch import constant
from ..errors import located
from ..placement import beside
from ..tensor import Tensor, concrete
from .arguments import with_out

_CURE = "its result's size depends on values: call it outside the compiled function"


@beside
@with_out
def nonzero(input: Tensor, *, as_tuple: bool = False) -> Any:
    """The positions of what is not 0: [count, rank], or a tuple of vectors."""
    array = concrete(input, "nonzero()", _CURE)
    if as_tuple:
        seen = array.reshape(1) if array.ndim == 0 else array
        return tuple(constant(p, fresh=True) for p in places_of(seen))
    if array.ndim == 0:
        return constant(np.zeros((int(bool(array)), 0), np.int64))
    places = array.nonzero() if _is_short(array) else places_of(array)
    found = np.empty((len(places), len(places[0])), np.int64)
    for line, positions in zip(found, places, strict=True):
        line[...] = positions
    return constant(found.T, fresh=True)  # a column's elements lie side by side, as in torch


_SHORT = 1024
_PLAIN = frozenset("?bhilqBfd")


def _is_short(array: np.ndarray) -> bool:
    """Whether NumPy finds the positions in less time than it takes to ask for flat ones."""
    return array.size < _SHORT and array.dtype.char in _PLAIN


def places_of(array: np.ndarray) -> list[np.ndarray]:
    """Where an array of some dims is not 0, by dim. NumPy finds flat positions, of bools, several
    times as fast."""
    if _is_short(array):
        return [places.copy() for places in array.nonzero()]
    flat = np.flatnonzero(array if array.dtype == np.bool_ else array != 0)
    if array.ndim == 1:
        return [flat]
    if array.size < 1 << 32:  # a short word is divided faster
        flat = flat.astype(np.uint32)
    places = []
    for size in reversed(array.shape[1:]):
        above = flat // flat.dtype.type(max(size, 1))
        places.append((flat - above * flat.dtype.type(size)).astype(np.int64))
        flat = above
    return [flat.astype(np.int64), *reversed(places)]


@beside
def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """The first `size` positions of what is not 0, [size, rank]; missing ones are filled."""
    if size < 0:
        raise RuntimeError(located("nonzero_static: 'size' must be an non-negative integer"))
    array = concrete(input, "nonzero_static()", _CURE)
    found = np.argwhere(array)[:size].astype(np.int64)
    missing = np.full((size - len(found), array.ndim), int(fill_value), np.int64)
    return constant(np.concatenate([found, missing]))


def argwhere(input: Tensor) -> Tensor:
    """The positions of what is not 0, [count, rank]."""
    result: Tensor = nonzero(input)
    return result
