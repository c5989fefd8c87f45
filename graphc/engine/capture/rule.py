"""What the rules of calls give: what is called in place of a function, in the caller's frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .observer import Observer

Call = tuple[Any, tuple[Any, ...], Any]  # function, arguments, keyword arguments or None
# of one function: gives a 1-tuple with the result, or None where the function itself is called
Rule = Callable[[Observer, Any, tuple[Any, ...], dict[str, Any]], Any]


def answer(value: Any) -> Call:
    """The result is there already."""
    return _same, (value,), None


def _same(value: Any) -> Any:
    return value
