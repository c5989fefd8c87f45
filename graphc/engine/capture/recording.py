"""What one run of a function's Python under a trace did to the objects that it reaches.

The trace itself changes nothing that lasts: put_back() gives every place its old value, and the
compiled version does the changes again at each call (stored tensors and numbers from the graph,
everything else by replay).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

from ...frontend.captured import TensorInput
from ...frontend.context import local
from ...frontend.errors import TraceError, located
from ...frontend.numbers import is_traced_number
from ...frontend.pending import PendingItem
from ...frontend.segment_trace import SegmentTrace
from ...frontend.tensor import Tensor
from ...frontend.trace import Trace
from ...frontend.tree import flatten
from ..version.rebuild import NotRebuilt, Rebuild, resolved
from .argument_writes import ArgumentWrites
from .console import NoticedPrint
from .failed import keep_python
from .places import Place
from .roots import Snapshot


class Turned(Exception):
    """The function met a demand and went on in segments: it has run, with this result.

    `passing`: the next call may well be one graph.
    """

    def __init__(self, result: Any, trace: Trace, passing: bool) -> None:
        super().__init__("ran in segments")
        self.result, self.trace, self.passing = result, trace, passing


class FirstUse(TraceError):
    """State is made in a way that one graph cannot do again; later calls will find it made."""


class Recording:
    """One run of the Python under a trace, and what it did to the roots."""

    def __init__(
        self, name: str, trace: Trace, before: Snapshot, leaves: list[Any]
    ) -> None:
        self.name, self.trace, self.before, self.leaves = name, trace, before, leaves
        self.writes = ArgumentWrites((), ())
        self.after: Snapshot | None = None
        self.traced: Any = None
        self.replay: list[tuple[Place, Any]] = []
        self.stored: dict[Place, Any] = {}
        self.old_values: list[tuple[Place, Any]] = []
        self.lifted: list[tuple[Place, Any]] = []
        self.rebuild: Rebuild  # of the result and of what is stored
        self.missing: list[Tensor] = []
        self.materialise: list[Tensor] = []

    def lift(self, place: Place) -> None:
        """Make a number in a root a run-time input for this trace."""
        value = place.get()
        if type(value) in (int, float):
            self.lifted.append((place, value))
            place.set(self.trace.lift_number(value, place))

    def run(self, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
        """Run the Python and end the trace. Raises Turned if it went on in segments."""
        trace = self.trace
        if isinstance(trace, SegmentTrace):
            trace.entry = _RUN
        trace.may_defer = not self.before.reads(_OF_SCHEDULES)
        try:
            with NoticedPrint():
                held = [function(*args, **kwargs)]
        except BaseException:
            if not trace.whole:
                trace.flush()  # what eager mode would have done by now is done
                self.writes.copy_back(self._given)
            raise
        if trace.refused is not None:  # the user's code caught it
            raise trace.refused
        if trace.whole:
            try:
                self._effects()
                self._take_apart(held)
            except TraceError as error:
                if not isinstance(trace, SegmentTrace) or trace.tainted:
                    raise
                trace.note_end(str(error).split(". Cure")[0])
                trace.passing = isinstance(error, FirstUse)
            else:
                self._finish()
                return
        trace.flush()
        self.writes.copy_back(self._given)
        raise Turned(resolved(held[0], self._given, self.before.knows), trace, trace.passing)

    def _given(self, leaf: Any) -> Any:
        """What a part of the result is after the trace went on in segments."""
        if isinstance(leaf, PendingItem):
            return leaf.tensor.item()
        return self.writes.originals.get(id(leaf), leaf)

    def _take_apart(self, held: list[Any]) -> None:
        """Say how the result, and what is stored, are made anew; raises TraceError."""
        held += self.stored.values()
        try:
            self.rebuild = Rebuild(held, self._was_there, self.writes.originals.keys())
        except NotRebuilt as error:
            raise TraceError(located(
                f"compiled {self.name}() gives back {error}, which one graph cannot make again at "
                "every call. Cure: give back tensors in plain containers, or leave out "
                "fullgraph=True"
            )) from None  # fmt: skip

    def _was_there(self, value: Any) -> bool:
        """Whether an object was there before the call."""
        trace = self.trace
        return self.before.knows(value) or (isinstance(value, Tensor) and (
            trace.argument_index(value) >= 0 or trace.grad_owner(value) is not None
        ))

    def _finish(self) -> None:
        traced = self.trace.finish(self.rebuild.take_leaves(), {}, backward=local.grad)
        written = {id(w.tensor) for w in traced.grads if w.value is not None}
        self.missing = [
            read.tensor for read in traced.grad_reads
            if not read.present and id(read.tensor) in written
        ]
        self.traced = traced

    def _effects(self) -> None:
        try:
            changes = list(self.before.changes())
        except ValueError as error:
            raise TraceError(located(
                f"compiled {self.name}() {error}, which one graph cannot do again at every call. "
                "Cure: do that outside and pass the value in or out, or leave out fullgraph=True"
            )) from None  # fmt: skip
        for original, _ in self.writes.written():
            raise TraceError(located(
                f"compiled {self.name}() writes to a {type(original).__name__} among its "
                "arguments. Cure: return what it puts there, or leave out fullgraph=True"
            ))  # fmt: skip
        lifted = dict(self.lifted)
        for place, old, now in changes:
            if (isinstance(now, Tensor) and now._trace is self.trace) or is_traced_number(now):
                if place in lifted and getattr(now, "expression", None) is not None and (
                    now.expression.op == "source" and now.expression.args[0] is place
                ):
                    self.old_values.append((place, lifted[place]))
                    continue
                self.stored[place] = now
                self.old_values.append((place, lifted.get(place, old)))
            elif self._made_here(now):
                self._store_container(place, old, now)
            elif self._renewed(place, now):
                self.stored[place] = now
                self.old_values.append((place, old))
            elif isinstance(now, (Tensor, dict, list)) or place.is_missing(old):
                continue  # state made for real
            else:
                self.replay.append((place, now))
                self.old_values.append((place, old))

    def _renewed(self, place: Place, now: Any) -> bool:
        """Whether a container without values of the trace has to be a new one at each call."""
        return (
            isinstance(now, (list, dict, set, deque)) and not self.before.knows(now)
            and self.before.only_written(place)
        )

    def _made_here(self, value: Any) -> bool:
        """Whether something that the function made holds values of the trace."""
        stack, seen = [value], set()
        while stack:
            item = stack.pop()
            if (isinstance(item, Tensor) and item._trace is self.trace) or is_traced_number(item):
                return True
            if id(item) in seen or isinstance(item, Tensor) or self.before.knows(item):
                continue
            seen.add(id(item))
            if isinstance(item, dict):
                stack += item.values()
            elif isinstance(item, (list, tuple, set, frozenset, deque)):
                stack += item
            elif not isinstance(item, (type, ModuleType, FunctionType)):
                stack += getattr(item, "__dict__", {}).values()
        return False

    def _store_container(self, place: Place, old: Any, now: Any) -> None:
        """Make a container anew at each call, or raise TraceError."""
        simple = all(
            not self._made_here(leaf) or isinstance(leaf, Tensor) or is_traced_number(leaf)
            for leaf in flatten(now)[0]
        )
        if simple and self.before.only_written(place):
            self.stored[place] = now
            self.old_values.append((place, old))
            return
        error = FirstUse if place.is_missing(old) or old is None else TraceError
        raise error(located(
            f"compiled {self.name}() puts a new {type(now).__name__} that holds traced values in "
            f"{place.path}. Cure: keep tensors in attributes of their own, or leave out "
            "fullgraph=True"
        ))  # fmt: skip

    def take_back(self, error: BaseException, look: bool) -> None:
        """What is left of a run that failed: the Python state, if it is the user's own error."""
        if look or isinstance(error, TraceError) or self.trace.refused is not None:
            self.before.restore()
            return
        keep_python(self.before, self.writes, self._made_here)
        for action in self.trace.deferred:
            action()

    def put_back(self) -> None:
        """Give the roots their old values; the first call changes them like every other."""
        for place, old in self.old_values:
            place.put(old)
        for place, old in self.lifted:
            place.set(old)

    def stored_inputs(self) -> dict[int, Place]:
        """Inputs that must be fetched from the place that the function itself renews."""
        found: dict[int, Place] = {}
        old = {id(value): place for place, value in self.old_values if isinstance(value, Tensor)}
        for source in self.traced.inputs:
            if isinstance(source, TensorInput) and source.kind == "tensor":
                place = old.get(id(source.tensor))
                if place is not None:
                    found[source.number] = place
        return found

    def dropped_guards(self) -> set[Place]:
        """Places whose value is a run-time input: stored tensors and lifted numbers."""
        places = {p for p, value in self.old_values if p in self.stored}
        return places | {place for place, _ in self.lifted}


_RUN = Recording.run.__code__
# code that names one of these may read what a schedule's step has changed
_OF_SCHEDULES = frozenset(
    "last_epoch _last_lr get_last_lr get_lr print_lr base_lrs state_dict _step_count".split()
)
