"""Numbers that the steps of learning-rate schedules change, under a trace.

A schedule under a trace steps at the end of each call, as it is, so that no version depends on
what its Python decides. What its step has changed is a *late* number from then on: each call finds
it when the native code has run and the step is made. It may go to results, texts and effects; what
a graph computes with it, and what Python decides upon it, ends the graph. While the trace runs, the
steps are tried and taken back, for the values of the example.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from .context import local
from .stepped import stepped
from .tensor import Tensor
from .watched import Watched

if TYPE_CHECKING:
    from .number_expr import NumberExpr
    from .trace import Trace

Step = Callable[[], None]
OF_GROUPS = frozenset(("lr", "momentum", "betas"))  # what schedules write to param groups
OPEN = "is not known before the end of the call", "do this before scheduler.step()"


class LateSource:
    """A number as the last of some steps leaves it: an attribute of a schedule, an entry of a
    param group, or one of its items."""

    __slots__ = ("holder", "index", "key", "step")
    late = True

    def __init__(self, holder: dict[str, Any], key: str, index: int | None, step: Step) -> None:
        self.holder, self.key, self.index, self.step = holder, key, index, step

    def _identity(self) -> tuple[Any, ...]:
        return id(self.holder), self.key, self.index, id(self.step)

    def __hash__(self) -> int:
        return hash(self._identity())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LateSource) and self._identity() == other._identity()

    def fetch(self) -> Any:
        """The number now."""
        value = dict.__getitem__(self.holder, self.key)
        return value if self.index is None else value[self.index]

    @property
    def name(self) -> str:
        """What people read."""
        return self.key if self.index is None else f"{self.key}[{self.index}]"

    def __repr__(self) -> str:
        return f"{self.name} after a schedule's step"


class Late:
    """What a trace leaves to the end of each call that changes numbers."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.allowed = False  # whether a call has an end
        self.steps: list[Step] = []
        self.holders: dict[int, dict[str, Any]] = {}  # what these write to
        self._optimizers: list[Any] = []
        self.read = False  # whether a late number was
        # around the steps while they are tried: the user's functions may be among them
        self.trying: Callable[[], AbstractContextManager[None]] = nullcontext
        self._tried: tuple[int, dict[int, dict[str, Any]]] = 0, {}

    def defer(self, step: Step, schedule: Any) -> bool:
        """Leave a schedule's step to the end of each call; False: it is to be made now."""
        trace = self._trace
        if not (self.allowed and trace.whole) or not all(
            type(each).__module__.startswith("graphc.") for each in _all(schedule)
        ):  # a user's schedule may read anything
            return False
        self.steps.append(step)
        self._optimizers.append(schedule.optimizer)
        trace.deferred.append(step)
        for holder in (*map(vars, _all(schedule)), *schedule.optimizer.param_groups):
            self.holders[id(holder)] = holder
        return True

    def clear(self) -> None:
        """The steps are made."""
        self.steps.clear()
        self._optimizers.clear()
        self.holders.clear()

    def __contains__(self, holder: Any) -> bool:
        return id(holder) in self.holders

    def changes(self, holder: Any, key: Any, value: Any) -> bool:
        """Whether the steps may put another value where this one is: they put numbers and tensors
        of one, and lists of these, one for each group."""
        if id(holder) not in self.holders:
            return False
        if isinstance(holder, Watched) and key not in OF_GROUPS:
            return False
        items = value if type(value) in (list, tuple) else (value,)
        return any(type(item) in (int, float) or isinstance(item, Tensor) for item in items)

    def value(self, holder: dict[str, Any], key: str) -> Any:
        """What is there after the steps so far, with late numbers in it; raises KeyError where
        nothing is."""
        found = self._after(holder)[key]
        kept = type(found) in (list, tuple)
        items = [
            self._number(item, LateSource(holder, key, i if kept else None, self.steps[-1]))
            for i, item in enumerate(found if kept else [found])
        ]
        return type(found)(items) if kept else items[0]

    def _number(self, value: Any, source: LateSource) -> Any:
        if type(value) not in (int, float):
            self._trace.end_segment(f"reading {source!r}", "read it before scheduler.step()")
            return source.fetch()  # the steps are made
        if local.trace is not self._trace:
            return value
        self.read = True
        return self._trace.lift_number(value, source)

    def _after(self, holder: dict[str, Any]) -> dict[str, Any]:
        """What the steps leave in one of the holders."""
        if self._tried[0] != len(self.steps):
            with self.taken_back():
                for step in self.steps:
                    step()
                self._tried = len(self.steps), {i: dict(h) for i, h in self.holders.items()}
        return self._tried[1][id(holder)]

    @contextmanager
    def taken_back(self) -> Iterator[None]:
        """Inside, the steps may be made outside of the trace: what they change is put back."""
        kept = {i: dict(holder) for i, holder in self.holders.items()}
        try:
            with self._trace.suspended(), stepped.all_of(self._optimizers), self.trying():
                yield
        finally:
            for i, holder in self.holders.items():
                dict.clear(holder)
                dict.update(holder, kept[i])

    def forbid(self, expression: NumberExpr, what: str) -> None:
        """End the graph where a late number is needed before the end of the call."""
        if expression.late:
            number = _first(expression)
            self._trace.end_segment(f"{what} {number!r}, which {OPEN[0]},", OPEN[1])


def _first(expression: NumberExpr) -> Any:
    """A late source that an expression reads."""
    while expression.op != "source":
        expression = next(a for a in expression.args if getattr(a, "late", False))
    return expression.args[0]


def _all(schedule: Any) -> Iterator[Any]:
    """A schedule and those that it steps."""
    yield schedule
    for inner in getattr(schedule, "_schedulers", ()):
        yield from _all(inner)
