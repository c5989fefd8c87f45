"""What a function's own exception leaves, where it comes while the Python runs under a trace.

As in eager mode, attributes, counters and containers stay as the Python left them. What the graph
would have written is not computed: places that hold values of the trace get their old ones back,
numbers their values; and so does the state of optimizers and of torch's own containers, which
belongs to the tensors.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from ...frontend.numbers import is_traced_number
from ...frontend.watched import Watched
from .argument_writes import ArgumentWrites
from .places import MISSING, Place
from .roots import Snapshot


def keep_python(
    before: Snapshot, writes: ArgumentWrites, holds: Callable[[Any], bool]
) -> None:
    """Take back what `holds` values of the trace, and nothing else."""
    before.hidden.restore(holds)
    for place, was in before.named.items():
        _settle(place, was, holds)
    for container, copy, _, _ in before.containers:
        if isinstance(container, list):
            _settle_list(container, copy, holds)
        elif type(container) is types.CellType:
            _settle(Place(container, None, ""), copy, holds)
        elif isinstance(container, Watched):
            if any(dict.get(container, key, MISSING) is not was for key, was in copy.items()) or (
                len(container) != len(copy)
            ):
                container.clear()
                container.update(copy)
        else:
            mapping = vars(container) if isinstance(container, type) else container
            for key in list(mapping):
                _settle(Place(container, key, ""), copy.get(key, MISSING), holds)
    writes.copy_back(_number, holds)


def _settle(place: Place, was: Any, holds: Callable[[Any], bool]) -> None:
    now = place.get()
    if now is was:
        return
    if is_traced_number(now):
        place.set(_number(now))
    elif holds(now):
        place.put(was)


def _settle_list(container: list[Any], was: list[Any], holds: Callable[[Any], bool]) -> None:
    now = [_number(item) for item in container]
    if any(holds(item) for item in now):
        container[:] = was
    else:
        container[:] = now


def _number(value: Any) -> Any:
    """A number of the trace as what it was in this run."""
    return value.expression.value if is_traced_number(value) else value
