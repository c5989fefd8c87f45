"""The backward of a compiled segment, built for the gradients that really arrive."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...frontend.context import local
from ...frontend.errors import located
from ...frontend.held import Holds
from ...frontend.history import edge
from ...frontend.nodes import Edge, zeros
from ...frontend.recorded_tape import Layout, recorded_tape
from ...frontend.segment_close import Segment
from ...frontend.segment_tape import nodes_read
from ...frontend.segment_trace import SegmentTrace
from ...frontend.tape_order import inner_roots, labels_of
from ...frontend.tensor import Tensor
from ...ir.graph import Graph
from ...ir.graph import Node as IrNode
from ...ir.memory import DeviceArray
from ...ir.named import NamedTuple
from ...ir.types import TensorType
from ..built import Allocate, concrete_shape
from ..version.parts import Build, Parts, behind
from ..version.replay import Replay, replay, replay_of
from ..version.saved import SavingNode
from ..version.spent import Spending

if TYPE_CHECKING:
    from ...ir.passes.partition import Split


class Recorded(NamedTuple):
    """What a segment was recorded from, for the node of its run to be unfolded."""

    trace: SegmentTrace
    inputs: tuple[IrNode, ...]
    roots: list[Edge]
    entries: Sequence[Edge | None]  # None: forgotten
    holds: Holds


class SegmentBackwardPlan:
    """The backward graph of a segment: its inputs are saved values, then cotangents."""

    def __init__(
        self, graph: Graph, saved: Sequence[tuple[str, int]], entries: list[int],
        strict: set[int], parts: Parts, drawn: Callable[[Graph], Graph],
    ) -> None:
        """`drawn`: makes of a graph what may be run by itself."""
        self.graph = graph
        self.saved = tuple(saved)
        self.entries = entries  # which of the segment's entries each output is for
        self.inner: frozenset[int] = frozenset()
        self.labels: tuple[str, ...] = ()
        self.strict = strict  # saved values that eager mode's rules read, too
        self.parts = parts
        self.spending: Spending | None = None  # once a pass has used up a part
        # of runs that a pass has used up; not known before the first
        self.freed: Callable[[], Layout | None] | None = None
        self.replay: Replay  # for create_graph, where it cannot be unfolded
        self.drawn = drawn


def plan_of(
    segment: Segment, graph: Graph, split: Split, entries: list[int],
    build: Build, allocate: Allocate, drawn: Callable[[Graph], Graph],
) -> SegmentBackwardPlan:
    """The backward of a segment; `build` makes something that runs of each part of it, `drawn`
    what may run by itself."""
    count = len(segment.outputs)
    roots = [edge(t) for t in segment.roots]
    read = nodes_read([node for node, _ in roots])
    strict = {
        place for place, (kind, i) in enumerate(split.saved)
        if (kind == "input" and i < len(segment.inputs) and segment.inputs[i].node in read)
        or (kind == "output" and i < count and segment.outputs[i] in read)
    }
    inputs = len(graph.inputs) - len(segment.roots)
    parts = Parts(
        split.backward, len(split.saved), build, behind(graph, inputs, count), allocate,
        segment.trace.place or None,
    )
    plan = SegmentBackwardPlan(
        split.backward, split.saved, entries, strict, parts, drawn,
    )
    plan.inner = inner_roots(roots)
    plan.labels = labels_of(roots)
    sources = [_source(segment, segment.entries[i][0]) for i in entries]
    plan.replay = replay_of(graph, inputs, count, segment.inputs, sources)
    return plan


def _source(segment: Segment, tensor: Tensor) -> tuple[int, Tensor]:
    """The argument that a tensor is (-1: it is captured), and the tensor."""
    return segment.trace.argument_index(tensor), tensor


class SegmentBackward(SavingNode):
    """The history of what one run of a segment left: native calls."""

    def __init__(
        self, plan: SegmentBackwardPlan, edges: Any, types: Any, saved: list[np.ndarray],
        dims: dict[str, int],
    ) -> None:
        super().__init__(edges, types)
        self.plan = plan
        self.inner = plan.inner
        self.labels = plan.labels
        self.saved, self.places = saved, plan.saved
        self.dims = dims
        self.overwritten: set[int] = set()
        self.recorded: Recorded
        self._laid: tuple[Layout, Graph] | None = None

    def name(self) -> str:
        return "CompiledBackward"

    def spending(self, whole: bool) -> Spending | None:
        plan = self.plan
        if plan.spending is None and not whole and self.saved is not None:
            laid = self.layout()
            if laid is not None:
                gradients: list[int | None] = [None] * len(self.recorded.entries)
                for i, entry in enumerate(plan.entries):
                    gradients[entry] = i
                plan.spending = Spending(laid[0].tape, gradients, plan.parts, laid[0].graph.env)
        return plan.spending

    def forget(self) -> None:
        super().forget()
        if self.plan.freed is None and not self.released:
            laid = self._lay()
            self.plan.freed = lambda: laid
        self.released = True
        self.recorded = self.recorded._replace(
            roots=[], entries=[None] * len(self.recorded.entries)
        )
        self._laid = None

    def layout(self) -> tuple[Layout, Graph] | None:
        if self._laid is None:
            layout = self._lay()
            if layout is None:
                return None
            self._laid = layout, self.plan.drawn(layout.graph)
        return self._laid

    def _lay(self) -> Layout | None:
        recorded = self.recorded
        entries = [e for e in recorded.entries if e is not None]
        tape = recorded_tape(recorded.trace, recorded.roots, entries, recorded.holds)
        if tape is None:
            return None
        return Layout(tape, Graph(self.plan.graph.name, recorded.inputs, ()), {})

    def freed_layout(self) -> Layout | None:
        return None if self.plan.freed is None else self.plan.freed()

    def read_directly(self, place: int) -> bool:
        return place in self.plan.strict

    def recomputable(self, layout: Layout) -> bool:
        needed = layout.behind | {i for kind, i in layout.places if kind == "input"}
        return needed.isdisjoint(self.overwritten)

    def entries(self) -> list[Edge | None]:
        found: list[Edge | None] = [None] * len(self.recorded.entries)
        for number, place in zip(self.plan.entries, self.edges, strict=True):
            found[number] = place
        return found

    def modified(self, number: int) -> str:
        return _modified(self.input_stamps[number], self.inputs[number])

    def run(self, grads: list[Any], needs: Sequence[bool], world: Any) -> Sequence[Any]:
        given = tuple([g is not None for g in grads])
        by_tape = any(g is not None and not isinstance(g, (np.ndarray, DeviceArray)) for g in grads)
        self.begin(given, needs, by_tape)
        if by_tape:
            return self._by_tape(grads, needs, world)
        found: list[Any] = [None] * len(self.edges)
        part = self.plan.parts.part(given, tuple(needs))
        if part.engines is None:
            return found
        saved = self.saved or ()
        for i in part.saved:
            if i in self.stamps:
                _check_unchanged(self.stamps[i], saved[i])
        for i, value in zip(part.results, part.call(saved, grads, self.dims), strict=True):
            found[i] = value
        return found

    def remember(
        self, recorded: Recorded, arrays: list[np.ndarray], owners: dict[int, Any],
        overwritten: set[int],
    ) -> None:
        """What unfolding and create_graph compute from: the segment's inputs, their storages by
        number, and which of them the segment has written to since."""
        self.recorded = recorded
        self.inputs = arrays
        self.overwritten = overwritten
        self.input_stamps = {i: (storage, storage.version) for i, storage in owners.items()}
        self.noted()

    def _by_tape(self, grads: list[Any], needs: Sequence[bool], world: Any) -> list[Any]:
        """The gradients with a history of their own."""
        plan = self.plan.replay
        if not plan.read.isdisjoint(self.overwritten):
            raise RuntimeError(located(
                "create_graph=True through a segment of a compiled function that overwrites what "
                "its gradients are computed from is not supported. Cure: clone() that first, or "
                "call the function uncompiled"
            ))
        for i in plan.read.intersection(self.input_stamps):
            _check_unchanged(self.input_stamps[i], self.inputs[i])
        like = world.to_expr(next(g for g in grads if g is not None))
        types = [
            TensorType(t.dtype, concrete_shape(t, self.dims)) for t in self.out_types
        ]
        given = [
            world.to_tensor(world.from_expr(zeros(like, t)) if g is None else g)
            for g, t in zip(grads, types, strict=True)
        ]
        found = replay(plan, self.inputs, given, self.edges, self.dims, local.grad)
        return [
            world.from_tensor(t) if need else None for t, need in zip(found, needs, strict=True)
        ]


def held(
    segment: Segment, mutated: Mapping[int, int], results: list[np.ndarray]
) -> dict[int, tuple[Any, np.ndarray]]:
    """Outputs whose memory the user can write to: the storage, and the memory as a value.
    `mutated`: the input into whose memory an output is written."""
    storages = {id(t._graphc_storage.root.array): t._graphc_storage.root for t in segment.living}
    found: dict[int, tuple[Any, np.ndarray]] = {}
    for i in segment.made.values():
        storage = storages.get(id(results[i]))
        if storage is not None:
            order = segment.orders[i]
            found[i] = storage, results[i] if order is None else results[i].transpose(order)
    for i, number in mutated.items():
        found[i] = segment.owner(number)._graphc_storage, segment.memory(number)
    return found


def _check_unchanged(stamp: tuple[Any, int], array: np.ndarray) -> None:
    """Raise RuntimeError if a storage was written to since."""
    if stamp[0].version != stamp[1]:
        raise RuntimeError(located(_modified(stamp, array)))


def _modified(stamp: tuple[Any, int], array: np.ndarray) -> str:
    storage, version = stamp
    return (
        "one of the variables needed for gradient computation has been modified by an "
        f"inplace operation: [torch.Tensor {list(array.shape)}] is at version "
        f"{storage.version}; expected version {version} instead. Hint: use an "
        "out-of-place operation, or clone() the tensor before the in-place one."
    )
