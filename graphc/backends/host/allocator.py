"""A caching allocator: arrays in recycled, 64-byte aligned memory that is never cleared.

The block under an array is the base of all its views; it goes back on the shelf when the last
of them is collected. Touching fresh memory costs more than computing on it, so blocks are kept.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphc.backends.host.regions import Chunk, Regions, own_pages
from graphc.backends.host.touched import MOST, MOST_ZEROS, touch
from graphc.ir.named import NamedTuple

ALIGNMENT = 64
LARGE = 1 << 20  # from here on memory is a chunk of a region; below, of the C library

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
    memory: Allocation | Chunk

    def __del__(self, ends: Callable[[], bool] = sys.is_finalizing) -> None:
        allocator = getattr(self, "allocator", None)
        # a view of a block is a _Block too, but owns nothing; where the interpreter ends, modules
        # may be empty already
        if allocator is not None and not ends():
            allocator._give_back(self.memory)


BLOCK: type[Array] = _Block  # the class of what memory of an Allocator is the base of


class Allocator:
    """Hands out arrays; keeps at most `limit` bytes of unused small blocks, and as much of regions
    (regions.py) of which nothing is used."""

    def __init__(self, limit: int = 1 << 30) -> None:
        self.limit = limit
        self._regions = Regions(limit)
        self._small = 0  # bytes on the shelves
        self._shelves: dict[int, list[Allocation]] = {}
        # Re-entrant: a collection inside the lock may run __del__ and come back here.
        self._lock = threading.RLock()

    @property
    def kept(self) -> int:
        """Unused bytes."""
        return self._small + self._regions.kept

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """An uninitialised C-contiguous array, aligned to 64 bytes."""
        array, block = self._new(shape, dtype)
        memory = block.memory
        if isinstance(memory, Chunk) and memory.clean:
            touch(memory.owner, memory.start, min(memory.size, MOST))
        return array

    def zeros(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """empty(), of zeros. Memory that the system has just given is that already."""
        array, block = self._new(shape, dtype)
        memory = block.memory
        if isinstance(memory, Allocation) or not memory.clean:
            block.fill(0)  # bytes: in half the time that it takes by numbers
        elif memory.size <= MOST_ZEROS:
            touch(memory.owner, memory.start, memory.size)
        return array

    def _new(self, shape: Sequence[int], dtype: np.dtype[Any]) -> tuple[Array, _Block]:
        if shape and min(shape) < 0:  # np.ndarray would take -1 for "as many as there are"
            raise ValueError(f"negative dimensions are not allowed: {list(shape)}")
        size = math.prod(shape) * dtype.itemsize
        memory = self._regions.take(size) if size >= LARGE else self._take(_size_class(size))
        block = _Block((memory.size,), _BYTE, memory.owner, memory.start)
        block.allocator = self
        block.memory = memory
        return np.ndarray(shape, dtype, buffer=block), block

    def release(self) -> None:
        """Gives all unused memory back to the system."""
        with self._lock:
            self._shelves.clear()
            self._small = 0
        self._regions.release()

    def before_fork(self) -> None:
        """No other thread is in the middle of anything while the process is copied."""
        self._lock.acquire()
        self._regions.lock.acquire()

    def after_fork(self) -> None:
        """In the parent: others go on."""
        self._regions.lock.release()
        self._lock.release()

    def in_child(self) -> None:
        """In the child: its one thread may have another name than the one that has the locks."""
        self._lock = threading.RLock()
        self._regions.lock = threading.RLock()

    def _take(self, size: int) -> Allocation:
        with self._lock:
            shelf = self._shelves.get(size)
            if shelf:
                self._small -= size
                return shelf.pop()
        return _allocate(size)

    def _give_back(self, memory: Allocation | Chunk) -> None:
        if not isinstance(memory, Allocation):
            self._regions.give_back(memory)
            return
        with self._lock:
            if self._small + memory.size <= self.limit:
                self._small += memory.size
                self._shelves.setdefault(memory.size, []).append(memory)


_shared = Allocator()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_shared.before_fork, after_in_parent=_shared.after_fork,
        after_in_child=_shared.in_child,
    )


def empty(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """An array from the process's own Allocator."""
    return _shared.empty(shape, dtype)


def zeros(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """An array of zeros from the process's own Allocator."""
    return _shared.zeros(shape, dtype)


def of_heap(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """An array like empty()'s in memory of the C library, which keeps what is freed
    (host_memory.py): a block of an Allocator costs three times as much, by what Python does when it
    ends."""
    memory = np.empty(math.prod(shape) * dtype.itemsize + ALIGNMENT, _BYTE)
    return np.ndarray(shape, dtype, memory, -address_of(memory) % ALIGNMENT)


def alone(size: int) -> Array:
    """Bytes of its own, which go back to the system with the array where there are many."""
    if size >= LARGE:
        pages = own_pages(size)
        touch(pages, 0, size)
        return np.ndarray((size,), _BYTE, pages, 0)
    memory = _allocate(size)
    return np.ndarray((size,), _BYTE, memory.owner, memory.start)


def _allocate(size: int) -> Allocation:
    owner = bytearray(size + ALIGNMENT)
    start = -_interface_address(np.ndarray((1,), _BYTE, owner)) % ALIGNMENT
    return Allocation(owner, start, size)


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
