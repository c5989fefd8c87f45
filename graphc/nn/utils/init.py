"""skip_init."""

from __future__ import annotations

import inspect
from typing import Any

from ...frontend.random_state import get_rng_state, set_rng_state
from ..modules.module import Module


def skip_init(module_cls: Any, *args: Any, **kwargs: Any) -> Module:
    """A module whose parameters' values do not matter; the random stream stays where it is."""
    if not issubclass(module_cls, Module):
        raise RuntimeError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError("Module must support a 'device' arg to skip initialization")
    state = get_rng_state()
    try:
        made: Module = module_cls(*args, **kwargs)
        return made
    finally:
        set_rng_state(state)
