"""Derivatives whose pass is mapped over a basis, in functions that run in segments."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

from ..frontend.context import local

Function: TypeAlias = Callable[..., Any]


def in_one_piece(what: str) -> Callable[[Function], Function]:
    """Decorator: what a call records is not cut into segments, as the mapped pass goes back through
    the operators that the function ran. In a function that runs in segments it is eager."""

    def decorate(wrapper: Function) -> Function:
        @functools.wraps(wrapper)
        def call(*args: Any, **kwargs: Any) -> Any:
            trace = local.trace
            if trace is None or not trace.runs_eagerly(what):
                return wrapper(*args, **kwargs)
            with trace.eager(what):
                return wrapper(*args, **kwargs)

        return call

    return decorate
