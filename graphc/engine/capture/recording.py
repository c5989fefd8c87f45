"""One run of a function's Python under a trace, observed, and what it did to what existed before.

The trace itself changes nothing that lasts: put_back() gives every place its old value, and the
compiled version does the changes again at each call (stored tensors and numbers from the graph,
everything else by replay).
"""

from __future__ import annotations

import contextlib
import functools
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...frontend import caught
from ...frontend.captured import TensorInput
from ...frontend.context import local
from ...frontend.errors import TraceError, located
from ...frontend.grad_mode import grad_mode, set_grad_mode
from ...frontend.history import requires_grad
from ...frontend.pending import PendingItem, is_pending
from ...frontend.segment_trace import SegmentTrace
from ...frontend.tensor import Tensor
from ...frontend.texts import is_traced_value
from ...frontend.trace import Trace
from ...ir.memory import may_share
from ...ir.named import NamedTuple
from ...nn.modules.module import Module
from ..version.guards import Result
from ..version.rebuild import NotRebuilt, Rebuild, resolved
from ..version.refused import note_taken_back
from . import calls
from . import recorded_sites as _sites  # noqa: F401  (fills calls.SITES)
from .argument_writes import ArgumentWrites, apart, may_be_given
from .array_memory import is_captured
from .collecting import keep_apart
from .copies import memory_of
from .exits import Constants
from .kinds import is_plain
from .later import later
from .net import Net
from .observer import Observer, running
from .places import MISSING, Place
from .schedules import conflict, trying
from .streams import put_back
from .survey import Survey
from .writes import Contents, Tail


class Turned(NamedTuple):
    """What a recording came to whose function met a demand and went on in segments: it has run."""

    result: Any
    trace: Trace
    passing: bool  # the next call may well be one graph


class Raised(Exception):
    """The function's own Python has raised: all that it did is taken back, and a call in eager mode
    says what it raises, and what it leaves."""


class Terms(NamedTuple):
    """What a recording takes as a run-time input, and not as it is; and what as a constant."""

    named: dict[int, dict[int, str]]  # sizes of arguments: dim -> name, by argument
    renewed: list[tuple[Place, dict[int, str]]]  # and of tensors that the function renews
    places: tuple[Place, ...]  # of numbers
    arguments: frozenset[int]  # that are numbers
    constants: Constants  # what marked functions have given

    @property
    def symbolic(self) -> bool:
        """Whether there are sizes among them."""
        return bool(self.named or self.renewed)


class FirstUse(TraceError):
    """State is made in a way that one graph cannot do again; later calls will find it made."""


