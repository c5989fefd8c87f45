"""Updates of parameters by graphc's own optimizers, recorded as a whole.

An optimizer's `_graphc_update` is mostly arithmetic on tensors and run-time numbers, which needs
nobody who watches its lines: it runs as it is. What it reads of the user's objects, the options of
its param group and the states of its parameters, it is handed through what asks the observer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...frontend.context import local
from ...frontend.layouts import strided
from ...frontend.tensor import Tensor
from ...optim.optimizer import ParamGroup, made_for_real
from ...optim.per_parameter import PerParameter, update_sparse
from . import attributes, items, schedules
from .observer import Observer
from .rule import Rule
from .updates_again import Updates, Watched

_OWN = "graphc.optim."


def recorded(
    observer: Observer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """The rule of `per_parameter.recorded`."""
    optimizer, group = args
    trace = observer.trace
    if type(group) is not ParamGroup or trace.states is not None or not _is_own(type(optimizer)):
        return (False,)
    states = trace.states = _States(observer)
    updates = Updates(states, optimizer, options := _Options(observer, group))
    trace.line = trace.here()  # nobody else's code runs
    try:
        for param in items.iterate(observer, items.subscript(observer, group, "params")):
            grad = attributes.attribute(observer, param, "grad")
            if grad is None:
                continue
            if grad.layout is strided:
                updates.record(param, grad)
            else:
                update_sparse(optimizer, options, param, grad)
    finally:
        trace.states = trace.line = None
    return (True,)


def _is_own(kind: type) -> bool:
    """Whether the code that updates a parameter is graphc's own."""
    for each in kind.__mro__:
        fields = vars(each)
        own = each.__module__.startswith(_OWN)
        if not own and not _CODE.isdisjoint(fields):
            return False
        if own and "_graphc_update" in fields:
            return True
    return False


_CODE = frozenset((
    "_graphc_update", "_graphc_state", "_graphc_new_state", "_graphc_has_state",
    "__getattribute__", "__getattr__",
))


class _Options:
    """A param group, each of whose options is looked at once in a step."""

    __slots__ = ("_found", "_group", "_observer")

    def __init__(self, observer: Observer, group: ParamGroup) -> None:
        self._observer, self._group = observer, group
        self._found: dict[str, Any] = {}

    def __getitem__(self, key: str) -> Any:
        if local.trace is None:  # state is made for real
            return self._group[key]
        if key not in self._found:
            schedules.read_group(self._observer, self._group, key)
            self._found[key] = self._group[key]
        return self._found[key]


class _State:
    """A parameter's state. `watch`: who is told of what it is asked, and its number there."""

    __slots__ = ("_number", "_observer", "_state", "_watch")

    def __init__(
        self, observer: Observer, state: Any, watch: Watched | None = None, number: int = 0
    ) -> None:
        self._observer, self._state = observer, state
        self._watch, self._number = watch, number

    def __contains__(self, key: str) -> bool:
        found = items.contains(self._observer, key, self._state)
        if self._watch is not None:
            self._watch.asked.append(("in", self._number, key, found))
        return found

    def __getitem__(self, key: str) -> Any:
        found = items.subscript(self._observer, self._state, key)
        if self._watch is not None:
            self._watch.asked.append(("get", self._number, key, self._watch.tensor(found)))
        return found

    def __setitem__(self, key: str, value: Any) -> None:
        items.store_subscript(self._observer, self._state, key, value)
        if self._watch is not None:
            self._watch.fails = True

    def get(self, key: str) -> Any:
        """What is there; None where nothing is."""
        if key not in self:
            return None
        return self[key]


class _States:
    """The states of an optimizer's parameters, as Optimizer has them elsewhere."""

    __slots__ = ("_observer", "trace", "watch")

    def __init__(self, observer: Observer) -> None:
        self._observer, self.trace = observer, observer.trace
        self.watch: Watched | None = None

    def new(
        self, optimizer: PerParameter, param: Tensor, store: str,
        makers: Mapping[str, Callable[[Tensor], Any]],
    ) -> _State:
        """A parameter's state, with what is missing made for real."""
        state, watch = self._made(optimizer, param, store, makers), self.watch
        if watch is None:
            return _State(self._observer, state)
        number = sum([question[0] == "new" for question in watch.asked])
        watch.asked.append(("new", store, makers, None))
        return _State(self._observer, state, watch, number)

    def _made(
        self, optimizer: PerParameter, param: Tensor, store: str,
        makers: Mapping[str, Callable[[Tensor], Any]],
    ) -> Any:
        observer = self._observer
        holder = attributes.attribute(observer, optimizer, store)
        state = items.subscript(observer, holder, param)
        found = _State(observer, state)
        missing = [key for key in makers if key not in found]
        trace = local.trace
        if missing and (trace is None or param._graphc_trace is trace):
            for key in missing:
                found[key] = makers[key](param)
        elif missing:
            with made_for_real(trace, param, state, missing):
                for key in missing:
                    found[key] = makers[key](param)
            observer.whole(state)  # later calls must find what is there from now on
        return state

    def has(self, optimizer: PerParameter, param: Tensor, store: str) -> bool:
        """Whether a store has a state of the parameter's."""
        holder = attributes.attribute(self._observer, optimizer, store)
        found = items.contains(self._observer, param, holder)
        if self.watch is not None:
            self.watch.asked.append(("has", store, None, found))
        return found

    def forget(self, optimizer: PerParameter, param: Tensor, store: str) -> None:
        """Remove the parameter's state from a store, for real."""
        observer = self._observer
        if self.watch is not None:
            self.watch.fails = True
        holder = attributes.attribute(observer, optimizer, store)
        if items.contains(observer, param, holder):
            with observer.trace.suspended():
                items.delete_subscript(observer, holder, param)
                observer.note_real(holder)


PYTHON: dict[str, Rule] = {"graphc.optim.per_parameter.recorded": recorded}
