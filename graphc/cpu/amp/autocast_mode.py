"""torch.cpu.amp.autocast."""

from __future__ import annotations

import warnings

from ...amp import autocast_mode
from ...ir import dtypes
from ...ir.dtypes import DType


class autocast(autocast_mode.autocast):
    """torch.amp.autocast("cpu", ...)."""

    def __init__(
        self, enabled: bool = True, dtype: DType = dtypes.bf16, cache_enabled: bool = True
    ) -> None:
        warnings.warn(
            "`torch.cpu.amp.autocast(args...)` is deprecated. Please use "
            "`torch.amp.autocast('cpu', args...)` instead.",
            FutureWarning,
            stacklevel=2,
        )
        super().__init__("cpu", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)
