"""graphc/frontend/wrapped.py, beside Python's own."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from graphc.frontend import wrapped


def given(x: int, *, y: str = "y") -> str:
    """A function."""
    return y * x


given.quick = 3  # type: ignore[attr-defined]


def _called(wraps: Callable[[Any], Any]) -> Any:
    @wraps(given)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return given(*args, **kwargs)

    return wrapper


@pytest.mark.parametrize("name", sorted(
    {*functools.WRAPPER_ASSIGNMENTS, "__dict__", "__annotations__"} & set(dir(given))
))
def test_a_wrapper_is_known_as_pythons_are(name: str) -> None:
    ours, its = _called(wrapped.wraps), _called(functools.wraps)
    assert getattr(ours, name) == getattr(its, name)


def test_the_innermost_function_is_found() -> None:
    inner = _called(wrapped.wraps)
    outer = wrapped.wraps(inner)(lambda *args: inner(*args))
    assert outer(2) == "yy"
    assert wrapped.unwrapped(outer) is inspect.unwrap(outer) is given
    assert inspect.signature(outer) == inspect.signature(given)
