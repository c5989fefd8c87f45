"""Scripts about gradients that cross a compiled function's border, for test_gradients_across.py.

A case is a script of (torch, compile) that gives what a user would look at. In float64: the sums
may be taken in another order, and nothing else may differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

CASES: dict[str, Callable[[Any, Any], Any]] = {}


def case(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Register a script."""
    assert function.__name__ not in CASES
    CASES[function.__name__] = function
    return function


def leaf(torch: Any, *values: float) -> Any:
    """A leaf that requires a gradient."""
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def failure(call: Callable[[], Any], *words: str) -> Any:
    """Which kind of error a call raises, and which of the words its text has."""
    try:
        call()
    except Exception as error:
        return type(error).__name__, [word in str(error) for word in words]
    return "no error"
