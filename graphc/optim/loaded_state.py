"""What an optimizer makes of the state that a state_dict has."""

from __future__ import annotations

from typing import Any

from ..frontend.functions import tensor
from ..frontend.tensor import Tensor


def like_param(param: Tensor, value: Any, name: str) -> Any:
    """A loaded value as a parameter's state: it lies with its parameter and, if that is floating,
    has its dtype, but for the count of steps. A tensor that does so already stays the one it is."""
    if name == "step" and not isinstance(value, Tensor):
        return tensor(float(value))  # files of old releases hold a number
    if isinstance(value, dict):
        return {key: like_param(param, item, key) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(like_param(param, item, "") for item in value)
    if not isinstance(value, Tensor) or name == "step":
        return value
    value = value.to(param.device)
    return value.to(param.dtype) if param.is_floating_point() else value
