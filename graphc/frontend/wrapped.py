"""functools.wraps and inspect.unwrap, for Python functions: an import wraps a thousand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

W = TypeVar("W", bound=Callable[..., Any])


def wraps(function: Any) -> Callable[[W], W]:
    """What makes a function known as another one, which it calls."""

    def known_as(wrapper: Any) -> Any:
        wrapper.__module__, wrapper.__doc__ = function.__module__, function.__doc__
        wrapper.__name__, wrapper.__qualname__ = function.__name__, function.__qualname__
        wrapper.__annotations__ = function.__annotations__
        if function.__dict__:
            wrapper.__dict__.update(function.__dict__)
        wrapper.__wrapped__ = function
        return wrapper

    return known_as


def unwrapped(function: Any) -> Any:
    """The function that is in all of the wrappers."""
    while (inner := getattr(function, "__wrapped__", None)) is not None:
        function = inner
    return function
