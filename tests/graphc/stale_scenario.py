"""Scenarios about state that changes between the calls of a compiled function (scenario.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.graphc.scenario import Scenario

STALE: dict[str, Scenario] = {}


def stale(function: Any = None, tolerance: float = 1e-5) -> Any:
    """Register a scenario; a decorator, with or without a tolerance."""
    if function is None:
        return lambda f: stale(f, tolerance)
    STALE[function.__name__] = Scenario(function, tolerance)
    return function


class Box:
    """An object with any attributes."""

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)


def whole(compiled: Any, count: int | None = None) -> None:
    """Where it is compiled: it stayed one graph, and needed so many compilations at most."""
    if hasattr(compiled, "compile_count"):
        assert compiled.segments is None, "it runs in segments"
        if count is not None:
            assert compiled.compile_count <= count, (compiled.compile_count, compiled.last_miss)


def attempt(function: Callable[..., Any], *arguments: Any) -> Any:
    """A call's result, or the name of its error."""
    try:
        return function(*arguments)
    except Exception as error:
        return type(error).__name__
