"""torch.utils: data, checkpoint, pytrees and smaller things, imported when first asked for."""

import importlib
from typing import Any

from . import data as data

_MODULES = frozenset("""
    _device _pytree checkpoint collect_env cpp_extension dlpack flop_counter hooks model_zoo
    module_tracker tensorboard
""".split())


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
