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
        return tuple(constant(p.astype(np.int64)) for p in np.nonzero(seen))
    if array.ndim == 0:
        return constant(np.zeros((int(bool(array)), 0), np.int64))
    return constant(np.ascontiguousarray(np.stack(np.nonzero(array), 1)).astype(np.int64))


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
