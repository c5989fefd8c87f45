"""`step(optimizer)`: the update of all its parameters as a native call for each group."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import backends
from ...frontend import state_version
from ...frontend.errors import TraceError
from ...frontend.layouts import NotDense
from ...frontend.watched import Watched, WatchedDefault
from ...ir import dtypes
from .rows import Batch, Row, Spans, Unfit
from .rule import ITEM, OPTION, Kind, Numbers, Rule, Source, record

_MOST = 8  # rules of one kind, and kinds of one optimizer's class; beyond, steps are eager
_ERRORS = (ArithmeticError, ValueError, TypeError)  # of Python's computations on numbers

_PLAIN = (bool, str, type(None))

_rules: dict[Kind, list[Rule]] = {}
_refused: set[Kind] = set()
_plans: dict[int, tuple[weakref.ref[Any], Plan]] = {}


def step(optimizer: Any, counts: Sequence[str]) -> bool:
    """Update every parameter that has a gradient. False: nothing has happened, as some of it is
    no native code's to do. `counts`: which states are numbers of the host."""
    known = _plans.get(id(optimizer))
    if known is None:
        number = id(optimizer)
        reference = weakref.ref(optimizer, lambda _: _plans.pop(number, None))
        known = _plans[number] = reference, Plan(counts)
    plan = known[1]
    try:
        batches = plan.batches(optimizer)
    except (Unfit, NotDense):
        plan.forget()
        return False
    for batch in batches:
        batch.run()
    return True


class Plan:
    """What is known of one optimizer's parameters."""

    def __init__(self, counts: Sequence[str]) -> None:
        self._counts = tuple(counts)
        self._rows: dict[int, Row] = {}  # by the id of the parameter, which the row keeps
        self._made: dict[Any, Batch] = {}
        self._spans: Spans | None = None
        # by the group's number: its options as they were, and what they come to
        self._options: dict[int, tuple[list[Any], Any, dict[Source, Any]]] = {}
        self._states: Any = None
        self._version = -1

    def forget(self) -> None:
        """Keep nothing of the user's."""
        self.__init__(self._counts)  # type: ignore[misc]

    def batches(self, optimizer: Any) -> list[Batch]:
        """What is to be run, in order. Raises Unfit."""
        states = optimizer.state
        if not isinstance(states, dict):
            raise Unfit
        version = state_version.current()
        if states is self._states and type(states) is WatchedDefault and version == self._version:
            changed = None
        else:
            changed, self._states = states, states
        owner = _owner(type(optimizer))
        found: list[tuple[Any, list[Row], list[Any], list[Any]]] = []
        for number, group in enumerate(optimizer.param_groups):
            found += self._group(number, group, states, changed, owner, optimizer.defaults)
        if self._spans is None:
            self._spans = Spans(list(self._rows.values()))
        every = [row for _, rows, _, _ in found for row in rows]
        if len(set(every)) != len(every):  # a parameter that is there twice
            raise Unfit
        batches = [self._filled(*parts) for parts in found]
        self._version = version
        return batches

    def _group(
        self, number: int, group: Any, states: Any, changed: Any, owner: type, defaults: Any
    ) -> list[tuple[Any, list[Row], list[Any], list[Any]]]:
        """Rows that share their numbers: (what the batch is known by, rows, gradients, numbers)."""
        values = [dict.get(group, name, ()) for name in defaults]
        known_options = self._options.get(number)
        if known_options is None or len(values) != len(known_options[0]) or any(
            a is not b for a, b in zip(values, known_options[0], strict=True)
        ):
            known_options = self._options[number] = values, *_options(group, defaults)
        _, options, given = known_options
        together: dict[Any, tuple[list[Row], list[Any]]] = {}
        known = self._rows.get
        for param in dict.__getitem__(group, "params"):
            gradient = param._grad
            if gradient is None:
                continue
            row = known(id(param))
            if row is None or not row.stands(changed):  # (the row keeps its parameter's id taken)
                row = self._row(param, states)
            array, own = gradient._graphc_array, row.array
            if type(array) is not np.ndarray or array.shape != own.shape or (
                array.dtype is not own.dtype and array.dtype != own.dtype
            ):
                raise Unfit
            key = row.kind, row.numbers()
            found = together.get(key)
            if found is None:
                found = together[key] = [], []
            found[0].append(row)
            found[1].append(array if array.flags.c_contiguous else np.ascontiguousarray(array))
        result = []
        for place, (((_, names), values), (rows, arrays)) in enumerate(together.items()):
            what = Kind(
                owner, options, dtypes.from_numpy(rows[0].array.dtype), names,
                tuple([name for name in names if name in self._counts]),
            )
            numbers = dict(given)
            for name, value in zip(what.counts, values, strict=True):
                numbers[name, OPTION] = value
            result.append(((number, place), rows, arrays, [what, numbers]))
        return result

    def _row(self, param: Any, states: Any) -> Row:
        state = states.get(param, {})
        if not isinstance(state, dict):
            raise Unfit
        address = backends.get(backends.DEFAULT).memory.address
        row = self._rows[id(param)] = Row(param, state, self._counts, address, Watched)
        self._spans = None
        return row

    def _filled(
        self, place: Any, rows: list[Row], arrays: list[Any], asked: list[Any]
    ) -> Batch:
        rule, numbers, counts = _rule(*asked)
        assert self._spans is not None
        batch = self._made.get((place, rule))
        if batch is None:
            batch = self._made[place, rule] = Batch(rule)
        batch.fill(rows, arrays, self._spans, numbers, counts)
        return batch


def _owner(kind: type) -> type:
    """The class of graphc's whose `_update` an optimizer has. Raises Unfit for a user's."""
    for each in kind.__mro__:
        if "_graphc_update" in vars(each) or "_graphc_new_state" in vars(each):
            if "_graphc_update" in vars(each) and each.__module__.startswith("graphc.optim."):
                return each
            break
    raise Unfit


def _options(group: Any, names: Any) -> tuple[tuple[tuple[str, Any], ...], dict[Source, Any]]:
    """A group's options without the values of numbers, and these by source. Raises Unfit."""
    options: list[tuple[str, Any]] = []
    given: dict[Source, Any] = {}
    for name in names:
        value = dict.get(group, name, ())
        kind = type(value)
        if kind is np.float64:  # a float, of a schedule that NumPy computes
            kind, value = float, float(value)
        if kind is float or kind is int:
            given[name, OPTION] = value
            options.append((name, Numbers((kind,), False)))
        elif kind is tuple and value and all(type(item) in (float, int) for item in value):
            for i, item in enumerate(value):
                given[name, ITEM + i] = item
            options.append((name, Numbers(tuple(map(type, value)), True)))
        elif kind in _PLAIN and not (name == "differentiable" and value):
            options.append((name, value))
        else:
            raise Unfit
    return tuple(options), given


def _rule(kind: Kind, given: dict[Source, Any]) -> tuple[Rule, list[Any], list[Any]]:
    """The rule for these numbers, and what comes of them. Raises Unfit."""
    rules = _rules.get(kind, ())
    values = list(given.values())
    try:
        for rule in rules:
            found = rule.numbers(values)
            if found is not None:
                return rule, *found
        if kind in _refused or len(rules) >= _MOST or len(_rules) >= _MOST * _MOST:
            raise Unfit
        rule = record(kind, given)
        found = rule.numbers(values)
    except _ERRORS:  # eager mode raises it, at the right parameter
        raise Unfit from None
    except TraceError:
        _refused.add(kind)
        raise Unfit from None
    if found is None:
        raise Unfit
    _rules.setdefault(kind, []).append(rule)
    return rule, *found
