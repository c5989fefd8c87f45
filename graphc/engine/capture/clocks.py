"""The clock: a run-time number of each call.

Read before anything is recorded, it says when a call begins, read after everything, when it ends (a
late number, frontend/late.py). In between it would say how long a part of the graph takes: open.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

from .observer import Observer
from .rule import Rule

_order = itertools.count()


class Clock:
    """A reading: the source of a lifted number. Readings are made in their order."""

    __slots__ = ("late", "number", "read")

    def __init__(self, read: Callable[[], Any], late: bool) -> None:
        self.read, self.late, self.number = read, late, next(_order)

    def fetch(self) -> Any:
        """What the clock says."""
        return self.read()

    @property
    def name(self) -> str:
        """What people read."""
        return f"time.{self.read.__name__}()"

    def __repr__(self) -> str:
        return self.name


def _read(observer: Observer, function: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    trace = observer.trace
    if not trace.builder.count and not observer.began:
        observer.began = True
        return (trace.lift_number(function(), Clock(function, late=False)),)
    if observer.ended is None:
        observer.ended = trace.builder.count
    trace.late.read = True
    return (trace.lift_number(function(), Clock(function, late=True)),)


RULES: dict[str, Rule] = dict.fromkeys((
    f"time.{name}" for name in dir(time)
    if name.removesuffix("_ns") in ("time", "perf_counter", "monotonic", "process_time")
), _read)
