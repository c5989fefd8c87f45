"""What a function's own exception leaves, where it comes while the Python runs under a trace.

As in eager mode, attributes, counters and containers stay as the Python left them. What the graph
would have written is not computed: places that hold values of the trace get their old ones back,
numbers their values; and so does the state of optimizers and of torch's own containers, which
belongs to the tensors.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from ...frontend.numbers import is_traced_number
from ...frontend.tensor import Tensor
from ...frontend.watched import Watched
from .argument_writes import ArgumentWrites
from .copies import put_back
from .observer import Observer
from .places import MISSING, Place


def keep_python(observer: Observer, writes: ArgumentWrites) -> None:
    """Take back what holds values of the trace, and nothing else."""
    def holds(value: Any) -> bool:
        return _holds(observer, value)

    for place, was in observer.fields.items():
        _settle(place, was, holds)
    for container, copy, _ in observer.saved.values():
        if isinstance(container, Watched):
            put_back(container, copy)
        elif isinstance(container, (dict, type)):
            mapping = vars(container) if isinstance(container, type) else container
            for key in list(mapping):
                _settle(Place(container, key, ""), copy.get(key, MISSING), holds)
        elif isinstance(container, list):
            now = [_number(item) for item in container]
            container[:] = copy if any(map(holds, now)) else now
        elif not isinstance(copy, bytes) and any(map(holds, container)):
            put_back(container, copy)
    writes.copy_back(_number, holds)


def carries(observer: Observer, error: BaseException) -> bool:
    """Whether an error, or one that it came from, holds values of the trace."""
    found: BaseException | None = error
    while found is not None:
        if _holds(observer, [found.args, vars(found)]):
            return True
        found = found.__cause__ or found.__context__
    return False


def _holds(observer: Observer, value: Any) -> bool:
    """Whether something that the function made holds values of the trace."""
    stack, seen = [value], set()
    while stack:
        item = stack.pop()
        if (isinstance(item, Tensor) and item._trace is not None) or is_traced_number(item):
            return True
        if id(item) in seen or isinstance(item, (Tensor, type)) or observer.is_known(item):
            continue
        seen.add(id(item))
        if isinstance(item, dict):
            stack += item.values()
        elif isinstance(item, (list, tuple, set, frozenset, deque)):
            stack += item
        else:
            stack += getattr(item, "__dict__", {}).values()
    return False


def _settle(place: Place, was: Any, holds: Callable[[Any], bool]) -> None:
    now = place.get()
    if now is was:
        return
    if is_traced_number(now):
        place.set(_number(now))
    elif holds(now):
        place.put(was)


def _number(value: Any) -> Any:
    """A number of the trace as what it was in this run."""
    return value.expression.value if is_traced_number(value) else value
