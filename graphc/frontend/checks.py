"""What may be assigned to a tensor's attributes."""

from __future__ import annotations

from typing import Any

from .context import local
from .errors import located


def check_grad(tensor: Any, value: Any) -> None:
    """Raise TypeError or RuntimeError unless `value` can be the `.grad` of a tensor."""
    if not hasattr(value, "_graphc_storage"):
        raise TypeError(f"assigned grad expected to be a Tensor or None but got {type(value)}")
    if value is tensor:
        raise RuntimeError("can't assign Variable as its own grad")
    if value.dtype is not tensor.dtype:
        raise RuntimeError(
            f"attempting to assign a gradient with dtype '{value.dtype}' to a tensor of dtype "
            f"'{tensor.dtype}'. The gradient must match the tensor's dtype"
        )
    if value.device != tensor.device:
        raise RuntimeError("assigned grad has data located on a different device")
    if tuple(value.shape) != tuple(tensor.shape):
        raise RuntimeError(
            f"attempting to assign a gradient of size '{list(value.shape)}' to a tensor of size "
            f"'{list(tensor.shape)}'. Please ensure that the gradient and the tensor are the same "
            "size"
        )


def check_flag(value: Any, storage: Any) -> None:
    """Raise TypeError or RuntimeError unless `requires_grad` of a tensor can be set to `value`."""
    if not isinstance(value, bool):
        raise TypeError(located(
            "requires_grad_(): argument 'requires_grad' (position 1) must be bool, not "
            f"{type(value).__name__}"
        ))
    if value and storage.inference and not local.inference:
        raise RuntimeError(located(
            "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed."
        ))
