"""DeviceArray: a buffer in a device's memory, told by NumPy's words.

Code that asks for shapes and strides and makes views is one for every device. What NumPy would
have to read is refused: only the buffer's Memory sees numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from .memory_protocol import Memory
from .named import NamedTuple


class Flags(NamedTuple):
    """Those of np.ndarray.flags that are asked for."""

    c_contiguous: bool
    writeable: bool = True


class DeviceArray:
    """Elements at `offset` bytes in a block that `memory` allocated; strides in bytes."""

    __slots__ = ("__weakref__", "block", "dtype", "memory", "offset", "shape", "strides")

    __array_ufunc__ = None  # NumPy's operators refuse it

    def __init__(
        self, memory: Memory, block: Any, offset: int, shape: tuple[int, ...],
        strides: tuple[int, ...], dtype: np.dtype[Any],
    ) -> None:
        self.memory, self.block, self.offset = memory, block, offset
        self.shape, self.strides, self.dtype = shape, strides, dtype

    # --- geometry -----------------------------------------------------------------------------

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def flags(self) -> Flags:
        return Flags(
            0 in self.shape
            or all(
                n == 1 or have == want
                for n, have, want in zip(
                    self.shape, self.strides, row_major(self.shape, self.itemsize), strict=True
                )
            )
        )

    def span(self) -> tuple[int, int]:
        """The bytes of its block between which it lies: first, and behind the last."""
        if 0 in self.shape:
            return self.offset, self.offset
        reach = sum((n - 1) * step for n, step in zip(self.shape, self.strides, strict=True))
        return self.offset, self.offset + reach + self.itemsize

    def meets(self, other: DeviceArray) -> bool:
        """Whether the spans overlap."""
        (low, high), (least, most) = self.span(), other.span()
        return self.block is other.block and low < most and least < high

    # --- views --------------------------------------------------------------------------------

    def strided(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> DeviceArray:
        """A view from the first element on. The caller answers for the bounds."""
        return DeviceArray(self.memory, self.block, self.offset, shape, strides, self.dtype)

    def reshape(self, *shape: Any) -> DeviceArray:
        """A view of a contiguous one by another shape, of which one size may be -1."""
        sizes = tuple(shape[0] if len(shape) == 1 and isinstance(shape[0], Sequence) else shape)
        if -1 in sizes:
            rest = math.prod(n for n in sizes if n != -1)
            sizes = tuple(self.size // max(rest, 1) if n == -1 else n for n in sizes)
        if math.prod(sizes) != self.size or not self.flags.c_contiguous:
            raise ValueError(f"cannot reshape {self!r} into shape {sizes} without a copy")
        return self.strided(sizes, row_major(sizes, self.itemsize))

    def transpose(self, dims: Sequence[int]) -> DeviceArray:
        """A view with the dims in another order."""
        return self.strided(
            tuple(self.shape[d] for d in dims), tuple(self.strides[d] for d in dims)
        )

    def __getitem__(self, index: Any) -> DeviceArray:
        """A view by integers, slices with positive steps, and dots that stand for the rest."""
        parts = list(index) if isinstance(index, tuple) else [index]
        if Ellipsis in parts:
            at = parts.index(Ellipsis)
            parts[at : at + 1] = [slice(None)] * (self.ndim - len(parts) + 1)
        parts += [slice(None)] * (self.ndim - len(parts))
        offset, shape, strides = self.offset, [], []
        for part, size, step in zip(parts, self.shape, self.strides, strict=True):
            if isinstance(part, slice):
                start, stop, by = part.indices(size)
                count = len(range(start, stop, by))
                offset += start * step if count else 0
                shape.append(count)
                strides.append(step * by)
            else:
                if not -size <= part < size:
                    raise IndexError(f"index {part} is out of bounds for size {size}")
                offset += part % size * step
        return DeviceArray(
            self.memory, self.block, offset, tuple(shape), tuple(strides), self.dtype
        )

    def view(self, dtype: Any) -> DeviceArray:
        """The same bytes as elements of another dtype, along the last dim."""
        kind = np.dtype(dtype)
        if kind.itemsize == self.itemsize:
            return self._as(kind, self.shape, self.strides)
        if not self.shape or (self.shape[-1] > 1 and self.strides[-1] != self.itemsize):
            raise ValueError("the last axis must be contiguous to see it as another dtype")
        last = self.shape[-1] * self.itemsize // kind.itemsize
        return self._as(kind, (*self.shape[:-1], last), (*self.strides[:-1], kind.itemsize))

    @property
    def real(self) -> DeviceArray:
        """The real parts of complex numbers."""
        if self.dtype.kind != "c":
            return self
        return self._as(np.dtype(f"f{self.itemsize // 2}"), self.shape, self.strides)

    def _as(
        self, dtype: np.dtype[Any], shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> DeviceArray:
        return DeviceArray(self.memory, self.block, self.offset, shape, strides, dtype)

    # --- elements -----------------------------------------------------------------------------

    def copy(self) -> DeviceArray:
        """A row-major copy on the device."""
        made: DeviceArray = self.memory.allocate(self.shape, self.dtype)
        self.memory.copy(made, self)
        return made

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        raise TypeError(
            f"can't convert {self.memory.place} device type tensor to numpy. Use Tensor.cpu() to "
            "copy the tensor to host memory first."
        )

    def __repr__(self) -> str:
        return f"DeviceArray({self.dtype}{list(self.shape)} on {self.memory.place})"


def row_major(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Strides in bytes without gaps."""
    strides, step = [], itemsize
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))
