"""torch.nn: layers, losses, functional forms, initialisation."""

import importlib
from typing import Any

from ..collecting import IMPORTING as _IMPORTING

with _IMPORTING:
    from . import common_types, functional, grad, init, modules, parallel, parameter, utils
    from .modules import *  # noqa: F403
    from .parallel import DataParallel
    from .parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter


def __getattr__(name: str) -> Any:
    if name in ("attention", "quantized"):
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
