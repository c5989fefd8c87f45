"""torch.autograd.anomaly_mode: stop at the first NaN in backward() and name the forward line."""

from __future__ import annotations

import warnings

from ..frontend.anomaly import Anomaly


class _Mode:
    def __init__(self, mode: bool, check_nan: bool) -> None:
        self._before = Anomaly.enabled, Anomaly.check_nan
        self._wanted = bool(mode), bool(check_nan)

    def _set(self) -> None:
        Anomaly.enabled, Anomaly.check_nan = self._wanted

    def __enter__(self) -> None:
        self._set()

    def __exit__(self, *exc: object) -> None:
        Anomaly.enabled, Anomaly.check_nan = self._before


class detect_anomaly(_Mode):
    """Within the block, operations note their line; backward() raises RuntimeError at the first
    NaN that it computes (where `check_nan`) and names the line of the operation it belongs to."""

    def __init__(self, check_nan: bool = True) -> None:
        super().__init__(True, check_nan)
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should "
            "only be enabled for debugging.",
            stacklevel=2,
        )


class set_detect_anomaly(_Mode):
    """The same switched on or off: at once by a call, or for a block."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        super().__init__(mode, check_nan)
        self._set()
