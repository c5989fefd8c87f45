"""A Module whose calls are compiled: of the same class, on the same state.

Packages know it as torch's OptimizedModule (`_dynamo/eval_frame.py`), by that class's attributes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from ..nn.modules.module import Module
from ..nn.modules.utils import consume_prefix_in_state_dict_if_present

_INNER = "_orig_mod"  # torch's name of the Module inside; keys that torch saved begin with it


def twin_of(
    module: Module, compiled: Callable[..., Any], again: tuple[Any, ...], alike: Callable[..., Any]
) -> Module:
    """A Module that shares all with another one; its calls go to `compiled`. `again`: how it is
    copied and pickled (__reduce_ex__); `alike` compiles another function with the same options."""
    base = type(module)

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return compiled(*args, **kwargs)

    def rebuild(self: Any, protocol: Any) -> Any:
        return again

    def assign(self: Any, name: str, value: Any) -> None:
        if name != _INNER:
            base.__setattr__(self, name, value)
        elif value is not module:  # as an attribute of both it would be a part of itself
            raise AttributeError(
                f"a compiled {base.__name__} keeps its _orig_mod; got another "
                f"{type(value).__name__}. Cure: torch.compile() of that one"
            )

    def load(self: Any, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        return base.load_state_dict(self, _own_keys(state_dict), *args, **kwargs)

    fields = {
        "__call__": call, "__reduce_ex__": rebuild, "__module__": base.__module__,
        "__qualname__": base.__qualname__, "__doc__": base.__doc__, "__setattr__": assign,
        "load_state_dict": load, "_compiled_function": compiled, _INNER: module,
        "dynamo_ctx": staticmethod(alike),
    }
    twin: Module = object.__new__(type(base.__name__, (base,), fields))
    object.__setattr__(twin, "__dict__", module.__dict__)
    return twin


def _own_keys(state_dict: Mapping[str, Any]) -> Mapping[str, Any]:
    """Without torch's prefix, where every key has it: what torch saves of a compiled Module."""
    prefix = f"{_INNER}."
    if not state_dict or not all(key.startswith(prefix) for key in state_dict):
        return state_dict
    found: Any = copy.copy(state_dict)
    if hasattr(found, "_metadata"):
        found._metadata = dict(found._metadata)
    consume_prefix_in_state_dict_if_present(found, prefix)
    return found
