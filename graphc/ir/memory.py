"""Where tensors lie: one Memory per device, made by a backend.

What it hands out is a Buffer, which nobody else looks into. On the host that is a NumPy array, and
reading it copies nothing; on another device `read` and `write` are the bridges to the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]
Buffer: TypeAlias = Any


class Memory(Protocol):
    """One device's memory. Buffers are contiguous; a view keeps what it is a view of."""

    def allocate(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Buffer:
        """An uninitialised buffer. Raises ValueError for a negative size."""

    def address(self, buffer: Buffer) -> int:
        """Where its first element lies, as the device's code is told."""

    def at(self, address: int, shape: Sequence[int], dtype: np.dtype[Any]) -> Buffer:
        """What lies at an address: valid as long as the buffer in which it lies."""

    def read(self, buffer: Buffer) -> Array:
        """Its elements on the host, not to be written; all that was to write them has run."""

    def write(self, buffer: Buffer, array: Array) -> None:
        """Fills a buffer with the elements of an array on the host, which broadcast to it."""
