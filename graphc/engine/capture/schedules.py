"""Param groups and learning-rate schedules: their floats are run-time numbers from the first call.

Where a schedule has made a step, they are late ones (frontend/late.py). A recording tries the step;
each call makes it for real, between its native code and its effects. So the users' functions in
it (LambdaLR's) may have no effects, and may read nothing that the call itself changes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ...frontend.context import local
from ...frontend.late import Late
from ...optim.optimizer import GroupSource
from .observer import Observer
from .places import MISSING, Place


def read_group(observer: Observer, group: Any, key: Any) -> None:
    """An entry of a param group is read, which lifts its floats itself."""
    value = dict.get(group, key, MISSING)
    if observer.trace.late.changes(group, key, value) or not observer.is_known(group):
        return
    if type(value) is float or (type(value) is tuple and _are_floats(value)):
        written = observer.was_written(Place(group, key, ""), value)
        if local.trace is not None and not written:
            path = f"the type of {observer.path(group)}[{key!r}]"
            observer.result(_type_of, (group, key), path, counted=True)
        return
    observer.read(group, key, f"{observer.path(group)}[{key!r}]", counted=True)
    if type(value) is list and key != "params":  # it may be written to unseen
        observer.whole(value, deep=False)


def is_schedule(kind: type) -> bool:
    """Whether a class is an LRScheduler, whose module need not be imported yet."""
    module = sys.modules.get("graphc.optim.lr_scheduler.base")
    return module is not None and issubclass(kind, module.LRScheduler)


def rates(observer: Observer, fields: dict[str, Any], name: str, path: str) -> Any:
    """What a schedule's get_last_lr() gives, of run-time numbers; None where that is none."""
    value: Any = fields.get(name)
    if not _are_floats(value) or observer.was_written(Place(fields, name, ""), value):
        return None
    observer.result(_types_of, (fields, name), f"the types in {path}")
    return [
        observer.trace.lift_number(rate, GroupSource(fields, name, i))
        for i, rate in enumerate(value)
    ]


def _are_floats(value: Any) -> bool:
    return type(value) in (list, tuple) and bool(value) and all(type(v) is float for v in value)


def _type_of(group: dict[str, Any], key: str) -> type:
    return type(dict.get(group, key))


def _types_of(fields: dict[str, Any], name: str) -> tuple[type, ...]:
    value = fields.get(name)
    return tuple(map(type, value)) if type(value) is list else ()


@contextmanager
def trying(observer: Observer) -> Iterator[None]:
    """Around the steps: of what runs in them, the user's functions alone are recorded."""
    def entered(function: Any) -> Callable[..., Any]:
        existed = observer.trace.existed
        if existed is not None:
            existed(function)
        recorded = observer.entry(function)

        def call(*args: Any) -> Any:
            before = observer.effects()
            with observer.observed():
                found = recorded(*args)
                if observer.effects() != before:
                    observer.open(f"{function!r}, a schedule's function that has effects,")
            return found

        return call

    outer, local.enter = local.enter, entered
    observer.looked_at = observer.read_by_schedules
    observer.taint("a schedule's step")
    try:
        with observer.unobserved():
            yield
    finally:
        observer.looked_at, local.enter = None, outer


def conflict(observer: Observer, late: Late, places: list[Place]) -> Place | None:
    """A place that a call writes to and that the steps before that write read, if there is one."""
    if not late.read:
        return None
    read = observer.read_by_schedules | late.holders.keys()
    for holder in late.holders.values():
        read |= {id(value) for value in holder.values()}
    return next((place for place in places if id(place.container) in read), None)
