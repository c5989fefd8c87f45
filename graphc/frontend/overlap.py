"""Operands that share memory with what an operation writes to.

torch refuses those that share a part of it, or all of it in another order, where it can say so at
once: where both tensors fill a stretch of memory without gaps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from graphc.ir.dim import DimEnv, is_static

from .errors import located
from .functionalize import dense_order
from .storage import address, strides_of
from .tensor import Tensor, current

_STATIC = DimEnv()


class _Region(NamedTuple):
    """Memory of a tensor, from its first element to behind its last, in bytes."""

    memory: Any  # 0: addresses; or the traced storage in which these are places
    low: int
    high: int
    strides: tuple[int, ...]


def check_apart(target: Tensor, operand: Tensor) -> None:
    """Raise RuntimeError where an operand shares memory with `target` otherwise than as a whole."""
    a, b = current(target), current(operand)
    if a is b or a._type.elements == 0 or b._type.elements == 0:
        return
    if a._storage.root is not b._storage.root and (a._trace is not None or b._trace is not None):
        return
    one, other = _region(a), _region(b)
    if one is None or other is None or one.memory is not other.memory:
        return
    if one.low >= other.high or other.low >= one.high:
        return
    if (one.low, one.high, one.strides) != (other.low, other.high, other.strides):
        raise RuntimeError(located(
            "unsupported operation: some elements of the input tensor and the written-to tensor "
            "refer to a single memory location. Please clone() the tensor before performing the "
            "operation."
        ))


def _region(tensor: Tensor) -> _Region | None:
    """Where a tensor is; None if it has gaps, or sizes that are not known."""
    shape, size = tensor._type.shape, tensor._type.dtype.numpy.itemsize
    count: Any = tensor._type.elements
    if tensor._trace is None:
        memory: Any = 0
        strides, low = strides_of(tensor._array), address(tensor._array)
    else:
        state = tensor._traced
        found: Any = (*shape, *state.strides, state.offset)
        if not is_static(found):
            return None
        memory, strides, low = tensor._storage, found[len(shape) : -1], found[-1] * size
    if dense_order(shape, strides, _STATIC) is None:
        return None
    return _Region(memory, low, low + count * size, strides)
