"""Switches that PyTorch has and that need nothing done here, answered truthfully."""

from __future__ import annotations

from typing import Any

from graphc.ir.tf32 import Setting

from ..anomaly import Anomaly
from ..context import local
from ..device import CPU
from ..device import device as device_type
from ..errors import located
from ..placement import place_of
from ..promote import set_default_dtype
from ..tensor import Tensor
from .dtype_names import TYPE_STRINGS


class _State:
    deterministic = False
    warn_only = False
    warn_always = False


def set_default_tensor_type(t: Any) -> None:
    """The default dtype by the name of a tensor type ("torch.DoubleTensor"), and where new tensors
    are made ("torch.cuda.FloatTensor")."""
    name = t if isinstance(t, str) else ".".join(
        getattr(t, part, "") for part in ("__module__", "__name__")
    )
    found = TYPE_STRINGS.get(name.rpartition(".")[2]) or getattr(t, "dtype", None)
    if found is None:
        raise TypeError(located(f"invalid type object: {t!r}"))
    place = place_of("cuda") if name.startswith("torch.cuda.") else None
    set_default_dtype(found)
    local.place = place


def get_default_device() -> device_type:
    """Where new tensors are made: as set, or as `with torch.device(...)` selects."""
    return CPU if local.place is None else local.place.device


def set_default_device(device: Any) -> None:
    """Make new tensors there from now on. Raises RuntimeError for a device that is not there."""
    local.place = None if device is None else place_of(device)


def set_float32_matmul_precision(precision: str) -> None:
    """Whether matrix products of float32 on a GPU round what they multiply to TF32: "highest" says
    no, "high" and "medium" yes. On the CPU they never do."""
    if precision not in ("highest", "high", "medium"):
        raise RuntimeError(located(
            f"{precision} is not one of 'highest', 'high', 'medium'"
        ))
    Setting.matmul = precision


def get_float32_matmul_precision() -> str:
    """What was set; "highest" at first."""
    return Setting.matmul or "highest"


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Results never depend on threads or on chance; on a GPU, generated code then multiplies all
    matrices, whose sums do not hang on the device's model."""
    _State.deterministic, _State.warn_only = bool(mode), bool(mode and warn_only)


def are_deterministic_algorithms_enabled() -> bool:
    """What use_deterministic_algorithms was told; everything is deterministic anyway."""
    return _State.deterministic


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether use_deterministic_algorithms was told to warn only; there is nothing to warn of."""
    return _State.warn_only


_DEBUG_MODES = ("default", "warn", "error")


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """use_deterministic_algorithms by "default" or 0 (off), "warn" or 1, "error" or 2. Raises
    RuntimeError for another name or number."""
    mode = debug_mode
    if isinstance(debug_mode, str):
        mode = _DEBUG_MODES.index(debug_mode) if debug_mode in _DEBUG_MODES else debug_mode
    if mode not in (0, 1, 2):
        allowed = "0, 1, or 2" if isinstance(debug_mode, int) else "`default`, `warn`, `error`"
        raise RuntimeError(located(
            f"invalid value of debug_mode, expected {'one of ' * isinstance(debug_mode, str)}"
            f"{allowed}, but got {debug_mode}"
        ))
    use_deterministic_algorithms(mode != 0, warn_only=mode == 1)


def get_deterministic_debug_mode() -> int:
    """0: off, 1: on and told to warn only, 2: on."""
    return 0 if not _State.deterministic else 1 if _State.warn_only else 2


def set_flush_denormal(mode: bool) -> bool:
    """False: not supported."""
    return False


def set_warn_always(b: bool) -> None:
    """Noted."""
    _State.warn_always = bool(b)


def is_warn_always_enabled() -> bool:
    """What was set."""
    return _State.warn_always


def is_anomaly_enabled() -> bool:
    """Whether operations note their line, for errors in backward()."""
    return Anomaly.enabled


def is_anomaly_check_nan_enabled() -> bool:
    """Whether backward() stops at the first NaN, where anomaly detection is enabled."""
    return Anomaly.check_nan


def set_anomaly_enabled(mode: bool, check_nan: bool = True) -> None:
    """Switch anomaly detection on or off; torch.autograd.set_detect_anomaly() does it for a block.
    """
    Anomaly.enabled, Anomaly.check_nan = bool(mode), bool(check_nan)


def get_num_interop_threads() -> int:
    """1: operators do not run beside each other."""
    return 1


def set_num_interop_threads(number: int) -> None:
    """Nothing to do: operators do not run beside each other."""


def assert_(condition: Any, message: str) -> None:
    """torch._assert."""
    if not condition:
        raise AssertionError(message)


assert_.__name__ = assert_.__qualname__ = "_assert"  # as graphs of torch.fx call it


def typename(obj: Any) -> str:
    """The type's full name, as torch.typename."""
    if isinstance(obj, Tensor):
        return str(obj.type())
    kind = obj if isinstance(obj, type) else type(obj)
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
