"""graphc's own settings that a function switches: each call switches them as the recording did.

What a setting was before is a guard where the function has asked for it.
"""

from __future__ import annotations

from typing import Any

from ...frontend.anomaly import Anomaly
from ...frontend.functions import settings
from ...frontend.promote import Defaults
from ...ir import tf32
from .observer import Observer

# where graphc's own functions keep what they set, and what they tell
_OWN: dict[str, tuple[type, str]] = {
    "set_default_dtype": (Defaults, "dtype"),
    "set_default_tensor_type": (Defaults, "dtype"),
    "use_deterministic_algorithms": (settings._State, "deterministic"),
    "are_deterministic_algorithms_enabled": (settings._State, "deterministic"),
    "set_float32_matmul_precision": (tf32.Setting, "matmul"),
    "get_float32_matmul_precision": (tf32.Setting, "matmul"),
    "set_warn_always": (settings._State, "warn_always"),
    "is_warn_always_enabled": (settings._State, "warn_always"),
    "is_anomaly_enabled": (Anomaly, "enabled"),
    "is_anomaly_check_nan_enabled": (Anomaly, "check_nan"),
}


def read(observer: Observer, function: Any, name: str, args: tuple[Any, ...]) -> Any:
    """What a function of graphc's own tells of a setting."""
    if name not in _OWN:
        return observer.result(function, args, f"{name}()")
    observer.read(*_OWN[name], f"{name}()")
    return function(*args)


def write(observer: Observer, name: str) -> None:
    """A function of graphc's own is about to change a setting."""
    if name in _OWN:
        observer.write(*_OWN[name], "torch's settings")
    else:
        observer.open(f"{name}(), which changes a setting for what follows,")
