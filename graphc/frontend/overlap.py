"""Operands that share memory with what an operation writes to.

torch refuses those that share a part of it, or all of it in another order, where it can say so at
once: where both tensors fill a stretch of memory without gaps.
"""

from __future__ import annotations

from typing import Any

from graphc.ir.dim import DimEnv, is_static
from graphc.ir.memory import may_share
from graphc.ir.named import NamedTuple
from graphc.ir.types import TensorType

from .errors import located
from .functionalize import dense_order
from .layouts import NotDense
from .storage import address, strides_of
from .tensor import Tensor, current
from .views import view_geometry

_STATIC = DimEnv()
_SHARED = (
    "unsupported operation: some elements of the input tensor and the written-to tensor refer to a "
    "single memory location. Please clone() the tensor before performing the operation."
)


class _Region(NamedTuple):
    """Memory of a tensor, from its first element to behind its last, in bytes."""

    memory: Any  # where the storage begins; traced: the storage, in which these are places
    low: int
    high: int
    strides: tuple[int, ...]


def check_apart(target: Tensor, operand: Tensor, whole: bool = True) -> None:
    """Raise RuntimeError where an operand shares memory with `target`. `whole`: it may share all
    of it, element by element."""
    a, b = current(target), current(operand)
    if (a is b and whole) or a._graphc_type.elements == 0 or b._graphc_type.elements == 0:
        return
    if a._graphc_storage.root is not b._graphc_storage.root and (_is_made(a) or _is_made(b)):
        return
    try:
        if a._graphc_trace is b._graphc_trace is None and not may_share(
            a._graphc_array, b._graphc_array
        ):
            return
    except NotDense:  # entries are read before anything is written
        return
    one, other = _region(a), _region(b)
    if one is None or other is None or one.memory != other.memory:
        return
    if one.low >= other.high or other.low >= one.high:
        return
    if not whole or one[1:] != other[1:]:
        raise RuntimeError(located(_SHARED))


def _is_made(tensor: Tensor) -> bool:
    """Whether its memory is the trace's own."""
    return tensor._graphc_trace is not None and tensor._graphc_storage.root.source is None


def _region(tensor: Tensor) -> _Region | None:
    """Where a tensor is; None if it has gaps, or sizes that are not known."""
    shape, size = tensor._graphc_type.shape, tensor._graphc_type.dtype.numpy.itemsize
    count: Any = tensor._graphc_type.elements
    memory: Any = tensor._graphc_storage
    strides: Any
    low: Any
    if tensor._graphc_trace is None:
        memory, strides, low = (
            _start(memory),
            strides_of(tensor._graphc_array),
            address(tensor._graphc_array),
        )
    elif tensor._graphc_storage.root.source is None:
        state = tensor._graphc_traced
        strides, low = state.strides, state.offset * size
    else:
        found = _captured(tensor, size)
        if found is None:
            return None
        memory, strides, low = found
    if not is_static((*shape, *strides, low)) or dense_order(shape, strides, _STATIC) is None:
        return None
    return _Region(memory, low, low + count * size, strides)


def _captured(tensor: Tensor, size: int) -> tuple[Any, Any, Any] | None:
    """The storage, the strides and the address of a tensor in memory from before the trace."""
    root, path = tensor._graphc_storage.resolve(tensor._graphc_traced.path)
    if not is_static(root.node.shape):
        return None
    owner = root.source.owner
    array = (
        owner._graphc_storage.root.flat() if root.source.kind == "storage" else owner._graphc_array
    )
    geometry: Any = (array.shape, strides_of(array), 0)
    type_ = TensorType(root.node.tensor_type.dtype, array.shape)
    for op, attrs in path:
        type_ = op.infer([type_], attrs, _STATIC)
        geometry = view_geometry(op, attrs, geometry, type_.shape, _STATIC)
        if geometry is None:
            return None
    return _start(owner._graphc_storage), geometry[1], address(array) + geometry[2] * size


def _start(storage: Any) -> int:
    """Where a concrete storage begins: tensors of one NumPy array are one memory."""
    return address(storage.root.array)
