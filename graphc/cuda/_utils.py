"""torch.cuda._utils."""

from __future__ import annotations

from typing import Any

from .._utils import _get_device_index as _of_any
from ..frontend.device import device as _Device
from .devices import device as _selection


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """The number of a GPU; -1: the CPU, where `allow_cpu`. Raises ValueError."""
    if isinstance(device, _selection):
        return device.idx
    if isinstance(device, str):
        device = _Device(device)
    if isinstance(device, _Device) and device.type not in (("cuda", "cpu") if allow_cpu else (
        "cuda",
    )):
        wanted = "cuda or cpu" if allow_cpu else "cuda"
        raise ValueError(f"Expected a {wanted} device, but got: {device}")
    return _of_any(device, optional, allow_cpu)
