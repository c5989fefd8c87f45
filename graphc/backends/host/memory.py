"""The host's Memory: a buffer is a NumPy array, and an address is a pointer."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.backends.host import allocator
from graphc.backends.host.allocator import Array


class HostMemory:
    """See ir.memory.Memory."""

    place = "cpu"
    allocate = staticmethod(allocator.empty)
    address = staticmethod(allocator.address_of)

    def at(self, address: int, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """An array over native memory, which it does not keep."""
        size = math.prod(shape) * dtype.itemsize
        native = (ctypes.c_uint8 * size).from_address(address)
        return np.ndarray(tuple(shape), dtype, memoryview(native))

    def read(self, buffer: Array) -> Array:
        """The array itself, as one that cannot be written."""
        shown = buffer.view()
        shown.flags.writeable = False
        return shown

    def write(self, buffer: Array, array: Array) -> None:
        """A copy of the elements."""
        buffer[...] = array

    copy = write

    def synchronise(self) -> None:
        """What was begun has ended: calls on the host run to their end."""


HOST = HostMemory()
