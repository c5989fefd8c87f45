"""Memory that is shared with other array libraries by DLPack (dmlc.github.io/dlpack/latest)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.ir import dtypes
from graphc.ir.late import late

from ..errors import located
from ..placement import Place, Streams, place_at, place_of
from ..tensor import Tensor, held
from .conversion import numpy
from .creation import from_numpy
from .cuda_arrays import LEGACY, over

if TYPE_CHECKING:
    from graphc.ir import dlpack
else:
    dlpack = late("graphc.ir.dlpack")

_KINDS = {"cuda": 2, "mps": 8, "hip": 10, "xpu": 14}  # of devices, by DLPack's numbers
_CURE = "ask for it outside the compiled function"
_NOBODY = -1  # no stream is to wait


def __dlpack__(
    self: Tensor, *, stream: Any = None, max_version: Any = None, dl_device: Any = None,
    copy: bool | None = None,
) -> Any:
    """A capsule of the tensor's memory. On a GPU, a stream (its handle; None and 1: the default
    one, -1: none) waits for what the current one was asked for. Raises BufferError for what cannot
    be shared."""
    place = place_at(self)
    if place is None and self.dtype is dtypes.bf16:
        return _lent_here(self, dl_device, copy)
    if place is None:
        given = {"max_version": max_version, "dl_device": dl_device, "copy": copy}
        return numpy(self).__dlpack__(
            **{name: value for name, value in given.items() if value is not None}
        )
    if place.device.type != "cuda":
        raise BufferError(located(f"Cannot pack tensors on {place.device}. Cure: Tensor.cpu()"))
    _no_gradient(self)
    if dl_device not in (None, __dlpack_device__(self)):
        raise BufferError(located(
            f"the tensor is on {place.device}, another device was asked for. Cure: Tensor.to()"
        ))
    tensor = self.clone() if copy else self
    buffer = held(tensor, "__dlpack__()", _CURE)
    if stream != _NOBODY:
        handle = 0 if stream in (None, LEGACY) else int(stream)
        Streams.order(place, handle, Streams.current(place))
    return dlpack.lend(
        place.memory.address(buffer), buffer.shape, tensor.stride(), tensor.dtype,
        (dlpack.CUDA, place.device.index or 0), buffer,
    )


def _lent_here(self: Tensor, dl_device: Any, copy: bool | None) -> Any:
    """Of a dtype that NumPy cannot lend."""
    _no_gradient(self)
    if dl_device not in (None, (dlpack.CPU, 0)):
        raise BufferError(located(
            "the tensor is on the CPU, another device was asked for. Cure: Tensor.to()"
        ))
    tensor = self.clone() if copy else self
    array = held(tensor, "__dlpack__()", _CURE)
    tensor._graphc_storage.expose()
    return dlpack.lend(
        array.ctypes.data, array.shape, tensor.stride(), tensor.dtype, (dlpack.CPU, 0), array
    )


def _no_gradient(tensor: Tensor) -> None:
    if tensor.requires_grad:
        raise BufferError(located(
            "Can't export tensors that require gradient, use tensor.detach()"
        ))


def __dlpack_device__(self: Tensor) -> tuple[int, int]:
    """DLPack's code of a device's type, and its number."""
    place = place_at(self)
    if place is None:
        return dlpack.CPU, 0
    if place.device.type == "meta":
        raise ValueError(located("Unknown device type meta for Dlpack"))
    return _KINDS.get(place.device.type, dlpack.EXTENSION), place.device.index or 0


class _Lender:
    """A capsule, as NumPy asks for one."""

    def __init__(self, capsule: Any, device: tuple[int, int]) -> None:
        self._capsule, self._device = capsule, device

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device


def from_dlpack(ext_tensor: Any) -> Tensor:
    """A tensor on the memory of another library's array, of a tensor, or of a DLPack capsule."""
    if isinstance(ext_tensor, Tensor) and (place := place_at(ext_tensor)) is not None:
        if place.device.type == "meta":
            raise ValueError(located("Unknown device type meta for Dlpack"))
        _no_gradient(ext_tensor)
        found: Tensor = ext_tensor.detach()
        return found
    if hasattr(ext_tensor, "__dlpack__"):
        kind, index = ext_tensor.__dlpack_device__()
        if kind not in (dlpack.CUDA, dlpack.CUDA_MANAGED):
            if str(getattr(ext_tensor, "dtype", "")).endswith("bfloat16"):  # which NumPy lacks
                return from_numpy(dlpack.array(dlpack.borrow(ext_tensor.__dlpack__())))
            return from_numpy(np.from_dlpack(ext_tensor))
        stream = Streams.current(_gpu(index)) or LEGACY
        return _borrowed(ext_tensor.__dlpack__(stream=stream))
    kind, index = dlpack.device_of(ext_tensor)
    if kind not in (dlpack.CUDA, dlpack.CUDA_MANAGED):
        if dlpack.dtype_of(ext_tensor) is dtypes.bf16:
            return from_numpy(dlpack.array(dlpack.borrow(ext_tensor)))
        return from_numpy(np.from_dlpack(_Lender(ext_tensor, (kind, index))))
    return _borrowed(ext_tensor)


def _gpu(index: int) -> Place:
    place = place_of(f"cuda:{index}")
    assert place is not None
    return place


def _borrowed(capsule: Any) -> Tensor:
    place = _gpu(dlpack.device_of(capsule)[1])
    found = dlpack.borrow(capsule)
    return over(place, found.memory, found.shape, found.strides, found.dtype)
