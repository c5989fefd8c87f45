"""torch._utils: flat tensors of many; the names that pickles of tensors call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from . import accelerator
from .frontend import functions as T
from .frontend.device import device as _Device
from .frontend.tensor import Tensor
from .serialization import _rebuild_parameter as _rebuild_parameter
from .serialization import _rebuild_tensor as _rebuild_tensor
from .serialization import _rebuild_tensor as _rebuild_tensor_v2  # noqa: F401
from .serialization_sparse import rebuild_sparse_tensor as _rebuild_sparse_tensor  # noqa: F401


def _flatten_dense_tensors(tensors: Iterable[Tensor]) -> Tensor:
    """One 1-d tensor of all elements."""
    return T.cat([tensor.contiguous().view(-1) for tensor in tensors])


def _unflatten_dense_tensors(flat: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Parts of a flat tensor in the shapes of `tensors`."""
    parts = T.split(flat, [tensor.numel() for tensor in tensors])
    return tuple(part.view_as(like) for part, like in zip(parts, tensors, strict=True))


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """The number of an accelerator; -1: the CPU, where `allow_cpu`. Without a number it is the
    current one's, where `optional` (-1: there is none). Raises ValueError."""
    if isinstance(device, str):
        device = _Device(device)
    if isinstance(device, _Device):
        if device.type == "cpu":
            if not allow_cpu:
                raise ValueError(f"Expected a non cpu device, but got: {device}")
            return -1
        device = device.index
    if isinstance(device, int):
        return device
    if optional:
        return accelerator.current_device_index() if accelerator.is_available() else -1
    raise ValueError(
        f"Expected a torch.device with a specified index or an integer, but got:{device}"
    )
