"""Where tensors lie: one Memory per device, made by a backend.

What it hands out is a Buffer: elements of one dtype, with a shape and strides, which views share.
On the host that is a NumPy array, and reading it copies nothing; on another device it is a
DeviceArray, and `read` and `write` are the bridges to the host.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .device_array import DeviceArray as DeviceArray
from .memory_protocol import AcceleratorError as AcceleratorError
from .memory_protocol import Array as Array
from .memory_protocol import Buffer as Buffer
from .memory_protocol import Memory as Memory
from .memory_protocol import OutOfMemoryError as OutOfMemoryError


def as_strided(buffer: Buffer, shape: Sequence[int], strides: Sequence[int]) -> Buffer:
    """A view from a buffer's first element on, `strides` in bytes. The caller answers for the
    bounds."""
    if isinstance(buffer, DeviceArray):
        return buffer.strided(tuple(shape), tuple(strides))
    if buffer.flags.c_contiguous and buffer.size:  # NumPy's function takes ten times as long
        try:
            return np.ndarray(shape, buffer.dtype, buffer, 0, strides)
        except (ValueError, TypeError):  # not all of it lies within the buffer
            pass
    return np.lib.stride_tricks.as_strided(buffer, shape, strides)


def contiguous(buffer: Buffer) -> Buffer:
    """The buffer itself, or a row-major copy of it."""
    if buffer.flags.c_contiguous:
        return buffer
    if not isinstance(buffer, np.ndarray):
        return buffer.copy()
    if buffer.nbytes < MANY or not _lies_across(buffer):
        return np.ascontiguousarray(buffer)
    found = np.empty(buffer.shape, buffer.dtype)
    _fill_by_lines(found, buffer)
    return found


def takes_results(array: Array) -> bool:
    """Whether it may be written to and each element lies behind those before it, gaps or none."""
    flags, step = array.flags, array.itemsize
    if not flags.writeable or flags.c_contiguous:
        return flags.writeable
    for size, stride in zip(reversed(array.shape), reversed(array.strides), strict=True):
        if size != 1:
            if stride < step:
                return False
            step = stride * size
    return True


def overwrite(target: Array, source: Array) -> None:
    """Fills an array with another one's elements, as they were before."""
    if target.nbytes >= MANY and target.shape == source.shape and _lies_across(source) and (
        target.flags.c_contiguous and not np.may_share_memory(target, source)
    ):
        _fill_by_lines(target, source)
    else:
        np.copyto(target, source)


def _fill_by_lines(target: Array, source: Array) -> None:
    line = max(_line(source) // source.itemsize, 1)
    for start in range(0, source.shape[-1], line):
        target[..., start : start + line] = source[..., start : start + line]


def _line(array: Array) -> int:
    """How many bytes of a copy are written at a time: of elements so far apart, which meet in few
    places of a cache, no more than it has ways."""
    return 32 if array.strides[-1] % 1024 == 0 else 256


MANY = 1 << 20  # bytes, more than the first caches hold
_LINE = 64  # bytes that a cache keeps together
_FAR = 2048  # bytes from one element to the next, of which few lie in a cache at a time


def _lies_across(array: np.ndarray) -> bool:
    """Whether neighbours along the last dim are far apart, and those along another are not: such a
    copy is written a line at a time, or each line comes and goes for each element."""
    if array.strides[-1] < _FAR or array.shape[-1] * array.itemsize < 4 * _LINE:
        return False
    for size, stride in zip(array.shape[:-1], array.strides[:-1], strict=True):
        if stride == array.itemsize and size * array.itemsize >= _LINE:
            return True
    return False


def memory_order(buffer: Buffer) -> tuple[int, ...] | None:
    """A buffer's dims, those that are farthest apart in memory first. None: as they are, or some
    element stands for several."""
    if buffer.flags.c_contiguous or 0 in buffer.strides:
        return None
    order = tuple(sorted(range(buffer.ndim), key=lambda dim: -buffer.strides[dim]))
    return None if order == tuple(range(buffer.ndim)) else order


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """The permutation that undoes one."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def copied(buffer: Buffer) -> Buffer:
    """A row-major copy in the same memory."""
    if isinstance(buffer, DeviceArray):
        return buffer.copy()
    found = contiguous(buffer)
    return found.copy() if found is buffer else found


def zeros_beside(buffer: Buffer, shape: Sequence[int]) -> Buffer:
    """Row-major zeros of a buffer's dtype, where it lies."""
    if not isinstance(buffer, DeviceArray):
        return np.zeros(shape, buffer.dtype)
    made = buffer.memory.allocate(shape, buffer.dtype)
    buffer.memory.write(made, np.zeros((), buffer.dtype))
    return made


def zeros_like(buffer: Buffer) -> Buffer:
    """Row-major zeros of a buffer's shape and dtype, where it lies."""
    return zeros_beside(buffer, buffer.shape)


def on_host(buffer: Buffer) -> Array:
    """Its elements in an array, not to be written where that is no copy."""
    found: Array = buffer.memory.read(buffer) if isinstance(buffer, DeviceArray) else buffer
    return found


def may_share(a: Buffer, b: Buffer) -> bool:
    """Whether two buffers' bounds overlap in one memory."""
    if isinstance(a, DeviceArray) or isinstance(b, DeviceArray):
        return isinstance(a, DeviceArray) and isinstance(b, DeviceArray) and a.meets(b)
    return np.may_share_memory(a, b)


def shares(a: Buffer, b: Buffer) -> bool:
    """Whether two buffers have elements in common (on a device: may have)."""
    if isinstance(a, DeviceArray) or isinstance(b, DeviceArray):
        return may_share(a, b)
    return np.shares_memory(a, b)


def write(target: Buffer, source: Buffer) -> None:
    """Fills a buffer with another one's elements, wherever both lie."""
    if isinstance(target, DeviceArray):
        if not isinstance(source, DeviceArray):
            target.memory.write(target, source)
        elif source.memory is target.memory:
            target.memory.copy(target, source)
        else:
            target.memory.write(target, on_host(source))
    else:
        overwrite(target, on_host(source))
