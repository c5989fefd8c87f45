"""Functions of graphc's own that are several operators, and whose Python needs no value: one
compiled call, and one node of the tape, where a program runs with `--compile`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .context import local
from .history import requires_grad
from .tensor import Tensor

_MOST = 1 << 16  # numbers, from which on what is not needed should not be computed beside


class Joined:
    """What compiles a function (compat/modes.py); None: nothing does."""

    wrap: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None
    made: dict[Callable[..., Any], Callable[..., Any]] = {}


def gains(*tensors: Tensor) -> bool:
    """Whether one call is worth it: it records a history, and the numbers are few."""
    return (
        Joined.wrap is not None and local.grad and local.trace is None and local.counted is None
        and any(map(requires_grad, tensors)) and all(t._array.size <= _MOST for t in tensors)
    )


def joined(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of tensors, compiled where it gains."""

    @functools.wraps(function)
    def call(*tensors: Tensor) -> Any:
        if Joined.wrap is None or not gains(*tensors):
            return function(*tensors)
        run = Joined.made.get(function)
        if run is None:
            run = Joined.made[function] = Joined.wrap(function)
        return run(*tensors)

    return call
