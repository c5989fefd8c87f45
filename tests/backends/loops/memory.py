"""A device's memory in miniature: addresses that mean nothing to the host, and counted bridges."""

from __future__ import annotations

import math
import weakref
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
FIRST = 1 << 44  # no address of a process: reading it as a pointer crashes
APART = 1 << 32  # between two allocations


class Place(NamedTuple):
    """A buffer: where it is in an allocation."""

    block: Array
    address: int
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class FarMemory:
    """See ir.memory.Memory. `crossed` counts the reads and writes of the host."""

    def __init__(self) -> None:
        self.crossed: Counter[str] = Counter()
        self._blocks: weakref.WeakValueDictionary[int, Array] = weakref.WeakValueDictionary()
        self._made = 0

    def allocate(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Place:
        """Bytes that are not zero, so that what nobody wrote is seen."""
        if shape and min(shape) < 0:
            raise ValueError(f"negative dimensions are not allowed: {list(shape)}")
        block = np.full(math.prod(shape) * dtype.itemsize + 64, 0xA5, np.uint8)
        address = FIRST + self._made * APART
        self._made += 1
        self._blocks[address] = block
        return Place(block, address, 0, tuple(shape), dtype)

    def address(self, buffer: Place) -> int:
        return buffer.address + buffer.offset

    def at(self, address: int, shape: Sequence[int], dtype: np.dtype[Any]) -> Place:
        base = FIRST + (address - FIRST) // APART * APART
        return Place(self._blocks[base], base, address - base, tuple(shape), dtype)

    def read(self, buffer: Place) -> Array:
        self.crossed["read"] += 1
        found = self.numbers(buffer).copy()
        found.flags.writeable = False
        return found

    def write(self, buffer: Place, array: Array) -> None:
        self.crossed["written"] += 1
        self.numbers(buffer)[...] = array

    def numbers(self, buffer: Place) -> Array:
        """What the device's own code sees."""
        count = math.prod(buffer.shape) * buffer.dtype.itemsize
        return buffer.block[buffer.offset : buffer.offset + count].view(buffer.dtype).reshape(
            buffer.shape
        )
