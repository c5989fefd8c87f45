"""Scenarios: one script, run by PyTorch, by graphc eager and by graphc compiled.

A scenario is a function of (torch, nn, F, compile) that gives what a user would look at: tensors,
numbers, flags, in nested containers. For PyTorch and for eager mode `compile` does nothing. All
three must give the same, to the scenario's tolerance; random numbers too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Scenario(NamedTuple):
    """A script and the relative and absolute tolerance of its numbers."""

    function: Callable[..., Any]
    tolerance: float


SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Any = None, tolerance: float = 1e-5) -> Any:
    """Register a scenario; a decorator, with or without a tolerance."""
    if function is None:
        return lambda f: scenario(f, tolerance)
    SCENARIOS[function.__name__] = Scenario(function, tolerance)
    return function


def identity(function: Any = None, **_options: Any) -> Any:
    """What stands for compile() in eager runs."""
    return (lambda f: f) if function is None else function


def mlp(torch: Any, nn: Any, seed: int = 1) -> Any:
    """4-8-3 with the same weights at each call."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def data(torch: Any, seed: int = 0) -> tuple[Any, Any]:
    """Six rows for mlp() and their classes."""
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.standard_normal((6, 4)).astype("f"))
    return x, torch.from_numpy(rng.integers(0, 3, 6))


def flat(value: Any, found: list[Any] | None = None) -> list[Any]:
    """The leaves of what a scenario gave; tensors as copies of their arrays."""
    found = [] if found is None else found
    if isinstance(value, (list, tuple)):
        for item in value:
            flat(item, found)
    elif isinstance(value, dict):
        for key, item in value.items():
            found.append(key)
            flat(item, found)
    elif hasattr(value, "detach"):
        found.append(np.array(value.detach().numpy()))
    else:
        found.append(value if isinstance(value, (str, bool, int, float, type(None))) else None)
    return found


def run(function: Any, torch: Any, compile: Any) -> list[Any]:
    """The leaves that a scenario gives with this torch."""
    torch.manual_seed(0)
    return flat(function(torch, torch.nn, torch.nn.functional, compile))


def compare(expected: list[Any], found: list[Any], tolerance: float) -> None:
    """Fail unless both are the same kinds of things with the same values."""
    assert len(expected) == len(found)
    for i, (a, b) in enumerate(zip(expected, found, strict=True)):
        assert type(a) is type(b), (i, a, b)
        if isinstance(a, np.ndarray):
            assert (a.dtype, a.shape) == (b.dtype, b.shape), i
            np.testing.assert_allclose(b, a, tolerance, tolerance, err_msg=f"leaf {i}")
        elif isinstance(a, float):
            assert abs(a - b) <= tolerance * max(1, abs(a)), (i, a, b)
        else:
            assert a == b, (i, a, b)
