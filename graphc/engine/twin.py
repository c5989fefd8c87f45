"""A Module whose calls are compiled: of the same class, on the same state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..nn.modules.module import Module


def twin_of(module: Module, compiled: Callable[..., Any], again: tuple[Any, ...]) -> Module:
    """A Module that shares all with another one; its calls go to `compiled`. `again`: how it is
    copied and pickled (__reduce_ex__)."""
    base = type(module)

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return compiled(*args, **kwargs)

    def rebuild(self: Any, protocol: Any) -> Any:
        return again

    fields = {
        "__call__": call, "__reduce_ex__": rebuild, "__module__": base.__module__,
        "__qualname__": base.__qualname__, "__doc__": base.__doc__,
        "_compiled_function": compiled, "_orig_mod": module,
    }
    twin: Module = object.__new__(type(base.__name__, (base,), fields))
    object.__setattr__(twin, "__dict__", module.__dict__)
    return twin
