"""A context is current in the threads that have made it so, and in no other: a class of drivers
whose calls are refused elsewhere. Its `thread` says where it is."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from graphc.backends.cuda.errors import error_of

Kind = TypeVar("Kind", bound=type)
# Calls that are about no context.
_ANYWHERE = frozenset({
    "version", "device_count", "device_name", "device_memory", "attribute", "retain", "release",
    "make_current", "prepare",
})


def in_context(kind: Kind) -> Kind:
    """The class, with all calls that need a context refused where none is current."""
    for name, method in list(vars(kind).items()):
        if callable(method) and not name.startswith("_") and name not in _ANYWHERE:
            setattr(kind, name, _refused(name, method))
    return kind


def _refused(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        if not getattr(self.thread, "current", False):
            raise error_of(name, "CUDA_ERROR_INVALID_CONTEXT", "no context is current here")
        return method(self, *arguments, **named)

    return call
