"""The gradient of what slices were taken of, while a backward pass on arrays collects it.

Each slice's is zeros around a block. To make those, and their sum, for each of many slices (the
steps of a sequence, the parts of a split) would go through the whole once for each.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphc.ir.types import TensorType

Array = np.ndarray[Any, Any]
_FLOATS = "fd"  # which NumPy adds as the backend does


class Blocks:
    """A sum of blocks at their places, of arrays that nobody writes to."""

    __slots__ = ("_found", "_pending", "_pieces", "_size", "_type")

    def __init__(self, type_: TensorType, where: tuple[slice, ...], block: Array) -> None:
        self._type = type_
        self._size: Any = math.prod(type_.shape)
        self._found: Array | None = None  # the sum of those that are no longer among the pieces
        self._pieces: list[tuple[tuple[slice, ...], Array]] = [(where, block)]
        self._pending = block.size  # elements of the pieces

    @classmethod
    def of(cls, type_: TensorType, attrs: Any, gradient: Any) -> Blocks | None:
        """Of a slice; None: by its rule."""
        if type(gradient) is not np.ndarray or gradient.dtype.char not in _FLOATS:
            return None
        bounds = zip(attrs["starts"], attrs["stops"], attrs["steps"], strict=True)
        return cls(type_, tuple([slice(*each) for each in bounds]), gradient)

    def add(self, other: Any) -> Blocks:
        """This sum and another, or an array of all."""
        if isinstance(other, Blocks):
            if other._found is not None:
                self._take((), other._found)
            for where, block in other._pieces:
                self._take(where, block)
        else:
            self._take((), other)
        return self

    def whole(self) -> Array:
        """The sum as an array, which is nobody else's."""
        if self._found is None and len(self._pieces) == 1:
            where, block = self._pieces.pop()
            self._found = self._zeros()
            self._found[where] = block
        self._settle()
        assert self._found is not None
        return self._found

    def _take(self, where: tuple[slice, ...], block: Array) -> None:
        self._pieces.append((where, block))
        self._pending += block.size
        if self._pending > self._size:  # blocks that lie over each other are not kept
            self._settle()

    def _settle(self) -> None:
        if self._found is None:
            self._found = self._zeros()
        for where, block in self._pieces:
            part = self._found[where]
            np.add(part, block, part)
        self._pieces.clear()
        self._pending = 0

    def _zeros(self) -> Array:
        return np.zeros(self._type.shape, self._type.dtype.numpy)


def whole(value: Any) -> Any:
    """A gradient as what it is."""
    return value.whole() if type(value) is Blocks else value