class Recording:
    """One run of the Python under a trace, and what it did to the roots."""

    def __init__(
        self, name: str, trace: Trace, leaves: list[Any], constants: Constants
    ) -> None:
        self.name, self.trace, self.leaves = name, trace, leaves
        self.observer = Observer(trace, name, calls)
        self.observer.constants = constants
        self.before = [self.observer]  # of this run and of those that it repeats
        self.writes = ArgumentWrites((), ())
        self.traced: Any = None
        self.replay: list[tuple[Place, Any]] = []
        self.stored: dict[Place, Any] = {}
        self.order: list[Place] = []  # in which places are written at each call
        self.old_values: list[tuple[Place, Any]] = []
        self.lifted: list[tuple[Place, Any]] = []
        self.rebuild: Rebuild  # of the result and of what is stored
        self.missing: list[Tensor] = []
        self.materialise: list[Tensor] = []
        self.mode = grad_mode()
        # what containers among the arguments are not, by id, where the call writes to some
        self.apart_from: dict[int, Any] | None = None

    def give(self, call: Any, copies: Any) -> None:
        """The function gets copies of the containers among its arguments."""
        self.writes = ArgumentWrites(call, copies)
        if self.writes.copies:  # what would go on in segments has to have the containers themselves
            self.observer.taint("containers among the arguments")
            self.observer.copies = self.writes.originals

    def know(self, function: Any) -> None:
        """The function and the objects among its arguments existed before."""
        name = "self" if isinstance(function, Module) else getattr(function, "__name__", "function")
        self.observer.know(function, name)
        for i, leaf in enumerate(self.leaves):
            if not isinstance(leaf, Tensor) and not is_plain(leaf):
                self.observer.know(leaf, f"argument {i}")

    def restore(self) -> None:
        """Put everything back as it was before the call."""
        for observer in reversed(self.before):
            observer.restore()
        for place, old in self.lifted:
            place.set(old)

    def lift(self, place: Place) -> None:
        """Make a number in a root a run-time input for this trace."""
        value = place.get()
        if type(value) in (int, float):
            self.lifted.append((place, value))
            self.observer.lifted.add(place)
            # any number fits, but the type: isinstance() may be all that is asked
            kind = Result(_type_in, (place,), type(value), f"the type of {place.path}")
            self.observer.guards.add(kind)
            place.set(self.trace.lift_number(value, place))

    def run(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Turned | None:
        """Run the Python and end the trace; what it came to if it went on in segments."""
        trace = self.trace
        try:
            held = [self.call(function, args, kwargs)]
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                self._interrupt()
            if not trace.whole:
                trace.flush()  # what eager mode would have done by now is done
                self.writes.copy_back(self._given)
            raise
        if trace.whole:
            problem = self._problem(held)
            if isinstance(trace, Survey):
                trace.conclude(problem)
            if problem is None:
                self._finish()
                if isinstance(trace, Survey):  # of what a later backward pass runs
                    trace.conclude(None)
                return None
            if not isinstance(trace, SegmentTrace) or trace.tainted:
                try:
                    raise problem
                finally:
                    del problem, held  # or the error's own frame would hold it, and all it met
            trace.note_end(str(problem).split(". Cure")[0])
            trace.passing = isinstance(problem, FirstUse)
        trace.flush()
        self.writes.copy_back(self._given)
        result = resolved(held[0], self._given, self.observer.is_known)
        self.observer.settle()  # nobody's objects are kept alive by an attempt that is over
        return Turned(result, trace, trace.passing)

    def _interrupt(self) -> None:
        """An interrupt would not come again: what was recorded is to run, if it may end here."""
        trace = self.trace
        if isinstance(trace, SegmentTrace) and not trace.tainted:
            trace.note_end("an interrupt")
            trace.whole = False

    def _problem(self, held: list[Any]) -> TraceError | None:
        """Why one graph cannot do what the Python did."""
        try:
            self._effects()
            self._take_apart(held)
        except TraceError as error:
            error.__context__ = None  # frames keep all that was met
            return error.with_traceback(None)
        return None

    def call(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Run the Python, observed; gives what it gives back."""
        trace, observer = self.trace, self.observer
        if isinstance(trace, SegmentTrace):
            trace.entry = _CALL
        trace.late.allowed, trace.late.trying = True, functools.partial(trying, observer)
        trace.existed = functools.partial(calls.existed, observer)
        trace.hashed = observer.hashed
        keep_apart()
        outer, running.observer = running.observer, observer
        entered, local.enter = local.enter, observer.entry
        nested, local.nested = local.nested, None
        counted, local.counted = local.counted, None
        try:
            with Net(observer):
                found, given, named = observer.call(function, tuple(args), kwargs or None)
                result = found(*given, **(named or {}))
        except Exception as error:
            if isinstance(trace, Survey):
                trace.conclude(_caught(trace, error) or error)
            raise
        finally:
            running.observer, local.enter, local.nested = outer, entered, nested
            local.trace, local.counted = trace, counted  # it may have ended in eager mode
            # or the two would hold each other, and all that was met
            trace.existed = trace.hashed = None
            trace.late.trying = contextlib.nullcontext
        if trace.refused is not None:  # the user's code caught it
            raise trace.refused
        return result

    def _given(self, leaf: Any) -> Any:
        """What a part of the result is after the trace went on in segments."""
        if type(leaf) is PendingItem:
            return getattr(leaf.tensor, leaf.method)()
        return self.writes.originals.get(id(leaf), leaf)

    def _take_apart(self, held: list[Any]) -> None:
        """Say how the result, and what is stored, are made anew; raises TraceError."""
        held += self.stored.values()
        try:
            filled = [p.container for p in self.stored if isinstance(p, (Contents, Tail))]
            filled += self.writes.copies
            self.rebuild = Rebuild(held, self._was_there, self.writes.places, filled)
        except NotRebuilt as error:
            raise TraceError(located(
                f"compiled {self.name}() gives back {error}, which one graph cannot make again at "
                f"every call. Cure: give back tensors in plain containers{self.trace.otherwise}"
            )) from None

    def _was_there(self, value: Any) -> bool:
        """Whether an object was there before the call."""
        trace = self.trace
        return self.observer.is_known(value) or (isinstance(value, Tensor) and (
            trace.argument_index(value) >= 0 or trace.grad_owner(value) is not None
        ))

    def _finish(self) -> None:
        deferred = self.trace.deferred
        deferred[:] = [action for action in deferred if not hasattr(action, "repeats")]
        left = grad_mode()
        if left != self.mode:  # by set_grad_enabled(...) as a call: each call does so at its end
            deferred.append(functools.partial(set_grad_mode, *left))
        if self.trace.backwards:
            self.observer.differentiated = [tensor for tensor, _ in self.trace.entries]
        with later(self.observer):
            traced = self.trace.finish(self.rebuild.take_leaves(), {}, backward=True)
        written = {id(w.tensor) for w in traced.grads if w.value is not None}
        self.missing = [
            read.tensor for read in traced.grad_reads
            if not read.present and id(read.tensor) in written
            and id(read.tensor) not in self.trace.found_none
        ]
        self.traced = traced

    def _shared_memory(self) -> None:
        """Refuse a NumPy array that was used before the tensor on whose memory it is."""
        for container, _, path in self.observer.saved.values():
            if isinstance(container, np.ndarray) and is_captured(self.trace, container):
                self.observer.taint(path)  # from the start, in segments
                raise TraceError(located(
                    f"compiled {self.name}() uses {path}, a NumPy array on a tensor's memory. "
                    f"Cure: use the tensor{self.trace.otherwise}"
                ))

    def _left_hooks(self) -> None:
        """Refuse hooks that stay on tensors from before the call: each call adds one."""
        for tensor, shadow in self.trace.shadows.values():
            for before, now in (
                (tensor._graphc_hooks, shadow._graphc_hooks),
                (tensor._graphc_post_hooks, shadow._graphc_post_hooks),
            ):
                if now and now.keys() - (before or {}).keys():
                    raise FirstUse(located(
                        f"compiled {self.name}() leaves a hook on a tensor from before the call. "
                        f"Cure: register it outside{self.trace.otherwise}"
                    ))

    def _views_of_written(self) -> None:
        """Refuse a tensor from before whose history is that of memory which was written to."""
        outside, shadows = self.trace.outside, [each for _, each in self.trace.shadows.values()]
        made = [each for each in shadows if requires_grad(each) and each._graphc_node is not None]
        written = {
            id(each._graphc_storage.root) for each in made if each._graphc_node not in outside
        }
        for each in made:
            if id(each._graphc_storage.root) in written and each._graphc_node in outside:
                self.observer.taint("a view of what is written to")  # from the start, in segments
                raise TraceError(located(
                    f"compiled {self.name}() writes to a tensor with a history, and reads a view "
                    f"of it from before. Cure: make the view inside{self.trace.otherwise}"
                ))

    def _effects(self) -> None:
        self._shared_memory()
        self._views_of_written()
        self._left_hooks()
        observer = self.observer
        try:
            changes = list(observer.changes())
        except ValueError as error:
            raise TraceError(located(
                f"compiled {self.name}() {error}, which one graph cannot do again at every call. "
                f"Cure: do that outside and pass the value in or out{self.trace.otherwise}"
            )) from None
        if observer.ended not in (None, self.trace.builder.count):
            raise TraceError(located(
                f"compiled {self.name}() reads the clock between its operations, which are one "
                f"graph. Cure: read it outside{self.trace.otherwise}"
            ))
        clash = conflict(observer, self.trace.late, [place for place, _, _ in changes])
        if clash is not None:
            raise TraceError(located(
                f"compiled {self.name}() writes to {clash.path} and reads what a schedule's step "
                f"makes of it. Cure: do one of them outside{self.trace.otherwise}"
            ))
        lifted = dict(self.lifted)
        for place, old, now in changes:
            self.old_values.append((place, lifted.get(place, old)))
            if is_traced_value(now) and place in lifted and self._unchanged(place, now):
                continue
            self._effect(place, old, now)
            self.order.append(place)

        self._given_items()
        self.stored.update(observer.repeats)
        self.order += observer.repeats

    def _given_items(self) -> None:
        """What each call has to put into the containers among its arguments."""
        try:
            given = dict(self.writes.effects())
            if self.writes.copies and (given or self.observer.saved):
                others = self.observer.known if given else self.observer.saved
                found = {i: each[0] for i, each in others.items() if may_be_given(each[0])}
                if not apart(self.writes.call, found):
                    raise ValueError("container that is elsewhere, too,")
                self.apart_from = found
        except ValueError as error:
            raise TraceError(located(
                f"compiled {self.name}() writes to a {error} among its arguments. Cure: return "
                f"what it puts there{self.trace.otherwise}"
            )) from None
        self.stored.update(given)
        self.order += given

    @staticmethod
    def _unchanged(place: Place, now: Any) -> bool:
        expression = getattr(now, "expression", None)
        return expression is not None and (
            expression.op == "source" and expression.args[0] is place
        )

    def _effect(self, place: Place, old: Any, now: Any) -> None:
        """What each call has to put into a place that the function's Python has written."""
        observer = self.observer
        if isinstance(place, (Contents, Tail)):
            self._refill(place, old, now)
        elif isinstance(now, Tensor):
            for tensor in (old, now):
                if isinstance(tensor, Tensor) and tensor._graphc_trace is None:
                    self.trace.shadow(tensor)  # fetched from where it is then
            self.stored[place] = now
        elif is_traced_value(now) or is_pending(now):
            self.stored[place] = now
        elif is_plain(now) or observer.is_known(now) or now is MISSING:
            if isinstance(old, Tensor) and old._graphc_trace is None:
                self.trace.shadow(old)
            self.replay.append((place, now))
        elif not observer.was_read(place):
            self.stored[place] = now  # made anew at each call
        else:
            first = place.is_missing(old) or old is None
            raise self._renewed(place, now, FirstUse if first else TraceError)

    def _refill(self, place: Place, old: Any, now: Any) -> None:
        """What each call has to put into a container whose length or order has changed."""
        if isinstance(now, (np.ndarray, bytearray, array)) and any(
            may_share(tensor._graphc_array, memory_of(place.container))
            for tensor, _ in self.trace.shadows.values()
        ):
            raise TraceError(located(
                f"compiled {self.name}() writes to {place.path}, which shares memory with a tensor"
                f". Cure: write to the tensor{self.trace.otherwise}"
            ))
        items = _items(now)
        for item in (*_items(old), *items):
            if isinstance(item, Tensor) and item._graphc_trace is None:
                self.trace.shadow(item)  # fetched from where it is then
        if isinstance(place, Contents):
            for item in items:
                if not (isinstance(item, Tensor) or is_plain(item) or is_traced_value(item)
                        or is_pending(item) or self.observer.is_known(item)):
                    raise self._renewed(place, item, FirstUse if not old else TraceError)
        self.stored[place] = now

    def _renewed(self, place: Place, now: Any, error: type[TraceError]) -> TraceError:
        return error(located(
            f"compiled {self.name}() puts a new {type(now).__name__} in {place.path}, which it "
            f"also reads. Cure: keep tensors in attributes of their own{self.trace.otherwise}"
        ))

    def take_back(self, error: BaseException, look: bool) -> None:
        """What is left of a run that failed: nothing."""
        self.restore()
        self.observer.settle()
        set_grad_mode(*self.mode)
        note_taken_back(error)
        if look or isinstance(error, (TraceError, KeyboardInterrupt)):
            return
        refused = _caught(self.trace, error)
        if refused is not None:
            raise refused from None
        # what else an error holds may be values of the trace
        said = ": ".join([type(error).__name__, *(a for a in error.args if type(a) is str)])
        raise Raised(said) from None

    def put_back(self) -> None:
        """Give the roots their old values; the first call changes them like every other."""
        for place, old in reversed(self.old_values):
            place.put(old)
        for place, old in self.lifted:
            place.set(old)
        put_back(self.observer.streams.items())
        set_grad_mode(*self.mode)

    def stored_inputs(self) -> dict[int, Place]:
        """Inputs that must be fetched from the place that the function itself renews."""
        found: dict[int, Place] = {}
        old: dict[int, set[Place]] = {}
        for place, value in self._old_tensors():
            old.setdefault(id(value), set()).add(place)
        fixed = self.observer.guards.fixed() if old else {}
        for source in self.traced.inputs:
            if isinstance(source, TensorInput) and source.kind == "tensor":
                places = old.get(id(source.tensor), set())
                # one that is elsewhere, too, is that other place's tensor at each call
                if len(places) == 1 and fixed.get(id(source.tensor), set()) <= places:
                    found[source.number] = next(iter(places))
        return found

    def _old_tensors(self) -> Iterator[tuple[Place, Tensor]]:
        """Where tensors were that the call replaces."""
        for place, value in self.old_values:
            if isinstance(value, Tensor):
                yield place, value
            elif isinstance(place, Contents) and isinstance(value, (dict, list)):
                items = value.items() if isinstance(value, dict) else enumerate(value)
                for key, item in items:
                    if isinstance(item, Tensor) and isinstance(place.container, _FETCHED):
                        yield Place(place.container, key, f"{place.path}[{key!r}]"), item

    def dropped_guards(self) -> set[Place]:
        """Places whose value is a run-time input: stored tensors and lifted numbers."""
        return {*self.stored_inputs().values(), *(place for place, _ in self.lifted)}


_FETCHED = (list, dict, deque)  # containers whose items can be fetched by key


def _caught(trace: Trace, error: BaseException) -> TraceError | None:
    """What the trace refused, unless that is the very error that ends the recording."""
    refused = trace.refused
    return None if refused is None or refused.__cause__ is error else refused


def _items(content: Any) -> list[Any]:
    """The items of what a Contents or a Tail holds."""
    if isinstance(content, dict):
        return [*content, *content.values()]
    return list(content) if isinstance(content, list) else []


def _type_in(place: Place) -> type:
    return type(place.get())


_CALL = Recording.call.__code__
caught.entries.add(_CALL)
