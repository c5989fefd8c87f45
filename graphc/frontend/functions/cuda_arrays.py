"""Memory of a GPU that is shared with other array libraries, as a CUDA array:
numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.ir import dtypes
from graphc.ir.device_array import DeviceArray, row_major
from graphc.ir.memory import Buffer

from ..errors import located
from ..placement import Place, Streams, place_at, place_of
from ..tensor import Tensor, from_array, held

LEGACY = 1  # what other libraries call CUDA's default stream, whose handle is 0


def over(
    place: Place, block: Any, shape: tuple[int, ...], strides: tuple[int, ...], dtype: dtypes.DType
) -> Tensor:
    """A tensor over a block of a GPU's memory; `strides` in elements."""
    if any(step < 0 for step in strides):
        raise ValueError(located("tensors with negative strides are not supported. Cure: copy it"))
    steps = tuple(step * dtype.itemsize for step in strides)
    buffer: Buffer = DeviceArray(place.memory, block, 0, shape, steps, dtype.numpy)
    return from_array(buffer)


def _interface(self: Tensor) -> dict[str, Any]:
    """Version 2: who reads it waits for the stream itself."""
    place = place_at(self)
    if place is None or place.device.type != "cuda":
        raise AttributeError(
            f"Can't get __cuda_array_interface__ on non-CUDA tensor type: {self.type()} If CUDA "
            "data is required use tensor.cuda() to copy tensor to device memory."
        )
    if self.requires_grad:
        raise RuntimeError(located(
            "Can't get __cuda_array_interface__ on Variable that requires grad. If gradients "
            "aren't required, use var.detach() to get Variable that doesn't require grad."
        ))
    buffer = held(self, "__cuda_array_interface__", "ask outside the compiled function")
    address = place.memory.address(buffer) if buffer.size else 0
    kind = "<V2" if self.dtype is dtypes.bf16 else buffer.dtype.str
    return {
        "typestr": kind, "shape": tuple(buffer.shape), "data": (address, False), "version": 2,
        "strides": None if buffer.flags.c_contiguous else tuple(buffer.strides),
    }


PROPERTIES = {"__cuda_array_interface__": property(_interface)}


class _Kept:
    """Memory at an address, which another library's array keeps."""

    def __init__(self, address: int, array: Any) -> None:
        self.address, self.array = address, array


def from_cuda_array(array: Any) -> Tensor:
    """A tensor on the memory of an object with a __cuda_array_interface__, on the current GPU."""
    told = array.__cuda_array_interface__
    place = place_of("cuda")
    assert place is not None
    if told.get("stream") is not None:
        handle = 0 if told["stream"] == LEGACY else told["stream"]
        Streams.order(place, Streams.current(place), handle)
    dtype, shape = dtypes.from_numpy(np.dtype(told["typestr"])), tuple(told["shape"])
    steps = told.get("strides") or row_major(shape, dtype.itemsize)
    if any(step % dtype.itemsize for step in steps):
        raise ValueError(located(f"strides of {steps} bytes are no multiples of an element's size"))
    elements = tuple(step // dtype.itemsize for step in steps)
    return over(place, _Kept(told["data"][0], array), shape, elements, dtype)
