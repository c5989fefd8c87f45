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
    if Joined.wrap is None or not local.grad or local.trace is not None or (
        local.counted is not None
    ):
        return False
    recorded = False
    for tensor in tensors:
        if tensor._graphc_array.size > _MOST:
            return False
        recorded = recorded or requires_grad(tensor)
    return recorded


def joined(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of tensors, compiled; for calls that gain from it (see gains())."""

    @functools.wraps(function)
    def call(*tensors: Tensor) -> Any:
        run = Joined.made.get(function)
        if run is None:
            assert Joined.wrap is not None
            run = Joined.made[function] = Joined.wrap(function)
        return run(*tensors)

    return call
