"""torch.amp.autocast: a context, or a decorator, in which matrix products and convolutions run in
lower precision."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from ..cuda.available import is_available
from ..frontend.autocast import cast, is_narrow
from ..frontend.context import callout
from ..frontend.decorated import within
from ..frontend.tensor import Tensor
from ..ir import dtypes
from ..ir.dtypes import DType
from .state import (
    autocast_decrement_nesting,
    autocast_increment_nesting,
    device_type_of,
    get_autocast_dtype,
    is_autocast_available,
    is_autocast_cache_enabled,
    is_autocast_enabled,
    set_autocast_cache_enabled,
    set_autocast_dtype,
    set_autocast_enabled,
)

_HALVES = (dtypes.bf16, dtypes.f16)


class autocast:
    """Run the functions that gain from it in `dtype`; `enabled=False` switches it off inside."""

    def __init__(
        self, device_type: str, dtype: DType | None = None, enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        self.device = device_type_of(device_type)
        if not is_autocast_available(self.device):
            raise RuntimeError(
                f"User specified an unsupported autocast device_type '{self.device}'"
            )
        self.custom_backend_name: str | None = None
        self.fast_dtype = get_autocast_dtype(self.device) if dtype is None else dtype
        self._cache_enabled = is_autocast_cache_enabled() if cache_enabled is None else (
            cache_enabled
        )
        self._enabled = bool(enabled)
        if self.device == "cuda" and self._enabled and not is_available():
            warnings.warn(
                "CUDA is not available or torch_xla is imported. Disabling autocast.",
                stacklevel=2,
            )
            self._enabled = False
        if self.device != "cuda" and self._enabled and self.fast_dtype not in _HALVES:
            self._unsupported()
        self._saved: list[tuple[bool, DType, bool]] = []

    def _unsupported(self) -> None:
        warnings.warn(
            f"In {self.device.upper()} autocast, but the target dtype is not supported. Disabling "
            f"autocast.\n{self.device.upper()} Autocast only supports dtypes of torch.bfloat16, "
            "torch.float16 currently.",
            stacklevel=3,
        )
        self._enabled = False

    def __enter__(self) -> Any:
        kind = self.device
        self._saved.append(
            (is_autocast_enabled(kind), get_autocast_dtype(kind), is_autocast_cache_enabled())
        )
        set_autocast_dtype(kind, self.fast_dtype)
        set_autocast_enabled(kind, self._enabled)
        autocast_increment_nesting()
        set_autocast_cache_enabled(self._cache_enabled)
        return self

    def __exit__(self, *exc: object) -> None:
        enabled, dtype, cache = self._saved.pop()
        autocast_decrement_nesting()
        set_autocast_enabled(self.device, enabled)
        set_autocast_dtype(self.device, dtype)
        set_autocast_cache_enabled(cache)

    def __call__(self, func: Callable[..., Any]) -> Callable[..., Any]:
        return within(func, lambda: self)


def _cast(value: Any, device_type: str, dtype: DType) -> Any:
    """The device's float tensors as `dtype`, in any container; float64 and others stay."""

    def here(tensor: Tensor) -> bool:
        return is_narrow(tensor) and tensor.device.type == device_type

    if isinstance(value, Mapping):
        return {
            _cast(k, device_type, dtype): _cast(v, device_type, dtype) for k, v in value.items()
        }
    return cast(value, dtype, here)


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, device_type: str, cast_inputs: DType | None = None
) -> Callable[..., Any]:
    """Decorate a custom Function's forward: `cast_inputs` casts its float tensors and runs it with
    autocast off; without it, backward will run under the same autocast state."""
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)
    kind = device_type_of(device_type)

    @functools.wraps(fwd)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        context = args[0]
        context._dtype = get_autocast_dtype(kind)
        enabled = is_autocast_enabled(kind)
        if cast_inputs is None or not enabled:
            context._fwd_used_autocast = enabled if cast_inputs is None else False
            return callout(fwd)(*args, **kwargs)
        context._fwd_used_autocast = False
        with autocast(kind, enabled=False):
            return callout(fwd)(
                *_cast(args, kind, cast_inputs), **_cast(kwargs, kind, cast_inputs)
            )

    return decorated


def custom_bwd(
    bwd: Callable[..., Any] | None = None, *, device_type: str
) -> Callable[..., Any]:
    """Decorate a custom Function's backward: it runs with the autocast state of forward."""
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)
    kind = device_type_of(device_type)

    @functools.wraps(bwd)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        context = args[0]
        with autocast(kind, enabled=context._fwd_used_autocast, dtype=context._dtype):
            return callout(bwd)(*args, **kwargs)

    return decorated


__all__ = ["autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]
