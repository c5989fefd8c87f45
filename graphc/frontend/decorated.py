"""Context managers as decorators. A recording follows these wrappers like the user's own code."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def within(function: F, manager: Callable[[], Any]) -> F:
    """`function`, each call of it inside a context of its own, which `manager()` makes."""
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with manager():
            return function(*args, **kwargs)

    return wrapper  # type: ignore[return-value]


def generator_within(function: F, manager: Callable[[], Any]) -> F:
    """The context holds while the generator runs, not while it is suspended."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        generator = function(*args, **kwargs)
        sent: Any = None
        while True:
            try:
                with manager():
                    item = generator.send(sent)
            except StopIteration as stop:
                return stop.value
            try:
                sent = yield item
            except BaseException as error:
                with manager():
                    generator.throw(error)

    return wrapper  # type: ignore[return-value]
