"""torch.autograd: gradients by hand, custom Functions, grad modes, checks of gradients."""

from __future__ import annotations

import importlib
from typing import Any

from ..frontend.autograd import backward as backward
from ..frontend.function import Function as Function
from ..frontend.grad_mode import enable_grad as enable_grad
from ..frontend.grad_mode import inference_mode as inference_mode
from ..frontend.grad_mode import no_grad as no_grad
from ..frontend.grad_mode import set_grad_enabled as set_grad_enabled
from . import anomaly_mode as anomaly_mode
from . import function as function
from . import grad_mode as grad_mode
from . import graph as graph
from .anomaly_mode import detect_anomaly as detect_anomaly
from .anomaly_mode import set_detect_anomaly as set_detect_anomaly
from .grad_mode import is_multithreading_enabled as is_multithreading_enabled
from .grad_mode import is_view_replay_enabled as is_view_replay_enabled
from .grad_mode import set_multithreading_enabled as set_multithreading_enabled
from .gradients import grad as grad
from .variable import Variable as Variable


def __getattr__(name: str) -> Any:
    if name in ("functional", "forward_ad", "profiler"):
        return importlib.import_module(f".{name}", __name__)
    if name in ("_profiler_enabled", "_disable_profiler"):
        return getattr(importlib.import_module(".profiler", __name__), name)
    if name in ("gradcheck", "gradgradcheck"):
        # torch.autograd.gradcheck is the function, also once its module has been imported
        module = importlib.import_module(".gradcheck", __name__)
        globals().update(gradcheck=module.gradcheck, gradgradcheck=module.gradgradcheck)
        return globals()[name]
    raise AttributeError(f"module 'graphc.autograd' has no attribute {name!r}")

# what torch's module of this name gives to `import *`
__all__ = [
    "Function",
    "Variable",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "grad",
    "grad_mode",
    "gradcheck",
    "gradgradcheck",
    "inference_mode",
    "no_grad",
    "set_detect_anomaly",
    "set_grad_enabled",
    "set_multithreading_enabled",
    "variable",
]
