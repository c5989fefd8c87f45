"""The arguments of Module.to."""

from __future__ import annotations

from typing import Any

from ...frontend.tensor import Tensor


def parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, Any]:
    """Device, dtype and memory format, each None where not given."""
    device, dtype = kwargs.pop("device", None), kwargs.pop("dtype", None)
    layout = kwargs.pop("memory_format", None)
    kwargs.pop("non_blocking", None)
    if kwargs:
        raise TypeError(f"to() received an invalid keyword argument: {next(iter(kwargs))!r}")
    for value in args:
        if isinstance(value, Tensor):
            device, dtype = value.device, value.dtype
        elif hasattr(value, "is_floating_point"):
            dtype = value
        elif value is not None and not isinstance(value, bool):
            device = value
    return device, dtype, layout
