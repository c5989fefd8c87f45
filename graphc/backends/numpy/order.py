"""How results lie in memory: row-major, or in the order of an operand's dims."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphc.ir.channels import asks_for_last, with_channels_last
from graphc.ir.memory import contiguous
from graphc.ir.op import Op

from .common import Array


def each(out: Any, arrays: Sequence[Array], order: Callable[..., Array]) -> Any:
    """The result, or each of several, in an order."""
    if type(out) is tuple:
        return tuple([order(part, arrays) for part in out])
    return order(out, arrays)


def row_major(out: Array, arrays: Sequence[Array]) -> Array:
    """A result in the order of its dims."""
    return out if out.flags.c_contiguous else contiguous(out)


def channels_kept(op: Op) -> Callable[..., Array]:
    """The order of operators that have Op.keeps_channels."""

    def ordered(out: Array, arrays: Sequence[Array]) -> Array:
        return with_channels_last(out) if asks_for_last(op, arrays, out.ndim) else (
            row_major(out, arrays)
        )

    return ordered


def laid_out(out: Array, arrays: Sequence[Array]) -> Array:
    """A result in the layout of the first operand of its shape, without its gaps.

    Row-major where that one is expanded, or there is none. NumPy goes by the strides of all
    operands together, 0 counting as smallest. Layouts show: in `view`, and in the order of random
    draws.
    """
    for array in arrays:
        if array.shape == out.shape:
            if array.flags.c_contiguous or 0 in array.strides:
                break
            order = sorted(range(out.ndim), key=lambda d: -array.strides[d])
            turned = out.transpose(order)
            if turned.flags.c_contiguous:
                return out
            copied: np.ndarray = contiguous(turned).transpose(np.argsort(order))
            return copied
    return out if out.flags.c_contiguous else contiguous(out)
