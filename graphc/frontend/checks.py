"""What may be assigned to a tensor's attributes."""

from __future__ import annotations

from typing import Any


def check_grad(tensor: Any, value: Any) -> None:
    """Raise TypeError or RuntimeError unless `value` can be the `.grad` of a tensor."""
    if not hasattr(value, "_storage"):
        raise TypeError(f"assigned grad expected to be a Tensor or None but got {type(value)}")
    if value is tensor:
        raise RuntimeError("can't assign Variable as its own grad")
    if value.dtype is not tensor.dtype:
        raise RuntimeError(
            f"assigned grad has data of a different type: {value.dtype}, expected {tensor.dtype}"
        )
    if tuple(value.shape) != tuple(tensor.shape):
        raise RuntimeError(
            f"assigned grad has data of a different size: {list(value.shape)}, "
            f"expected {list(tensor.shape)}"
        )
