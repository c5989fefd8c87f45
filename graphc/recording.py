"""What one run of a function's Python under a trace did to the objects that it reaches.

The trace itself changes nothing that lasts: put_back() gives every place its old value, and the
compiled version does the changes again at each call (stored tensors and numbers from the graph,
everything else by replay).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .frontend.captured import TensorInput
from .frontend.context import local
from .frontend.errors import TraceError, located
from .frontend.numbers import is_traced_number
from .frontend.pending import PendingItem
from .frontend.segment_trace import SegmentTrace
from .frontend.tensor import Tensor
from .frontend.trace import Trace
from .frontend.tree import map_leaves
from .roots import Place, Snapshot


class Turned(Exception):
    """The function met a demand and went on in segments: it has run, with this result."""

    def __init__(self, result: Any, trace: Trace) -> None:
        super().__init__("ran in segments")
        self.result, self.trace = result, trace


class Recording:
    """One run of the Python under a trace, and what it did to the roots."""

    def __init__(
        self, name: str, trace: Trace, before: Snapshot, leaves: list[Any]
    ) -> None:
        self.name, self.trace, self.before, self.leaves = name, trace, before, leaves
        self.after: Snapshot | None = None
        self.traced: Any = None
        self.replay: list[tuple[Place, Any]] = []
        self.stored: dict[Place, Any] = {}
        self.old_values: list[tuple[Place, Any]] = []
        self.lifted: list[tuple[Place, Any]] = []
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
        try:
            result = function(*args, **kwargs)
        except BaseException:
            if not trace.whole:
                trace.flush()  # what eager mode would have done by now is done
            raise
        if trace.refused is not None:  # the user's code caught it
            raise trace.refused
        if trace.whole:
            try:
                self._effects()
            except TraceError:
                if not isinstance(trace, SegmentTrace) or trace.tainted:
                    raise
            else:
                self._finish(result)
                return
        trace.flush()
        raise Turned(map_leaves(_resolved, result), trace)

    def _finish(self, result: Any) -> None:
        traced = self.trace.finish(result, self.stored, backward=local.grad)
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
                f"the list {error} changed its length inside compiled {self.name}(). "
                "Cure: return the value and append it outside"
            )) from None  # fmt: skip
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
            elif isinstance(now, (Tensor, dict, list)) or place.is_missing(old):
                continue  # state made for real
            else:
                self.replay.append((place, now))
                self.old_values.append((place, old))

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


def _resolved(leaf: Any) -> Any:
    return leaf.tensor.item() if isinstance(leaf, PendingItem) else leaf
