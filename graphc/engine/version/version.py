"""One compiled version of a function: its guards, and a call of its native code.

A call fetches the arrays of every input, checks them, runs the native code (which checks before
its first visible write), then does what the Python did: rebinds, gradients, flags, attributes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...frontend import placement, state_version
from ...frontend.captured import Lodger, NumberInput, Output, TensorInput, TracedGraph
from ...frontend.grad_mode import no_grad
from ...frontend.history import gradient_kind
from ...frontend.number_expr import is_late
from ...frontend.storage import address, readers, strides_of
from ...frontend.tensor import Tensor, from_array
from ...frontend.tree import flatten
from ...frontend.values import Eager
from ...ir.dim import evaluate
from ...ir.graph import Graph
from ...ir.memory import contiguous, shares, write, zeros_like
from ...ir.types import TensorType
from ..capture.argument_writes import GivenItems, apart
from ..capture.observer import Observer
from ..capture.places import Place
from ..capture.streams import Draw, put_back, states
from ..capture.writes import Repeat
from .expected import bind, expectation, is_laid_out, place_of_input, reach
from .guards import Guards
from .late_numbers import LateNumbers
from .on_host import OnHost
from .rebuild import Rebuild
from .refused import ERRORS, mark
from .results import Results
from .sources import (
    Stale,
    array_of,
    drawn,
    number_array,
    number_sources,
    python_value,
    source_value,
    tensor_of,
    written_to,
)

# the arrays of the inputs, the values of the dims, and numbers and texts for Python by the id of
# their expression
Fetched = tuple[list[np.ndarray], dict[str, int], dict[int, Any]]
Allocate = Callable[[tuple[int, ...], np.dtype], np.ndarray]
_UNKNOWN = np.zeros(())  # in place of numbers, until the sizes are known


def final_graph(traced: TracedGraph, mutations: list[Any]) -> tuple[Graph, dict[int, int]]:
    """The graph with one output per effect, and which output goes into which input's memory."""
    outputs = list(traced.graph.outputs)
    used = {o.index for o in all_outputs(traced) if o.kind in ("value", "view")}
    if traced.backward is not None:
        used |= {i for i in traced.backward.gradients if i is not None}
    mutated: dict[int, int] = {}
    for mutation in mutations:
        index = mutation.output
        if index in used or index in mutated:
            outputs.append(outputs[index])
            index = len(outputs) - 1
        mutation.output = index
        mutated[index] = mutation.input
    graph = traced.graph
    return Graph(graph.name, graph.inputs, tuple(outputs), graph.env), mutated


def _is_output(value: Any) -> bool:
    return isinstance(value, Output)


def all_outputs(traced: TracedGraph) -> list[Output]:
    """Every Output record of a traced graph."""
    found: list[Output] = []
    found += flatten(traced.result, _is_output)[0]
    found += flatten(list(traced.stored.values()), _is_output)[0]
    found += [g.value for g in traced.grads if g.value is not None]
    found += [r.value for r in traced.rebinds]
    return found


