"""A caching allocator: arrays in recycled, 64-byte aligned memory that is never cleared.

The block under an array is the base of all its views; it goes back on the shelf when the last
of them is collected. Touching fresh memory costs more than computing on it, so blocks are kept.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

ALIGNMENT = 64
Array = np.ndarray[Any, Any]


class _Block(np.ndarray[Any, Any]):
    """A lease of one allocation: bytes that go back to their allocator when nothing uses them."""

    allocator: Allocator
    memory: Array

    def __del__(self) -> None:
        allocator = getattr(self, "allocator", None)
        if allocator is not None:  # a view of a block is a _Block too, but owns nothing
            allocator._give_back(self.memory)


class Allocator:
    """Hands out arrays; keeps at most `limit` bytes of unused memory."""

    def __init__(self, limit: int = 1 << 30) -> None:
        self.limit = limit
        self.kept = 0  # bytes on the shelves
        self._shelves: dict[int, list[Array]] = {}
        # Re-entrant: a collection inside the lock may run __del__ and come back here.
        self._lock = threading.RLock()

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """An uninitialised C-contiguous array, aligned to 64 bytes."""
        size = _size_class(math.prod(shape) * dtype.itemsize)
        memory = self._take(size)
        block = memory.view(_Block)
        block.allocator = self
        block.memory = memory
        return np.ndarray(shape, dtype, buffer=block)

    def release(self) -> None:
        """Gives all unused memory back to the system."""
        with self._lock:
            self._shelves.clear()
            self.kept = 0

    def _take(self, size: int) -> Array:
        with self._lock:
            shelf = self._shelves.get(size)
            if shelf:
                self.kept -= size
                return shelf.pop()
        return aligned_bytes(size)

    def _give_back(self, memory: Array) -> None:
        size = memory.size
        with self._lock:
            if self.kept + size <= self.limit:
                self.kept += size
                self._shelves.setdefault(size, []).append(memory)


def aligned_bytes(size: int) -> Array:
    """`size` fresh bytes at a 64-byte boundary."""
    raw: Array = np.empty(size + ALIGNMENT, np.uint8)
    start = -address_of(raw) % ALIGNMENT
    return raw[start : start + size]


def address_of(array: Array) -> int:
    """Where an array's first element lies."""
    address: int = array.__array_interface__["data"][0]
    return address


def _size_class(size: int) -> int:
    """Rounds up to one of four sizes per power of two, so that blocks are found again."""
    if size <= ALIGNMENT:
        return ALIGNMENT
    step = max(1 << (size - 1).bit_length() - 3, ALIGNMENT)
    return -(-size // step) * step
