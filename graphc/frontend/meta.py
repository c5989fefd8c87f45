"""The meta device: tensors with shapes and dtypes, and no elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from graphc.ir.device_array import DeviceArray, row_major
from graphc.ir.dim import DimEnv
from graphc.ir.dtypes import from_numpy
from graphc.ir.op import Attrs, Op
from graphc.ir.types import TensorType, TupleType

from .errors import located
from .tensor import Tensor, concrete

_STATIC = DimEnv()


class MetaMemory:
    """See ir.memory.Memory. Nothing is allocated; what is written is forgotten."""

    place = "meta"

    def allocate(self, shape: Sequence[int], dtype: np.dtype[Any]) -> DeviceArray:
        if shape and min(shape) < 0:
            raise ValueError(f"negative dimensions are not allowed: {list(shape)}")
        sizes = tuple(shape)
        return DeviceArray(self, object(), 0, sizes, row_major(sizes, dtype.itemsize), dtype)

    def address(self, buffer: DeviceArray) -> int:
        """0, and how far in its block it lies."""
        return buffer.offset

    def at(self, address: int, shape: Sequence[int], dtype: np.dtype[Any]) -> NoReturn:
        raise NotImplementedError("the meta device has no addresses")

    def read(self, buffer: DeviceArray) -> NoReturn:
        raise NotImplementedError(located("Cannot copy out of meta tensor; no data!"))

    def write(self, buffer: DeviceArray, array: Any) -> None:
        """Nothing to write to."""

    def copy(self, target: DeviceArray, source: DeviceArray) -> None:
        """Nothing to copy."""

    def synchronise(self) -> None:
        """Nothing is ever begun."""


MEMORY = MetaMemory()


def concrete_or_zeros(tensor: Tensor, what: str, cure: str) -> np.ndarray:
    """concrete(), for functions the type of whose result follows from types: zeros stand for what
    has no elements."""
    if tensor._graphc_trace is None:
        buffer = tensor._graphc_array
        if isinstance(buffer, DeviceArray) and buffer.memory is MEMORY:
            return np.zeros(buffer.shape, buffer.dtype)
    return concrete(tensor, what, cure)


def run(op: Op, arrays: list[DeviceArray], attrs: Attrs) -> Any:
    """What an operator's type rule says of its results."""
    types = tuple([TensorType(from_numpy(a.dtype), a.shape) for a in arrays])
    result = op.infer(types, attrs, _STATIC)

    def made(type_: Any) -> DeviceArray:
        return MEMORY.allocate(type_.shape, type_.dtype.numpy)

    return tuple(map(made, result.elements)) if isinstance(result, TupleType) else made(result)
