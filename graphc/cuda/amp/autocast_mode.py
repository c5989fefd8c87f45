"""torch.cuda.amp.autocast, custom_fwd and custom_bwd."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from ...amp import autocast_mode
from ...ir import dtypes
from ...ir.dtypes import DType


def _deprecated(old: str, new: str) -> None:
    warnings.warn(
        f"`torch.cuda.amp.{old}(args...)` is deprecated. Please use "
        f"`torch.amp.{old}({new})` instead.",
        FutureWarning,
        stacklevel=3,
    )


class autocast(autocast_mode.autocast):
    """torch.amp.autocast("cuda", ...)."""

    def __init__(
        self, enabled: bool = True, dtype: DType = dtypes.f16, cache_enabled: bool = True
    ) -> None:
        _deprecated("autocast", "'cuda', args...")
        super().__init__("cuda", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, cast_inputs: DType | None = None
) -> Callable[..., Any]:
    """torch.amp.custom_fwd with device_type="cuda"."""
    _deprecated("custom_fwd", "args..., device_type='cuda'")
    return functools.partial(autocast_mode.custom_fwd, device_type="cuda")(
        fwd=fwd, cast_inputs=cast_inputs
    )


def custom_bwd(bwd: Callable[..., Any]) -> Callable[..., Any]:
    """torch.amp.custom_bwd with device_type="cuda"."""
    _deprecated("custom_bwd", "args..., device_type='cuda'")
    return autocast_mode.custom_bwd(bwd, device_type="cuda")
