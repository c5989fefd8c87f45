"""A call that is for Python: its native code refused, or its recording has raised.

Native code checks before its first visible write (an index out of range, an integer divided by
zero), and a recording is taken back, so nothing has happened yet. The function runs once in eager
mode: it may catch the error, or count it in a `finally`, and what it leaves is what eager mode
leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...frontend.context import local
from ...frontend.errors import locate
from ...ir.failure import is_late
from ...ir.named import NamedTuple

ERRORS = (IndexError, RuntimeError, ValueError, ZeroDivisionError)


def is_refusal(error: BaseException) -> bool:
    """Whether native code raised an error, before it wrote anything."""
    return getattr(error, "by_native_code", False)


def mark(error: Any) -> None:
    """Note that native code raised it: not, where a device's queue told of it while the code ran.
    That may have failed in an earlier call, and is the user's to see."""
    error.by_native_code = not is_late(error)


def note_run(error: Any, looked: bool = False) -> None:
    """Note that the function's Python has run as it is written up to this error, for all to see:
    who called it is not to run it once more. `looked`: it was a recording that is taken back."""
    if not looked:
        error.python_has_run = True


def note_taken_back(error: Any) -> None:
    """Note that nothing is left of the run that raised it, or of what it called."""
    if has_run(error):
        error.python_has_run = False


def has_run(error: BaseException) -> bool:
    """Whether the function's Python has run as it is written, and raised this error."""
    return getattr(error, "python_has_run", False)


def as_written(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call a function that is compiled elsewhere, here as a part of what runs around it."""
    try:
        return function(*args, **kwargs)
    except BaseException as error:
        if local.trace is None:
            note_run(error)
        raise


def run_python(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Run a function in eager mode; errors of graphc's own operators name the user's line."""
    outer, local.instead = local.instead, True
    try:
        return function(*args, **kwargs)
    except BaseException as error:
        if isinstance(error, ERRORS):
            locate(error)
        note_run(error)
        raise
    finally:
        local.instead = outer


class Ran(NamedTuple):
    """A call that was made while it was recorded."""

    result: Any


class Raises:
    """The recordings of one function, in a row, that ended in the user's own error."""

    def __init__(self) -> None:
        self.count = 0

    @property
    def many(self) -> bool:
        """Whether the next is no use: calls are eager ones until one comes to its end."""
        return self.count >= _MANY

    def run(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Run in eager mode what raises, probably."""
        self.count += 1
        result = run_python(function, args, kwargs)
        self.count = 0
        return result


_MANY = 8
