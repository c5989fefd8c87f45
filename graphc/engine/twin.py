"""A Module whose calls are compiled: of the same class, on the same state.

Packages know it as torch's OptimizedModule (`_dynamo/eval_frame.py`), by that class's attributes.
In torch that is a Module around the other one, and names, in files too, are of both:
`_orig_mod.0.weight`. Here it is one Module, which is met once, and has these names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..nn.modules.module import Module

_INNER = "_orig_mod"  # torch's name of the Module inside


class _OptimizedModule(Module):
    """The Module around, which nobody meets: it saves and loads as torch's does."""

    def _get_name(self) -> str:
        return "OptimizedModule"


_OptimizedModule.__name__ = "OptimizedModule"  # what errors of loading call it


def twin_of(
    module: Module, compiled: Callable[..., Any], again: tuple[Any, ...], alike: Callable[..., Any]
) -> Module:
    """A Module that shares all with another one; its calls go to `compiled`. `again`: how it is
    copied and pickled (__reduce_ex__); `alike` compiles another function with the same options."""
    base = type(module)

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return compiled(*args, **kwargs)

    def assign(self: Any, name: str, value: Any) -> None:
        if name != _INNER:
            base.__setattr__(self, name, value)
        elif value is not module:  # as an attribute of both it would be a part of itself
            raise AttributeError(
                f"a compiled {base.__name__} keeps its _orig_mod; got another "
                f"{type(value).__name__}. Cure: torch.compile() of that one"
            )

    fields = {"__call__": call, "__setattr__": assign, "_compiled_function": compiled}
    return sharing(module, again, alike, fields)


def sharing(
    module: Module, again: tuple[Any, ...], alike: Callable[..., Any], fields: dict[str, Any]
) -> Module:
    """A Module of a class of its own, below the other's, with `fields`: it shares all the rest."""
    base = type(module)
    around = _OptimizedModule()
    around._modules[_INNER] = module

    def rebuild(self: Any, protocol: Any) -> Any:
        return again

    def save(self: Any, *args: Any, **kwargs: Any) -> Any:
        return around.state_dict(*args, **kwargs)

    def load(self: Any, *args: Any, **kwargs: Any) -> Any:
        return around.load_state_dict(*args, **kwargs)

    own = {
        "__reduce_ex__": rebuild, "__module__": base.__module__,
        "__qualname__": base.__qualname__, "__doc__": base.__doc__, _INNER: module,
        "dynamo_ctx": staticmethod(alike), "state_dict": save, "load_state_dict": load,
        "_graphc_around": around, "_graphc_inner": f"{_INNER}.",
    }
    twin: Module = object.__new__(type(base.__name__, (base,), own | fields))
    object.__setattr__(twin, "__dict__", module.__dict__)
    return twin