class Specialisation:
    """A compiled version. `run` raises Stale before it has done anything."""

    def __init__(
        self, traced: TracedGraph, observer: Observer, replay: list[tuple[Place, Any]],
        engine: Any, allocate: Allocate, materialise: list[Tensor], retained: list[Any],
        place: placement.Place | None,
    ) -> None:
        self.traced = traced
        self.roots: Guards = observer.guards
        self.pairs = observer.pairs  # (argument or tensor, the same, whether they are one)
        self.replay = replay
        self.draws = observer.draws  # of random numbers that Python or NumPy keeps
        self.engine = engine
        self.allocate = allocate
        # tensors whose missing `.grad` counts as zeros (see compile.py)
        self.materialise = materialise
        # objects that the key knows by id and that nothing tells the death of
        self.retained: list[Any] = []
        self.calls = 0
        self.graph: Graph  # of the recording, with one output per effect
        self.terms: Any  # the recording's
        self.rebuild: Rebuild  # makes the result, and what goes to the places in `stored`
        self.stored: list[Place] = []
        self.dims = tuple(traced.graph.env.hints)
        self.guards = list(traced.graph.env.guards)
        self.inputs = [i for i in traced.inputs if not _is_tangent(i)]
        self.place = place  # where the code runs; None: on the CPU
        self.where = {i.number: place_of_input(i) for i in self.inputs}
        self.computed = [i for i in self.inputs if isinstance(i, NumberInput)]
        self.said = [o.number for o in all_outputs(traced) if o.number is not None]
        self.late = LateNumbers(self.said, traced.deferred)
        self.on_host: OnHost | None = None  # of a recording on a device, made at its first call
        self.sources = number_sources(traced, self.said, self.draws)
        self.expected = [expectation(i) for i in self.inputs]
        self.mutated = {m.output: m.input for m in traced.mutations}
        tensors = [i for i in self.inputs if isinstance(i, TensorInput) and i.tensor is not None]
        self.flags = [
            (i.tensor, i.requires_grad, i.leaf, _hooks(i.tensor)) for i in tensors
            if i.kind == "tensor" and i.tensor is not None
        ]
        self.mutable_inputs = sorted(set(self.mutated.values()))
        # inputs that are parts of a "storage" input: their values before any write
        self.forwarded = {part for part, _ in traced.overlaps}
        self.overlaps = {frozenset(pair) for pair in traced.overlaps}
        # arguments that were one object with another argument or with something in the roots
        self.identities = _identities(retained, observer)
        self.records = {id(o): o for o in all_outputs(traced) if o.kind in ("value", "view")}
        self.spent = [o for o in self.records.values() if o.behind]
        self.places: dict[int, Place] = {}
        self.moved: dict[int, Place] = {}  # the same, by the id of the tensor at the trace
        self.own_numbers: dict[int, float | int] = {}  # arguments that the key knows by value
        self._apart: list[int] = []  # addresses at which the inputs were seen not to overlap
        self.compile_seconds = 0.0
        # takes back what the trace created for real; for a first call that raises
        self.undo: Callable[[], None] = nothing

    def makes(
        self, rebuild: Rebuild, stored: list[Place], order: list[Place],
        apart_from: dict[int, Any] | None,
    ) -> None:
        """How to make the result, and what goes to the places in `stored`; `order`: in which
        these, and those whose value is known, are written; `apart_from`: what containers among the
        arguments are not, by id, where that matters."""
        self.rebuild, self.stored, self.order = rebuild, stored, order
        self.apart = apart_from
        self.writes = any(not isinstance(place, Repeat) for place in order)

    def follow(self, places: dict[int, Place], dropped: set[Place]) -> None:
        """Inputs that the function itself renews are fetched from their places."""
        self.places = places
        self.moved = {
            id(self.inputs[number].tensor): place  # type: ignore[union-attr]
            for number, place in places.items()
        }
        self.roots.drop(dropped)
        kept = {id(self.inputs[number].tensor) for number in places}  # type: ignore[union-attr]
        self.flags = [entry for entry in self.flags if id(entry[0]) not in kept]

    # --- guards and inputs -----------------------------------------------------------------

    def check(self, arguments: list[Any], call: Any) -> list[Tensor]:
        """Raise Stale unless the roots, gradients and flags are as they were.

        Gives the tensors whose missing `.grad` it made zeros (forget() undoes it)."""
        broken = self.roots.broken()
        if broken is not None:
            raise Stale(f"{broken.path} changed")
        if self.apart is not None and not apart(call, self.apart):
            raise Stale("a container among the arguments is elsewhere, too")
        fresh: list[Tensor] = []
        for read in self.traced.grad_reads:
            tensor = written_to(read, arguments, self.moved)
            if (tensor._grad is not None) != read.present:
                if read.present and any(read.tensor is t for t in self.materialise):
                    fresh.append(tensor)
                else:
                    raise Stale("a .grad is None now and was not, or the other way round")
        for tensor, flag, leaf, hooks in self.flags:
            if gradient_kind(tensor) != flag or _hooks(tensor) != hooks or (
                flag and (tensor._node is None) != leaf
            ):
                raise Stale("requires_grad or hooks of a captured tensor changed")
        for tensor in fresh:
            tensor._grad = from_array(zeros_like(tensor._array))
        return fresh

    def fits(self, arguments: list[Any], call: Any) -> bool:
        """Whether a call with these arguments would run this version."""
        fresh: list[Tensor] = []
        kept = states(self.draws)
        try:
            fresh = self.check(arguments, call)
            self.fetch(arguments)
        except Stale:
            return False
        finally:
            forget(fresh)
            put_back(kept)
        return True

    def fetch(self, arguments: list[Any]) -> Fetched:
        """What the native code and the results are made from. Raises Stale on a mismatch."""
        arrays: list[np.ndarray] = []
        dims: dict[str, int] = {}
        said: dict[int, Any] = {}
        for source, (shape, dtype, rows, strides) in zip(self.inputs, self.expected, strict=True):
            if isinstance(source, NumberInput):
                arrays.append(_UNKNOWN)
                continue
            tensor = tensor_of(source, arguments, self.moved)
            array = array_of(source, tensor)
            if source.number in self.places:
                self._check_history(source, tensor)
            if array.shape != shape and not bind(array.shape, shape, dims):
                raise Stale(f"{_name(source)} has shape {array.shape}, was {shape}")
            if array.dtype != dtype:
                raise Stale(f"{_name(source)} is {array.dtype}, was {dtype}")
            if Eager.elsewhere is not None and (
                placement.of(array) is not self.where[source.number]
            ):
                raise Stale(f"{_name(source)} is on another device")
            # Python may have asked for the layout, and results have it
            if array.flags.c_contiguous != rows or not (rows or is_laid_out(array, strides, dims)):
                raise Stale(f"the memory layout of {_name(source)} changed")
            arrays.append(array)
        for guard in self.guards:
            if not guard.check(dims):
                raise Stale(f"sizes no longer satisfy {guard.text()}")
        if self.traced.numbers or self.computed or self.said or self.draws:
            sources = self.number_values(arguments, dims)  # before the call changes them
            for number in self.traced.numbers:
                if not number.holds(sources, dims):
                    raise Stale(f"a number that was decided upon changed, at {number.loc}")
            for computed in self.computed:
                arrays[computed.number] = number_array(computed, sources, dims)
            for expression in self.said:
                said[id(expression)] = (
                    sources if expression.late else python_value(expression, sources, dims)
                )
        for i, other in self.identities:
            if arguments[i] is not (arguments[other] if type(other) is int else other):
                raise Stale(f"argument {i} was another tensor, too")
        for a, b, same in self.pairs:
            one = arguments[a] if type(a) is int else a
            if (one is (arguments[b] if type(b) is int else b)) != same:
                raise Stale("tensors are one now that were two, or the other way round")
        for fact in self.roots.of_arguments.values():
            if not fact.holds_for(arguments):
                raise Stale(f"{fact.path} changed")
        for lodger in self.traced.lodgers:
            self._check_lodger(lodger, arrays[lodger.input], arguments)
        self._check_overlap(arrays)
        if self.roots.last and (broken := self.roots.last_broken()) is not None:
            raise Stale(f"{broken.path} changed")
        return arrays, dims, said

    def _check_history(self, source: TensorInput, tensor: Tensor) -> None:
        """The tensor in a place that the function renews is differentiated as it was."""
        flag = gradient_kind(tensor)
        if flag != source.requires_grad or (flag and (tensor._node is None) != source.leaf):
            raise Stale(f"requires_grad of {self.places[source.number].path} changed")
        if _hooks(tensor):
            raise Stale(f"{self.places[source.number].path} has hooks")

    def number_values(self, arguments: list[Any], dims: dict[str, int]) -> dict[Any, Any]:
        """The lifted numbers now, by source."""
        found = {
            source: source_value(source, was, arguments) for source, was in self.sources
            if type(source) is not Draw and not is_late(source)
        }
        for draw in self.draws:
            found[draw] = drawn(draw, found, dims)
        return found

    def _check_lodger(self, lodger: Lodger, host: np.ndarray, arguments: list[Any]) -> None:
        array = tensor_of(lodger.source, arguments, self.moved)._array
        if (
            address(array) - address(host) != lodger.offset or array.shape != lodger.shape
            or strides_of(array) != lodger.source.strides
        ):
            raise Stale("tensors no longer share memory in the same way")

    def _check_overlap(self, arrays: list[np.ndarray]) -> None:
        """Memory that is written must not be another input's, unless the trace knew."""
        if not self.mutable_inputs:
            return
        places = [address(a) for a in arrays]
        if places == self._apart:
            return
        written = set(self.mutable_inputs)
        spans = sorted((p, p + reach(arrays[i]), i) for i, p in enumerate(places))
        active: list[tuple[int, int]] = []
        for low, high, i in spans:
            active = [(end, j) for end, j in active if end > low]
            for _, j in active:
                if not (i in written or j in written) or frozenset((i, j)) in self.overlaps:
                    continue
                if shares(arrays[i], arrays[j]):
                    raise Stale("inputs that were apart share memory")
            if high > low:
                active.append((high, i))
        self._apart = places

    # --- the call --------------------------------------------------------------------------

    def run(self, arguments: list[Any], call: Any) -> Any:
        """Check, run the native code, do the effects; gives the function's result. `call`: (args,
        kwargs), whose leaves the arguments are."""
        fresh = self.check(arguments, call)
        kept = states(self.draws)
        try:
            arrays, dims, said = self.fetch(arguments)
            if readers:
                self.before_write(arguments)
            results = self.execute(arrays, dims)
        except BaseException:
            forget(fresh)
            put_back(kept)
            raise
        self.calls += 1
        return self.finish(arguments, results, dims, said, None, call)

    def before_write(self, arguments: list[Any]) -> None:
        """Let compiled backwards keep what they will read of the memory that this call writes."""
        for mutation in self.traced.mutations:
            source = self.inputs[mutation.input]
            assert isinstance(source, TensorInput)
            storage = tensor_of(source, arguments, self.moved)._storage
            storage.before_write(mutation.versions > 0)

    def execute(self, arrays: list[np.ndarray], dims: dict[str, int]) -> list[np.ndarray]:
        """The native call: the arrays of every graph output."""
        inputs = [a if a.flags.c_contiguous else contiguous(a) for a in arrays]
        host: dict[int, np.ndarray] = {}
        if self.place is not None:
            if self.on_host is None:
                self.on_host = OnHost(self.graph, self.mutated, inputs)
            host = self.on_host.values(inputs)
            inputs = [self.place.bring(a) for a in inputs]
        for i in self.forwarded:
            inputs[i] = arrays[i].copy()
        results: list[np.ndarray] = []
        scattered: list[tuple[np.ndarray, np.ndarray]] = []
        for index, node in enumerate(self.engine.output_types):
            target = self.mutated.get(index)
            if target is None:
                results.append(self.allocate(concrete_shape(node, dims), node.dtype.numpy))
            else:
                results.append(inputs[target])
                if inputs[target] is not arrays[target]:
                    value = host[index] if index in host else inputs[target]
                    scattered.append((arrays[target], value))
        try:
            self.engine.run(inputs, results, tuple(dims[name] for name in self.dims))
        except ERRORS as error:
            mark(error)
            raise
        for target_array, value in scattered:
            write(target_array, value)
        return results

    def finish(
        self, arguments: list[Any], results: list[np.ndarray], dims: dict[str, int],
        said: dict[int, Any], history: Any, call: Any,
    ) -> Any:
        """Everything after the native call, in the trace's order."""
        traced = self.traced
        builder = Results(self, arguments, results, dims, said, history, call)
        for mutation in traced.mutations:
            source = self.inputs[mutation.input]
            assert isinstance(source, TensorInput)
            tensor = tensor_of(source, arguments, self.moved)
            tensor._storage.version += mutation.versions
        if traced.rebinds or traced.grads or traced.flags:
            self._write_back(arguments, builder)
        if history is not None:
            history.attach(builder)
        if self.writes:
            state_version.bump()
        self.late.find(said, dims)
        result, *stored = self.rebuild.make([builder.leaf(o) for o in traced.result])
        values = dict(self.replay)
        values.update(zip(self.stored, stored, strict=True))
        # all are found before one is changed
        given = [place.container.of(call) for place in self.order if isinstance(place, GivenItems)]
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

    def _write_back(self, arguments: list[Any], builder: Results) -> None:
        """What the call did to tensors besides writing to their memory."""
        traced = self.traced
        with no_grad():
            for rebind in traced.rebinds:
                written_to(rebind, arguments, self.moved).data = builder.tensor(rebind.value)
            for write in traced.grads:
                value = None if write.value is None else builder.tensor(write.value)
                written_to(write, arguments, self.moved)._grad = value
            for flag in traced.flags:
                written_to(flag, arguments, self.moved)._requires_grad = flag.requires_grad


def concrete_shape(type_: TensorType, dims: dict[str, int]) -> tuple[int, ...]:
    """A type's shape for these dims."""
    if not dims:
        shape: Any = type_.shape  # ints
        return shape
    return tuple([s if isinstance(s, int) else evaluate(s, dims) for s in type_.shape])


def _name(source: TensorInput) -> str:
    name: str = source.node.attrs["name"]
    return name


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


def _hooks(tensor: Tensor) -> tuple[Any, ...]:
    node = tensor._accumulator and tensor._accumulator()
    groups = (tensor._hooks, tensor._post_hooks, node and node.pre_hooks, node and node.post_hooks)
    if not any(groups):
        return ()
    return tuple([(i, hook) for i, group in enumerate(groups) for hook in (group or {}).values()])
