"""autocast's state: on or off, the dtype, per device type."""

from __future__ import annotations

import threading
from typing import Any

from ..frontend.context import local
from ..frontend.device import device, registered
from ..ir import dtypes
from ..ir.dtypes import DType

_DEVICE_TYPES = ("cpu", "cuda", "xpu", "mps", "hpu", "xla", "ipu", "maia", "privateuseone", "mtia")


class _State(threading.local):
    def __init__(self) -> None:
        self.dtypes: dict[str, DType] = {"cpu": dtypes.bf16}
        self.cache = True
        self.nesting = 0


state = _State()


def device_type_of(name: Any) -> str:
    """A device type's name. Raises RuntimeError for one that does not exist."""
    if isinstance(name, device):
        name = name.type
    if not isinstance(name, str):
        raise ValueError(
            f"Expected `device_type` of type `str`, got: `{type(name)}`"
        )
    if name not in _DEVICE_TYPES and name not in registered and name != "meta":
        raise RuntimeError(
            f"Expected one of {', '.join(_DEVICE_TYPES)} device type at start of device string: "
            f"{name}"
        )
    return name


def is_autocast_available(device_type: str) -> bool:
    """Whether torch knows autocast for this kind of device."""
    return device_type_of(device_type) != "meta"


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether autocast is on for a device type (cuda, as in torch, if none is named)."""
    return device_type_of(device_type) in dict(local.autocast or ())


def set_autocast_enabled(device_type: Any, enabled: bool | None = None) -> None:
    """Switch autocast on or off: (device_type, enabled), or (enabled) for cuda."""
    if enabled is None:
        device_type, enabled = "cuda", device_type
    kind = device_type_of(device_type)
    modes = dict(local.autocast or ())
    modes.pop(kind, None)
    if enabled:
        modes[kind] = get_autocast_dtype(kind)
    local.autocast = tuple(sorted(modes.items())) or None


def get_autocast_dtype(device_type: str) -> DType:
    """The dtype that autocast casts to."""
    return state.dtypes.get(device_type_of(device_type), dtypes.f16)


def set_autocast_dtype(device_type: str, dtype: DType) -> None:
    """Set the dtype that autocast casts to."""
    state.dtypes[device_type_of(device_type)] = dtype
    if is_autocast_enabled(device_type):
        set_autocast_enabled(device_type, True)


def is_autocast_cpu_enabled() -> bool:
    """Whether autocast is on for the CPU."""
    return is_autocast_enabled("cpu")


def set_autocast_cpu_enabled(enabled: bool) -> None:
    """Switch autocast for the CPU."""
    set_autocast_enabled("cpu", enabled)


def get_autocast_cpu_dtype() -> DType:
    """The dtype of autocast for the CPU."""
    return get_autocast_dtype("cpu")


def set_autocast_cpu_dtype(dtype: DType) -> None:
    """Set the dtype of autocast for the CPU."""
    set_autocast_dtype("cpu", dtype)


def get_autocast_gpu_dtype() -> DType:
    """The dtype of autocast for cuda."""
    return get_autocast_dtype("cuda")


def set_autocast_gpu_dtype(dtype: DType) -> None:
    """Set the dtype of autocast for cuda."""
    set_autocast_dtype("cuda", dtype)


def is_autocast_cache_enabled() -> bool:
    """The flag that autocast's cache of casts is kept by; the results do not depend on it."""
    return state.cache


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Set the flag of is_autocast_cache_enabled."""
    state.cache = bool(enabled)


def clear_autocast_cache() -> None:
    """Nothing is cached: casts are made where they are needed, and merged when compiled."""


def autocast_increment_nesting() -> int:
    """Count one more autocast context."""
    state.nesting += 1
    return state.nesting


def autocast_decrement_nesting() -> int:
    """Count one autocast context less."""
    state.nesting -= 1
    return state.nesting
