"""One compiled version of a function: its guards, and a call of its native code.

A call asks the guards, fetching the arrays of every input between them, runs the native code
(which checks before its first visible write), then does what the Python did: rebinds, gradients,
flags, attributes.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...frontend import state_version
from ...frontend.captured import MadeInput, NumberInput, TensorInput, TracedGraph
from ...frontend.grad_mode import no_grad
from ...frontend.gradient_layout import zeros_for
from ...frontend.number_expr import is_late
from ...frontend.storage import Storage
from ...frontend.tensor import Tensor
from ...ir.dim import Guard as SizeGuard
from ...ir.named import NamedTuple
from ..built import Engine, before_write, count_writes, kept_for_backward
from ..capture.argument_writes import GivenItems
from ..capture.observer import Observer
from ..capture.places import Place
from ..capture.streams import Draw, put_back, states
from ..capture.writes import Repeat
from .backward import CompiledBackwardPlan
from .call import Call
from .different import different
from .frozen import Constants
from .gradients_left import former_memory, overwriting
from .guard_list import Guards, ask
from .guards import Guard
from .guards_of_calls import (
    Aliases,
    Apart,
    Decided,
    Differentiable,
    GradIsThere,
    MemoryOf,
    NoOverlap,
    Renewed,
    SameArgument,
    Sizes,
    WholeMemory,
    any_number,
    named,
    of_made_input,
)
from .late_numbers import LateNumbers
from .rebuild import Rebuild
from .refused import ERRORS, mark
from .results import Results
from .sources import (
    Stale,
    array_of,
    drawn,
    make_ahead,
    number_array,
    number_sources,
    python_value,
    source_value,
    tensor_of,
    written_to,
)

_SHAPES = 256  # of calls that are counted
_UNKNOWN = np.zeros(())  # in place of numbers, until the sizes are known


class Origin(NamedTuple):
    """What a version was made for: its number, what it is found by (Versions.key), and why those
    before it did not fit."""

    number: int
    key: Any
    shapes: tuple[Any, ...]
    reasons: tuple[str, ...]


class Specialisation:
    """A compiled version. `run` raises Stale before it has done anything."""

    def __init__(
        self, traced: TracedGraph, observer: Observer, replay: list[tuple[Place, Any]],
        engine: Engine, plan: CompiledBackwardPlan | None,
    ) -> None:
        """`plan`: of the results' history; None: they have none."""
        self.traced = traced
        self.guards: Guards = observer.guards
        self.replay = replay
        self.constants: Constants | None = None  # what is computed once (frozen.py)
        self.draws = observer.draws  # of random numbers that Python or NumPy keeps
        self.engine = engine
        self.plan = plan
        # objects that the key knows by id and that nothing tells the death of
        self.retained: list[Any] = []
        self.python_calls, self.native_calls = 0, ctypes.c_int64()
        self._long_ways = Counter[tuple[Any, ...]]()  # calls without a shortcut, by shapes
        self.origin: Origin
        # guards on state that native code was wrong to ask: another object may do (shortcut.py)
        self.asked_by_python: set[Guard] = set()
        self.graph = traced.graph
        self.terms: Any  # the recording's
        self.rebuild: Rebuild  # makes the result, and what goes to the places in `stored`
        self.stored: list[Place] = []
        self.inputs = [i for i in traced.inputs if not _is_tangent(i)]
        self.computed = [i for i in self.inputs if isinstance(i, NumberInput)]
        self.made = [i for i in self.inputs if isinstance(i, MadeInput)]
        read = {i for source in self.made for i in source.ahead.reads}
        self.numbers_ahead = [i for i in self.computed if i.number in read]
        self.said = [o.number for o in traced.outputs() if o.number is not None]
        self.late = LateNumbers(self.said, traced.deferred)
        self.sources = number_sources(traced, self.said, self.draws)
        # inputs that are parts of a "storage" input: their values before any write
        self.forwarded = {part for part, _ in traced.overlaps}
        self.records = {id(o): o for o in traced.outputs() if o.kind in ("value", "view")}
        self.spent = [o for o in self.records.values() if o.behind]
        self.leaves: dict[int, list[Tensor]] = {}  # that wait for these, where calls do not differ
        self.changes_history = any(mutation.history for mutation in traced.mutations)
        self.places: dict[int, Place] = {}
        self.compile_seconds = 0.0
        # takes back what the trace created for real; for a first call that raises
        self.undo: Callable[[], None] = nothing
        self._made_zeros: list[GradIsThere] = []
        # (argument number or -1, tensor, the input where it is not simply that)
        self._fetched: list[tuple[int, Any, Any]] = []
        self._counts = bool(traced.numbers or self.computed or self.said or self.draws)

    def makes(
        self, rebuild: Rebuild, stored: list[Place], order: list[Place],
        apart_from: dict[int, Any] | None,
    ) -> None:
        """How to make the result, and what goes to the places in `stored`; `order`: in which
        these, and those whose value is known, are written; `apart_from`: what containers among the
        arguments are not, by id, where that matters."""
        self.rebuild, self.stored, self.order = rebuild, stored, order
        if apart_from is not None:
            self.guards.add(Apart(apart_from))
        self.writes = any(not isinstance(place, Repeat) for place in order)

    def follow(self, places: dict[int, Place], dropped: set[Place]) -> None:
        """Inputs that the function itself renews are fetched from their places."""
        self.places = places
        moved = self._moved()
        self.guards.drop(dropped)
        self.leaves = {
            id(output): [tensor for _, tensor in output.behind] for output in self.spent
            if all(i < 0 and id(tensor) not in moved for i, tensor in output.behind)
        }

    @property
    def calls(self) -> int:
        """How often its code has run."""
        return self.python_calls + self.native_calls.value

    def long_way(self, shapes: tuple[Any, ...]) -> int:
        """How many calls of these shapes have gone the long way, this one included."""
        if len(self._long_ways) >= _SHAPES and shapes not in self._long_ways:
            self._long_ways.clear()
        self._long_ways[shapes] += 1
        return self._long_ways[shapes]

    def _moved(self) -> dict[int, Place]:
        """Where tensors are found that each call renews, by their id at the trace."""
        return {
            id(self.inputs[number].tensor): place  # type: ignore[union-attr]
            for number, place in self.places.items()
        }

    def _let_go(self) -> None:
        """Keep none of the tensors that the first call was given, or that calls renew."""
        moved = self._moved()

        def kept(tensor: Any, argument: int) -> Any:
            return None if argument >= 0 else moved.get(id(tensor), tensor)

        if self.plan is not None:
            self.plan.let_go(kept)
        for guard in self.guards.records:
            guard.let_go(kept)
        self.traced.let_go(kept)

    # --- guards and inputs -----------------------------------------------------------------

    def relies(
        self, observer: Observer, materialise: list[Tensor], leaves: list[Any],
        assumed: tuple[SizeGuard, ...],
    ) -> None:
        """Add the guards on what a call is given and fetches; then the recording is over.
        `materialise`: tensors whose missing `.grad` counts as zeros (see compile.py); `assumed`:
        what compiling assumes of sizes."""
        made = [of_made_input(source) for source in self.made if source.part == 0]
        self.guards.found_by([*map(any_number, self.computed), *made])
        for guard in self._guards_of_calls(observer, materialise, leaves, assumed):
            self.guards.add(guard)
        self._made_zeros = [
            guard for guard in self.guards.records if isinstance(guard, GradIsThere) and guard.made
        ]
        for source in self.inputs:
            plain = isinstance(source, TensorInput) and source.kind in ("argument", "tensor") and (
                source.index >= 0 or source.number not in self.places
            )
            assert isinstance(source, TensorInput) or not plain
            self._fetched.append(
                (source.index, None if source.index >= 0 else source.tensor, None)  # type: ignore[union-attr]
                if plain
                else (-1, None, source)
            )
        observer.seal()
        observer.settle()
        self._let_go()

    def _guards_of_calls(
        self, observer: Observer, materialise: list[Tensor], leaves: list[Any],
        assumed: tuple[SizeGuard, ...],
    ) -> Iterator[Guard]:
        traced = self.traced
        for read in traced.grad_reads:
            made = read.present and any(read.tensor is tensor for tensor in materialise)
            yield GradIsThere(read, made)
        kept = {id(self.inputs[n].tensor) for n in self.places}  # type: ignore[union-attr]
        for source in self.inputs:
            if not isinstance(source, TensorInput):
                continue
            yield MemoryOf(source)
            if source.number in self.places:
                yield Renewed(source, self.places[source.number])
            tensor = source.tensor
            if source.kind == "tensor" and tensor is not None and id(tensor) not in kept:
                yield Differentiable(tensor, source.requires_grad, source.leaf, named(source))
        for source in [alias.source for alias in traced.input_aliases]:
            if source.kind == "tensor" and id(source.tensor) not in kept:
                yield Differentiable(
                    source.tensor, source.requires_grad, source.leaf, named(source)
                )
        # arguments that were one object with another argument or with something in the roots
        yield from (SameArgument(i, other) for i, other in _identities(leaves, observer))
        yield from different(traced, leaves, observer, kept)
        trace = observer.trace
        for whole in trace.whole_memory.values():
            yield WholeMemory(whole, trace.argument_index(whole))
        yield from (Sizes(decided) for decided in (*traced.graph.env.guards, *assumed))
        yield from (Aliases(alias) for alias in traced.input_aliases)
        if traced.mutations:
            written = [mutation.input for mutation in traced.mutations]
            yield NoOverlap(written, traced.overlaps, len(self.inputs))
        yield from (Decided(number) for number in traced.numbers)

    def check(self, call: Call) -> list[Tensor]:
        """Raise Stale unless the user's objects and what was given are as they were.

        Gives the tensors whose missing `.grad` it made zeros (forget() undoes it)."""
        if self.constants is not None and not self.constants.renew():
            raise Stale("a weight is written to between calls, or may be by NumPy or others")
        broken = self.guards.broken()
        if broken is not None:
            raise Stale(broken.reason(call))
        ask(self.guards.of_calls, call)
        fresh: list[Tensor] = []
        for guard in self._made_zeros:
            tensor = guard.missing(call)
            if tensor is not None:
                fresh.append(tensor)
                tensor._grad = zeros_for(tensor)
        return fresh

    def fits(self, arguments: list[Any], given: Any) -> bool:
        """Whether a call with these arguments would run this version."""
        call = Call(arguments, given)
        fresh: list[Tensor] = []
        kept = states(self.draws)
        try:
            fresh = self.check(call)
            self.fetch(call)
        except Stale:
            return False
        finally:
            forget(fresh)
            put_back(kept)
        return True

    def arrays_of_tensors(self, arguments: list[Any]) -> list[np.ndarray]:
        """The memory of every input, and something in place of numbers. Raises Stale."""
        arrays: list[np.ndarray] = []
        for index, tensor, source in self._fetched:
            if source is None:
                arrays.append((tensor if index < 0 else arguments[index])._graphc_array)
            elif not isinstance(source, TensorInput):
                arrays.append(_UNKNOWN)
            else:
                arrays.append(array_of(source, tensor_of(source, arguments)))
        return arrays

    def fetch(self, call: Call) -> None:
        """What the native code and the results are made from. Raises Stale on a mismatch."""
        arguments = call.arguments
        arrays = call.arrays = self.arrays_of_tensors(arguments)
        ask(self.guards.of_memory, call)
        if self.made:
            self._make_ahead(call)
        ask(self.guards.of_fetched, call)
        if self._counts:
            sources = call.sources
            if not self.numbers_ahead:
                # before the call changes them
                sources = call.sources = self.number_values(arguments, call.dims)
            ask(self.guards.of_numbers, call)
            for computed in self.computed:
                arrays[computed.number] = number_array(computed, sources, call.dims)
            for expression in self.said:
                call.said[id(expression)] = (
                    sources if expression.late else python_value(expression, sources, call.dims)
                )
        broken = self.guards.last_broken()
        if broken is not None:
            raise Stale(broken.reason(call))

    def _make_ahead(self, call: Call) -> None:
        if self.numbers_ahead:
            call.sources = self.number_values(call.arguments, call.dims)
            for computed in self.numbers_ahead:
                call.arrays[computed.number] = number_array(computed, call.sources, call.dims)
        make_ahead(self.made, call.arrays, call.dims)

    def number_values(self, arguments: list[Any], dims: dict[str, int]) -> dict[Any, Any]:
        """The lifted numbers now, by source."""
        found = {
            source: source_value(source, was, arguments) for source, was in self.sources
            if type(source) is not Draw and not is_late(source)
        }
        for draw in self.draws:
            found[draw] = drawn(draw, found, dims)
        return found

    # --- the call --------------------------------------------------------------------------

    def run(self, arguments: list[Any], given: Any) -> Any:
        """Check, run the native code, do the effects; gives the function's result. `given`: (args,
        kwargs), whose leaves the arguments are."""
        call = Call(arguments, given)
        fresh = self.check(call)
        kept = states(self.draws)
        plan, engine = self.plan, self.engine
        before: dict[int, np.ndarray] = {}
        try:
            self.fetch(call)
            written = self.written(arguments)
            before_write(written)
            with engine.turns(call.arrays):
                if plan is not None:
                    before = kept_for_backward(
                        plan.read, call.arrays, engine.mutated, self.forwarded
                    )
                try:
                    _, call.results = engine.call(
                        call.arrays, call.dims, self.forwarded,
                        into=former_memory(overwriting(self, call.dims)),
                    )
                except ERRORS as error:
                    mark(error)
                    raise
        except BaseException:
            forget(fresh)
            put_back(kept)
            raise
        self.python_calls += 1
        if plan is not None:
            self.begin_flags(arguments)
            call.history = plan.history(self, call, before)
        count_writes(written)
        return self.finish(call)

    def written(self, arguments: list[Any]) -> list[tuple[Storage, int]]:
        """The memory that a call writes to, and how many writes each sees."""
        found: list[tuple[Storage, int]] = []
        for mutation in self.traced.mutations:
            source = self.inputs[mutation.input]
            assert isinstance(source, TensorInput)
            tensor = tensor_of(source, arguments)
            found.append((tensor._graphc_storage, mutation.versions))
        return found

    def begin_flags(self, arguments: list[Any]) -> None:
        """What begins to require a gradient is part of the history."""
        for flag in self.traced.flags:
            if flag.requires_grad:
                written_to(flag, arguments)._graphc_requires_grad = True

    def finish(self, call: Call) -> Any:
        """Everything after the native call, in the trace's order."""
        traced, history = self.traced, call.history
        builder = Results(self, call)
        if traced.rebinds or (traced.grads and not call.graded) or traced.flags:
            self._write_back(call, builder)
        if history is not None:
            history.attach(builder)
        if self.writes:
            state_version.bump()
        self.late.find(call.said, call.dims)
        result, *stored = self.rebuild.make([builder.leaf(o) for o in traced.result])
        values = dict(self.replay)
        values.update(zip(self.stored, stored, strict=True))
        # all are found before one is changed
        given = [
            place.container.of(call.given) for place in self.order if isinstance(place, GivenItems)
        ]
        for place in self.order:
            if isinstance(place, GivenItems):
                place.give(given.pop(0), values[place])
            else:
                place.put(values[place])
        if history is not None:
            history.watch(builder)
        for action in traced.deferred[self.late.done :]:
            action()
        return result

    def _write_back(self, call: Call, builder: Results) -> None:
        """What the call did to tensors besides writing to their memory."""
        traced, arguments = self.traced, call.arguments
        for output in traced.result if traced.rebinds else ():
            if output.kind == "alias":  # views of the memory that was there before
                builder.tensor(output)
        with no_grad():
            for rebind in traced.rebinds:
                written_to(rebind, arguments).data = builder.tensor(rebind.value)
            for write in () if call.graded else traced.grads:
                value = None if write.value is None else builder.tensor(write.value)
                written_to(write, arguments)._grad = value
            for flag in traced.flags:
                written_to(flag, arguments)._graphc_requires_grad = flag.requires_grad


def _is_tangent(source: Any) -> bool:
    return isinstance(source, TensorInput) and source.kind == "tangent"


def nothing() -> None:
    """Nothing to take back."""


def forget(fresh: list[Tensor]) -> None:
    """Take back the zeros that check() put in place of missing gradients."""
    for tensor in fresh:
        tensor._grad = None


def _identities(leaves: list[Any], observer: Observer) -> list[tuple[int, int | Tensor]]:
    known = {id(t): t for t in observer.tensors()}
    found: list[tuple[int, int | Tensor]] = []
    first: dict[int, int] = {}
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, Tensor):
            if id(leaf) in known:
                found.append((i, leaf))
            elif first.setdefault(id(leaf), i) != i:
                found.append((i, first[id(leaf)]))
    return found
