"""Context variables: what one is, is guarded; the call sets it for good nowhere."""

from __future__ import annotations

from typing import Any

from .observer import Observer


def _context_value(observer: Observer, function: Any, args: Any, kwargs: Any) -> Any:
    if function.__self__ in observer.contexts:  # the call has set it itself
        return None
    return (observer.result(function, args, f"{function.__self__.name}.get()"),)


def _context_set(observer: Observer, function: Any, args: Any, kwargs: Any) -> Any:
    token = function(*args)
    observer.contexts.setdefault(function.__self__, token)
    return (token,)


def _context_reset(observer: Observer, function: Any, args: Any, kwargs: Any) -> Any:
    variable, token = function.__self__, args[0]
    if observer.contexts.get(variable) is token:
        del observer.contexts[variable]
    elif variable not in observer.contexts:
        observer.open(f"{variable.name}.reset() of what was set before the call")
    return None


RULES = {
    "ContextVar.get": _context_value, "ContextVar.set": _context_set,
    "ContextVar.reset": _context_reset,
}  # fmt: skip
