"""A caching allocator: arrays in recycled, 64-byte aligned memory that is never cleared.

The block under an array is the base of all its views; it goes back on the shelf when the last
of them is collected. Touching fresh memory costs more than computing on it, so blocks are kept.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
import os
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

ALIGNMENT = 64
LARGE = 1 << 22  # from here on memory is mapped by itself, in huge pages where there are any
IDLE = 256  # large blocks handed out since one came back: a step of a program takes fewer

Array = np.ndarray[Any, Any]
_BYTE = np.dtype(np.uint8)


class Allocation(NamedTuple):
    """An allocation. `owner` is no array: NumPy then keeps the _Block as the base of arrays
    instead of looking through it."""

    owner: bytearray | mmap.mmap
    start: int  # offset of the first aligned byte
    size: int


class _Block(np.ndarray[Any, Any]):
    """A lease of one allocation: bytes that go back to their allocator when nothing uses them."""

    allocator: Allocator
    memory: Allocation

    def __del__(self) -> None:
        allocator = getattr(self, "allocator", None)
        if allocator is not None:  # a view of a block is a _Block too, but owns nothing
            allocator._give_back(self.memory)


class Allocator:
    """Hands out arrays; keeps at most `limit` bytes of unused memory. Where a large block has to be
    made, large ones that have long lain unused make room for it: what sizes that vary leave behind
    would otherwise add up."""

    def __init__(self, limit: int = 1 << 30) -> None:
        self.limit = limit
        self.kept = 0  # bytes on the shelves
        self._shelves: dict[int, list[Allocation]] = {}
        self._returned: dict[int, list[int]] = {}  # large ones: when each block came back
        self._taken = 0  # large blocks handed out so far: the clock of _returned
        # Re-entrant: a collection inside the lock may run __del__ and come back here.
        self._lock = threading.RLock()

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """An uninitialised C-contiguous array, aligned to 64 bytes."""
        if shape and min(shape) < 0:  # np.ndarray would take -1 for "as many as there are"
            raise ValueError(f"negative dimensions are not allowed: {list(shape)}")
        size = _size_class(math.prod(shape) * dtype.itemsize)
        memory = self._take(size)
        block = _Block((size,), _BYTE, memory.owner, memory.start)
        block.allocator = self
        block.memory = memory
        return np.ndarray(shape, dtype, buffer=block)

    def release(self) -> None:
        """Gives all unused memory back to the system."""
        with self._lock:
            self._shelves.clear()
            self._returned.clear()
            self.kept = 0

    def after_fork(self) -> None:
        """In a child: whoever had the lock is not in this process."""
        self._lock = threading.RLock()

    def _take(self, size: int) -> Allocation:
        with self._lock:
            shelf = self._shelves.get(size)
            if size >= LARGE:
                self._taken += 1
                if shelf:
                    self._returned[size].pop()
                else:
                    self._make_room(size)
            if shelf:
                self.kept -= size
                return shelf.pop()
        return _allocate(size)

    def _give_back(self, memory: Allocation) -> None:
        size = memory.size
        with self._lock:
            if self.kept + size <= self.limit:
                self.kept += size
                self._shelves.setdefault(size, []).append(memory)
                if size >= LARGE:
                    self._returned.setdefault(size, []).append(self._taken)

    def _make_room(self, size: int) -> None:
        """Give so many bytes of blocks back to the system, if they are older than IDLE."""
        while size > 0:
            # a shelf is a stack: its oldest block is its first
            ages = [(returned[0], large) for large, returned in self._returned.items() if returned]
            when, large = min(ages, default=(self._taken, 0))
            if self._taken - when <= IDLE:
                return
            self._returned[large].pop(0)
            self._shelves[large].pop(0)
            self.kept -= large
            size -= large


_shared = Allocator()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_shared.after_fork)


def empty(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """An array from the process's own Allocator."""
    return _shared.empty(shape, dtype)


def alone(size: int) -> Array:
    """Bytes of its own, which go back to the system with the array where there are many."""
    memory = _allocate(size)
    return np.ndarray((size,), _BYTE, memory.owner, memory.start)


def _allocate(size: int) -> Allocation:
    if size >= LARGE:
        mapped = _own_pages(size)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):  # a kernel without huge pages
                mapped.madvise(mmap.MADV_HUGEPAGE)
        return Allocation(mapped, 0, size)
    owner = bytearray(size + ALIGNMENT)
    start = -_interface_address(np.ndarray((1,), _BYTE, owner)) % ALIGNMENT
    return Allocation(owner, start, size)


def _own_pages(size: int) -> mmap.mmap:
    """Memory of this process alone. Python's default is memory that children of fork share, which
    then see each other's writes, and which has no huge pages."""
    if not hasattr(mmap, "MAP_PRIVATE"):  # Windows
        return mmap.mmap(-1, size)
    return mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _interface_address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _header_address(array: Array) -> int:
    """The data pointer in the array's C structure, behind CPython's object header: six times
    faster to read than __array_interface__, and in the same place in every NumPy release."""
    return _POINTER.from_address(id(array) + _DATA_OFFSET).value or 0


_POINTER = ctypes.c_void_p
_DATA_OFFSET = object.__basicsize__


def _header_is_known() -> bool:
    probe = np.empty(3, np.int16)
    views = probe, probe[1:], probe[::-1], np.empty(0)
    return all(_header_address(v) == _interface_address(v) for v in views)


# Where an array's first element lies.
address_of = _header_address if _header_is_known() else _interface_address


def _size_class(size: int) -> int:
    """Rounds up to one of four sizes per power of two, so that blocks are found again."""
    if size <= ALIGNMENT:
        return ALIGNMENT
    step = max(1 << (size - 1).bit_length() - 3, ALIGNMENT)
    return -(-size // step) * step
