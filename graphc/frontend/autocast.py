"""Which functions autocast runs in lower precision and which in float32: on every device as torch
does on the CPU.

`@lower_precision` and `@full_precision` mark the functions that users call. Inside a marked
function autocast is off, as below torch's dispatch key. float64 tensors are left alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from graphc.ir import dtypes
from graphc.ir.dtypes import DType

from . import promote
from .context import local
from .placement import place_at
from .tensor import Tensor
from .tree import flatten
from .values import Eager

F = TypeVar("F", bound=Callable[..., Any])

_HALVES = (dtypes.bf16, dtypes.f16)


def lower_precision(function: F) -> F:
    """Under autocast, float tensors among the arguments are cast to its dtype."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if local.autocast is None:
            return function(*args, **kwargs)
        dtype = _chosen(local.autocast, args, kwargs)
        return function(*args, **kwargs) if dtype is None else _call(function, dtype, args, kwargs)

    return wrapper  # type: ignore[return-value]


def full_precision(function: F) -> F:
    """Under autocast, tensors of half precision among the arguments are cast to float32."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if local.autocast is None or _chosen(local.autocast, args, kwargs) is None:
            return function(*args, **kwargs)
        return _call(function, dtypes.f32, args, kwargs)

    return wrapper  # type: ignore[return-value]


def _chosen(
    modes: tuple[tuple[str, DType], ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> DType | None:
    """The dtype of autocast on the device of the tensors; None: it is off there."""
    if Eager.elsewhere is None and len(modes) == 1:
        ((kind, dtype),) = modes
        return dtype if kind == "cpu" else None
    tensor = next((x for x in flatten((args, kwargs))[0] if isinstance(x, Tensor)), None)
    place = None if tensor is None else place_at(tensor)
    return dict(modes).get("cpu" if place is None else place.device.type)


def _call(
    function: Callable[..., Any], dtype: DType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    saved = local.autocast
    local.autocast = None
    try:
        cast_kwargs = {
            name: value if name == "out" else cast(value, dtype) for name, value in kwargs.items()
        }
        return function(*[cast(value, dtype) for value in args], **cast_kwargs)
    finally:
        local.autocast = saved


def cast(value: Any, dtype: DType) -> Any:
    """Float tensors as `dtype`, also within lists, tuples and dicts; float64 and others stay."""
    if isinstance(value, Tensor):
        kind = value.dtype
        if kind is dtype or not (kind is dtypes.f32 or kind in _HALVES):
            return value
        return promote.cast(value, dtype)
    if isinstance(value, (list, tuple)):
        items = [cast(item, dtype) for item in value]
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*items)
        return type(value)(items)
    if isinstance(value, dict):
        return {cast(key, dtype): cast(item, dtype) for key, item in value.items()}
    return value
