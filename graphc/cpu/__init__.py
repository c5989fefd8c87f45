"""torch.cpu: the CPU under the names that torch gives to every accelerator."""

from __future__ import annotations

from typing import Any

from . import amp as amp


def is_available() -> bool:
    """True."""
    return True


def device_count() -> int:
    """1."""
    return 1


def current_device() -> str:
    """Its name, "cpu"."""
    return "cpu"


def is_initialized() -> bool:
    """True."""
    return True


def set_device(device: Any) -> None:
    """There is one CPU: nothing to set."""


def synchronize(device: Any = None) -> None:
    """Nothing runs behind the caller's back."""
