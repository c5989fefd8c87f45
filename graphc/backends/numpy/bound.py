"""Functions of the table with their attributes bound, where that saves work at each call; not for
half precision. They may give NumPy's scalars."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphc.ir.types import TensorType

from .common import Function

Types = Sequence[TensorType]


def _reduction(ufunc: np.ufunc) -> Callable[..., Function]:
    def make(types: Types, *, dims: Sequence[int], keepdim: bool) -> Function:
        reduce, axes = ufunc.reduce, tuple(dims)
        axis: Any = axes[0] if len(axes) == 1 else axes
        if types[0].dtype.differentiable and not keepdim:
            return lambda x: reduce(x, axis)  # of its own dtype
        dtype = types[0].dtype.numpy
        return lambda x: reduce(x, axis, dtype, None, keepdim)

    return make


TABLE: dict[str, Callable[..., Function]] = {
    "sum": _reduction(np.add), "prod": _reduction(np.multiply),
    "any": _reduction(np.logical_or), "all": _reduction(np.logical_and),
}
