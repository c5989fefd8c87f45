"""What a device's memory is asked, and what it hands out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]
Buffer: TypeAlias = Any  # an Array, or a DeviceArray


class AcceleratorError(RuntimeError):
    """torch.AcceleratorError: a device refuses, or has failed at, what it was asked for."""


class OutOfMemoryError(RuntimeError):
    """torch.OutOfMemoryError: a device has no such piece of memory. What there is stays as it is,
    and the process goes on."""


class Memory(Protocol):
    """One device's memory. What is allocated is contiguous; a view keeps what it is a view of."""

    @property
    def place(self) -> str:
        """The device's name: "cpu", "cuda:0"."""

    def allocate(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Buffer:
        """An uninitialised buffer. Raises ValueError for a negative size, TypeError for a dtype
        that the device lacks, OutOfMemoryError."""

    def address(self, buffer: Buffer) -> int:
        """Where its first element lies, as the device's code is told."""

    def at(self, address: int, shape: Sequence[int], dtype: np.dtype[Any]) -> Buffer:
        """What lies at an address: valid as long as the buffer in which it lies."""

    def read(self, buffer: Buffer) -> Array:
        """Its elements on the host, not to be written; all that was to write them has run. Raises
        what failed on the device since the host last waited for it."""

    def write(self, buffer: Buffer, array: Array) -> None:
        """Fills a buffer with the elements of an array on the host, which broadcast to it."""

    def copy(self, target: Buffer, source: Buffer) -> None:
        """Fills a buffer with another one's elements, of its dtype, which broadcast to it."""

    def synchronise(self) -> None:
        """Waits for all that was begun. Raises as `read` does."""
