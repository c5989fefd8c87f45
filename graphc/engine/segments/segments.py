"""Functions that run in segments: where Python needs a value, what was recorded is run.

Each stretch between two demands is recorded anew at every call. Its executable is found by the
fingerprint of the recording (frontend/segment_tape.py): the same operators on the same operands,
with the same tape. Sizes and one-element constants are compiled as they are the first time; where
they differ later, what differs becomes symbolic or an input (segment_template.py). As every call
records concrete values, a version is used only where it says exactly what was recorded: there is
nothing to guard and nothing to be stale. Which recordings are compiled, tiers.py says.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ... import backends
from ... import config as configuration
from ...backends.host.memory import HOST
from ...config import AGAIN
from ...frontend import caught
from ...frontend.captured import TensorInput
from ...frontend.context import local
from ...frontend.eager_count import EagerCount
from ...frontend.errors import TraceError
from ...frontend.history import edge
from ...frontend.names import KeptNames
from ...frontend.nodes import Edge, Node
from ...frontend.placement import Place
from ...frontend.segment_close import Segment
from ...frontend.segment_nodes import KnownNodes
from ...frontend.segment_tape import Fingerprint, light_key
from ...frontend.segment_trace import SegmentEnd, SegmentTrace
from ...frontend.trace import Trace
from ...ir import forks
from ...ir.graph import Graph
from ...ir.graph import Node as IrNode
from ...ir.late import late
from ...ir.op import OpError
from .. import multiplier, pipeline
from ..built import CompileCounter, Engine, before_write, count_writes, kept_for_backward
from ..capture.collecting import keep_apart
from ..capture.reached import given, reached
from ..devices import backend_at
from ..mode import USUAL, Mode
from ..version.refused import ERRORS, note_run
from . import foreseen
from .backward import Recorded, SegmentBackward, SegmentBackwardPlan, held, plan_of
from .nested import NestedModules
from .salvage import leave_out_failed
from .stepwise import Stepwise
from .template import NoTemplate, Template
from .tiers import (
    Tiers,
    eager_work,
    operators,
    version_cost,
    warn_plain,
    warn_values_only,
    warn_versions,
    work,
)

if TYPE_CHECKING:
    from ...ir.passes import partition
else:
    partition = late("graphc.ir.passes.partition")

_LIMIT = 10_000
# what a Template is made of: its name, the fingerprints, inputs, cotangents, outputs
Parts: TypeAlias = tuple[
    str, Fingerprint, Fingerprint, list[IrNode], list[IrNode], list[IrNode]
]


class Version:
    """One segment as something to run."""

    def __init__(
        self, template: Template | None, engine: Engine, outputs: int,
        plan: SegmentBackwardPlan | None, recorded: Sequence[IrNode], seconds: float,
    ) -> None:
        """`template`: None where it goes operator by operator, for this one call; `outputs`: of the
        segment, saved values follow; `recorded`: with the gradients, sizes as they were."""
        self.template, self.engine, self.outputs, self.plan = template, engine, outputs, plan
        self.seconds, self.calls = seconds, 0
        self.nodes = operators(recorded)
        self.cost = version_cost(self.nodes, self.plan is not None)
        self.work = work(recorded)


# a version, the values of its dims, the constants that are its inputs
Found: TypeAlias = tuple[Version, dict[str, int], list[np.ndarray]]


class _Native(threading.local):
    """Seconds of this thread in compiled code and in compiling."""

    seconds = 0.0


class Segments:
    """The compiled segments of one function."""

    def __init__(
        self, name: str, backend: str, compile: Callable[..., Any], always: bool = False,
        mode: Mode = USUAL,
    ) -> None:
        """`compile`: makes a CompiledFunction of a function. `always`: compile each segment at its
        first meeting."""
        self.name, self.backend, self.mode = name, backend, mode
        self.versions: dict[Any, list[Version]] = {}
        self.compile_count = 0
        # versions that are known to fit, by key and numbers; constants that need not be compared
        # (the last: constants that are inputs of other versions alone, by place)
        self.exact: dict[Any, tuple[Version, dict[str, int], tuple[Any, ...]]] = {}
        self.free: dict[Any, set[int]] = {}
        self.ends: dict[SegmentEnd, int] = {}  # how often each demand ended a segment
        self.calls = 0
        self.tiers = Tiers(always)
        self.nodes = KnownNodes()
        self.names = KeptNames()
        self.seconds = 0.0  # recording and finding, without the native code
        self._native = _Native()
        self.modules = NestedModules(compile, self._native)
        self._calls_modules = True  # whether some may be versions of their own
        self._lock = forks.rlock()

    def call(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Run a function's Python, in segments or as plain eager code, and the Modules that it
        calls as versions of their own where that gains."""
        # plain eager code would draw torch's numbers
        plain = configuration.current().random != "counter" and self.tiers.is_plain()
        outer = local.nested
        local.nested = None if plain and not self._calls_modules else self.modules.call
        try:
            if plain:
                return function(*args, **kwargs)
            trace = self.trace(whole=False)
            trace.names = self.names.of_call(
                lambda: reached(function, args, kwargs), lambda: given(function, args, kwargs)
            )
            return self.go_on(trace, lambda: function(*args, **kwargs))
        except BaseException as error:
            note_run(error)
            raise
        finally:
            local.nested = outer

    def trace(self, whole: bool) -> SegmentTrace:
        """A recording whose segments are kept here."""
        return SegmentTrace(self.name, self.flush, whole, self.nodes)

    def go_on(self, trace: SegmentTrace, rest: Callable[[], Any]) -> Any:
        """Run Python under a segmented trace to its end."""
        keep_apart()
        outer, local.trace = local.trace, trace
        started, native = time.perf_counter(), self._native.seconds
        try:
            try:
                result = rest()
            except BaseException:
                trace.flush()  # what eager mode would have done by now is done
                raise
            trace.flush()
        finally:
            local.trace = outer
            self.note(trace, turned=False)
            self.seconds += time.perf_counter() - started - (self._native.seconds - native)
        return result

    def turned(self, trace: SegmentTrace) -> None:
        """A recording of the whole has met a demand: unless what it ran so far is large, the rest
        of the call is plain eager code, which is counted."""
        # eager mode would draw torch's numbers
        if configuration.current().random == "counter" or self.tiers.always:
            return
        if self.tiers.is_small:
            trace.counted = local.counted = EagerCount()
            local.trace, local.nested = None, self.modules.count

    def first_call(
        self, function: Callable[..., Any], args: Any, kwargs: Any, *, turn: Callable[[], Any],
        awaited: frozenset[foreseen.Line],
    ) -> Any:
        """A first call as plain eager code, which is counted. `turn` is called if it needed a
        value on one of the lines; if not, the next call is to be recorded as the first one."""
        counted = local.counted = EagerCount(awaited)
        outer, local.nested = local.nested, self.modules.count
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            note_run(error)
            raise
        finally:
            local.counted, local.nested = None, outer
        if counted.first is not None:
            self._judge([SegmentEnd(*counted.first, value=True)], counted, turned=True)
            turn()
        return result

    def opened_by(self, error: TraceError) -> Segments:
        """Note what made the attempt at one graph fail, where segments will not meet it again."""
        end = error.end or SegmentEnd(str(error).split(". Cure")[0], None)
        if not end.value:
            self.ends.setdefault(end, 1)
        return self

    def give_up(self, reasons: list[str]) -> None:
        """Note that the function was compiled anew too often."""
        why = f": {reasons[0]}" if reasons else ""
        self.ends[SegmentEnd(f"each call needed another version{why}, which", None)] = 1
        if not self.tiers.told:
            warn_versions(self.name, reasons[0] if reasons else "its guards break")

    def note(self, trace: Trace, turned: bool = True) -> None:
        """Remember where a call's segments ended. `turned`: it began as one graph."""
        assert isinstance(trace, SegmentTrace)
        with self._lock:
            self.modules.know(trace)
        self._judge(trace.ends, trace.counted, turned, turned and trace.passing)

    def _judge(
        self, ends: list[SegmentEnd], counted: EagerCount | None, turned: bool,
        passing: bool = False,
    ) -> None:
        """Count a call, and see whether the next is to be recorded."""
        with self._lock:
            self.calls += 1
            if counted is not None:
                nodes = len(counted.ran) - counted.again
                self.tiers.ran(nodes, *eager_work(counted.ran), 0)
            for end in ends:
                self.ends[end] = self.ends.get(end, 0) + 1
            leaves = not self.tiers.plain and self.tiers.end_call(turned, passing)
            if leaves:
                self._calls_modules = any(self.modules.closed())
            warns = leaves and not self.tiers.told and not self._calls_modules
            self.tiers.told |= warns
        if self.calls == 1 and configuration.current().check >= AGAIN:
            warn_values_only(self.name, self.ends)
        if warns:
            warn_plain(self.name, self.tiers.plain, self.ends)

    # --- one segment -------------------------------------------------------------------------

    def flush(self, trace: SegmentTrace) -> None:
        """Run what a trace recorded, and make its tensors concrete."""
        segment = Segment(trace)
        try:
            self._flush(segment)
        except ERRORS:
            with trace.suspended():
                less = leave_out_failed(segment)
            if less:
                self._flush(Segment(trace))
            raise

    def _flush(self, segment: Segment) -> None:
        trace = segment.trace
        if segment.empty:
            with trace.suspended():
                segment.fill([], Node((), ()))
            return
        version, dims, extra = self._known(segment)
        with self._lock:
            wanted = version.cost if version.template is None else 0
            self.tiers.ran(version.nodes, *version.work, wanted)
        with trace.suspended():
            self._run(segment, version, dims, extra)

    def _known(self, segment: Segment) -> Found:
        """What runs a segment: at once where it was recorded before, node by node."""
        trace = segment.trace
        inputs = [i.node for i in segment.inputs]
        mutations = tuple([(output, source.number) for output, source, _ in segment.mutations])
        asked = configuration.current().random, multiplier.in_force()
        around = mutations, tuple(trace.overlaps), asked, trace.place
        light: Any
        if segment.script is not None:
            light = segment.script, tuple(inputs), tuple(segment.outputs)
            found: Found | None = self.nodes.found.get((light, around))
            if found is not None and self._stays(found[0]):
                return found
        roots = [edge(t) for t in segment.roots]
        leaves: dict[Edge, int] = {place: i for i, (_, place) in enumerate(segment.entries)}
        if segment.script is None:
            light = light_key(inputs, segment.outputs, roots, leaves, segment.tape, trace.written)
            found = None if light is None else self.nodes.found.get((light, around))
            if found is not None and self._stays(found[0]):
                return found
        forward = Fingerprint(inputs, segment.outputs, roots, leaves, segment.tape)
        version, dims = self._find(segment, (forward.key, *around), forward)
        template = version.template
        found = version, dims, [] if template is None else template.arrays(forward)
        if light is not None and not forward.opaque:
            self.nodes.keep(trace.builder, (light, around), found)
        return found

    def _stays(self, version: Version) -> bool:
        """Whether a version is still what runs a segment."""
        return version.template is not None or not self.tiers.affords(version.cost)

    def _find(
        self, segment: Segment, key: Any, forward: Fingerprint
    ) -> tuple[Version, dict[str, int]]:
        if not forward.opaque:
            # without the constants that are inputs
            lifted = self.free.get(key, ())  # hashing a key takes as long as it is
            numbers = tuple([None if i in lifted else n for i, n in enumerate(forward.numbers)])
            found = self.exact.get((key, numbers))
            if found is not None and all(
                forward.numbers[i] == n for i, n in found[2]
            ):
                return found[:2]
        tangents, gradients = segment.record_backward()
        inputs = [i.node for i in segment.inputs]
        entries = [i for i, gradient in enumerate(gradients) if gradient is not None]
        outputs = [*segment.outputs, *(g for g in gradients if g is not None)]
        whole = Fingerprint([*inputs, *tangents], outputs, (), {}, (), forward)
        with self._lock, segment.trace.suspended():
            for version in self.versions.get(key, ()):
                assert version.template is not None
                dims = version.template.match(whole)
                if dims is not None:
                    break
            else:
                parts = segment.trace.name, forward, whole, inputs, tangents, outputs
                nodes = operators(whole.nodes)
                place = segment.trace.place or None
                # bodies run operator by operator on the CPU alone
                compiles = self.tiers.compiles(
                    key, parts, nodes, version_cost(nodes, bool(entries))
                ) or (place and any(node.graphs for node in whole.nodes))
                if not compiles or (place and not place.backend):
                    return self._stepwise(segment, entries, parts), {}
                version = self._build(segment, key, entries, parts)
                assert version.template is not None
                dims = version.template.match(whole)
                assert dims is not None
            free = self.free.setdefault(key, set())
            free |= version.template.free(whole, forward)
            numbers = tuple([None if i in free else n for i, n in enumerate(forward.numbers)])
            if len(self.exact) > _LIMIT:
                self.exact.clear()
            own = version.template.free(whole, forward)
            fixed = tuple([(i, forward.numbers[i]) for i in free if i not in own])
            self.exact[key, numbers] = version, dims, fixed
        return version, dims

    def _build(self, segment: Segment, key: Any, entries: list[int], parts: Parts) -> Version:
        mutated = {output: source.number for output, source, _ in segment.mutations}
        started = time.perf_counter()
        known, nodes = self.versions.setdefault(key, []), parts[2].nodes
        version: Version | None = None
        older = known[0].template if known else self._first(key, parts)
        if older is not None:
            try:
                template = Template(*parts, older)
                version = self._compiled(template, segment, entries, mutated, nodes)
            except (NoTemplate, OpError, TypeError, ValueError, AttributeError, RuntimeError):
                version = None  # these sizes alone
        if version is None:
            version = self._compiled(Template(*parts, None), segment, entries, mutated, nodes)
        known.insert(0, version)
        self.tiers.pay(version.cost)
        self._native.seconds += time.perf_counter() - started
        self.compile_count += 1
        CompileCounter.count += 1
        return version

    def _first(self, key: Any, parts: Parts) -> Template | None:
        """What the first meeting ran operator by operator, where its sizes were others."""
        first: Parts | None = self.tiers.first.pop(key, None)
        if first is None or first[2].numbers == parts[2].numbers:
            return None
        return Template(*first, None)

    def _compiled(
        self, template: Template, segment: Segment, entries: list[int],
        mutated: dict[int, int], nodes: Sequence[IrNode],
    ) -> Version:
        started = time.perf_counter()
        graph = template.graph
        settings = self.mode.config()
        place = segment.trace.place or None
        dims = tuple(graph.env.hints)
        options: dict[str, Any] = {
            "config": settings, "mutated": mutated, "name": self.name,
            "backend": backend_at(place, self.backend),
        }
        allocate = backends.get(options["backend"]).memory.allocate
        count = len(segment.outputs)
        plan = None
        inputs = len(graph.inputs) - len(segment.roots)
        if entries:
            forward, _, split = pipeline.build_pair(graph, inputs, count, late=True, **options)
            types = [n.tensor_type for n in split.forward.outputs]
            late = functools.partial(self._late, backend=options["backend"])
            plan = plan_of(
                segment, graph, split, entries, late, allocate, self._drawn(place)
            )
        else:
            graph = Graph(graph.name, graph.inputs[:inputs], graph.outputs, graph.env)
            forward = pipeline.build(graph, **options)
            types = [n.tensor_type for n in graph.outputs]
        template.assumes(forward.assumed)
        engine = Engine(forward, types, dims, allocate, place, mutated)
        return Version(template, engine, count, plan, nodes, time.perf_counter() - started)

    def _stepwise(self, segment: Segment, entries: list[int], parts: Parts) -> Version:
        """A recording as it is, to be run operator by operator."""
        name, _, whole, inputs, tangents, outputs = parts
        mutated = {output: source.number for output, source, _ in segment.mutations}
        graph = Graph(name, (*inputs, *tangents), tuple(outputs), segment.trace.env)
        place = segment.trace.place or None
        drawn = self._drawn(place)
        graph = drawn(graph)
        count = len(segment.outputs)
        split = partition.split_uncut(graph, len(inputs), count)
        allocate = place.memory.allocate if place else HOST.allocate
        plan = plan_of(
            segment, graph, split, entries, Stepwise, allocate, drawn
        ) if entries else None
        types = [n.tensor_type for n in split.forward.outputs]
        engine = Engine(Stepwise(split.forward), types, (), allocate, place, mutated)
        return Version(None, engine, count, plan, whole.nodes, 0.0)

    def _drawn(self, place: Place | None) -> Callable[[Graph], Graph]:
        """A graph as it may be run by itself on a device."""
        if place is not None and place.backend is None:  # meta: no numbers, however they are drawn
            return lambda graph: graph
        backend = backend_at(place, self.backend)
        return lambda graph: pipeline.as_drawn(graph, configuration.current(), backend)

    def _late(self, graph: Graph, backend: str) -> Any:
        """A backward, built when it first runs."""
        self.compile_count += 1
        CompileCounter.count += 1
        name = f"{self.name}_backward"
        return pipeline.build(graph, config=self.mode.config(), name=name, backend=backend)

    # --- the native call ---------------------------------------------------------------------

    def _run(
        self, segment: Segment, version: Version, dims: dict[str, int], extra: list[np.ndarray]
    ) -> None:
        version.calls += 1
        arrays = [*segment.arrays(), *extra]
        plan, mutated = version.plan, version.engine.mutated
        edges: tuple[Edge, ...] = ()
        read: list[int] = []
        if plan is not None:
            edges = tuple([edge(segment.entries[i][0]) for i in plan.entries])
            read = [i for kind, i in plan.saved if kind == "input"]
        written = [
            (segment.owner(source.number)._graphc_storage, versions)
            for _, source, versions in segment.mutations
        ]
        before_write(written)
        parts = {part for part, _ in segment.trace.overlaps}
        started = time.perf_counter()
        with version.engine.turns(arrays):
            before = kept_for_backward(read, arrays, mutated)
            given, results = version.engine.call(arrays, dims, parts, segment.memory)
        self._native.seconds += time.perf_counter() - started
        count_writes(written)
        types = tuple([t._graphc_traced.type for t in segment.roots])
        if plan is None:
            segment.fill(results, Node((), types))
            return
        saved = [
            before.get(i, given[i]) if kind == "input" else results[i] for kind, i in plan.saved
        ]
        node = SegmentBackward(plan, edges, types, saved, dims)
        overwritten = set(mutated.values())
        # the user's memory, not a copy in order: what is written there later concerns it
        own = set(range(len(arrays))) - parts - overwritten if version.engine.place is None else ()
        recorded = Recorded(
            segment.trace, tuple([i.node for i in segment.inputs]),
            [edge(t) for t in segment.roots], [place for _, place in segment.entries],
            segment.holds(),
        )
        node.remember(
            recorded,
            [before.get(i, arrays[i] if i in own else a) for i, a in enumerate(given)],
            {i: segment.owner(i)._graphc_storage for i in plan.replay.read if i not in overwritten
             and i < len(segment.inputs) and isinstance(segment.inputs[i], TensorInput)},
            overwritten - before.keys(),
        )
        segment.fill(results, node)
        node.watch(held(segment, mutated, results))


caught.entries.add(Segments.go_on.__code__)
