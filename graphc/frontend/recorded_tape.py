"""The tape of a recording, as data from which each call's own tape can be laid out.

A compiled call leaves one folded node (folded.py). Unfolded, it becomes what eager mode would have
left: a node per operation, which holds what its gradient rule reads. Which operations these are
and from where in the graph their values come, the recording's tape says; the values of a call
are computed again from its inputs.

Nothing here refers to the trace or its tensors: a version would keep them alive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.ir.dim import evaluate
from graphc.ir.graph import Graph, Loc
from graphc.ir.interpret import Table, resolve_attrs
from graphc.ir.interpret import evaluate as evaluate_graph
from graphc.ir.late import late
from graphc.ir.memory import may_share
from graphc.ir.named import NamedTuple
from graphc.ir.op import Attrs, Op
from graphc.ir.types import TensorType

from .function import FunctionNode
from .held import Holds, Read, read_of
from .held import Place as Where
from .nodes import (
    AccumulateGrad,
    DroppedGrad,
    Edge,
    OpNode,
    Stamped,
    named_class,
)
from .nodes import Node as GradNode
from .programs import GradientPlan
from .recorded_function import (
    Call,
    CallValues,
    NodeHooks,
    NotLaidOut,
    recorded_call,
    recorded_hooks,
)
from .saved_hooks import Packed
from .tape_order import order_of
from .used_up import used_up
from .views import Chain
from .write_nodes import AsStridedBackward, CopyBackwards, CopySlices

if TYPE_CHECKING:
    from graphc.ir.passes import specialise

    from .trace import Trace
else:
    specialise = late("graphc.ir.passes.specialise")

# where a gradient goes: (number of a step, its result), or (~number of an entry, 0)
Place = tuple[int, int]
Dims = Mapping[str, int]
Stamp = tuple[Stamped, int]  # a storage, and its version when the value was read


class Operation(NamedTuple):
    """An operator that was recorded."""

    op: Op
    name: str  # of its node
    attrs: Attrs
    edges: tuple[Place | None, ...]
    in_types: tuple[TensorType, ...]
    out_types: tuple[TensorType, ...]
    inputs: tuple[Read | None, ...]  # None: the rule does not read it
    results: tuple[Read | None, ...]
    loc: Loc | None


class Write(NamedTuple):
    """An in-place write, or a view of what was written to."""

    kind: type[GradNode]
    chain: Chain
    edges: tuple[Place | None, ...]
    types: tuple[TensorType, ...]  # as the kind takes them


class RecordedTape(NamedTuple):
    """The tape under some results: producers first."""

    steps: tuple[Operation | Write | Call, ...]
    roots: tuple[Place, ...]
    hooks: dict[int, NodeHooks]  # by step


def recorded_tape(
    trace: Trace, roots: Sequence[Edge], entries: Sequence[Edge], holds: Holds
) -> RecordedTape | None:
    """The tape from `roots` to `entries`; None where it holds what only the recording has: hooks
    that refer to its tensors, values that hooks of the user's have packed."""
    places: dict[Edge, Place] = {place: (~i, 0) for i, place in enumerate(entries)}
    ends = {node for node, _ in entries}
    steps: list[Operation | Write | Call] = []
    hooks: dict[int, NodeHooks] = {}
    for node in reversed(order_of([node for node, _ in roots])):
        if node in ends or isinstance(node, (AccumulateGrad, DroppedGrad)):
            continue
        edges = tuple([None if e is None else places.get(e) for e in node.edges])
        try:
            step = _step(trace, node, edges, places, holds)
            on_it = recorded_hooks(node)
        except NotLaidOut:
            return None
        if on_it is not None:
            hooks[len(steps)] = on_it
        places.update({(node, i): (len(steps), i) for i in range(len(node.out_types))})
        steps.append(step)
    if not places.keys() >= set(roots):
        return None
    return RecordedTape(tuple(steps), tuple([places[root] for root in roots]), hooks)


def _step(
    trace: Trace, node: GradNode, edges: tuple[Place | None, ...], places: Mapping[Edge, Place],
    holds: Holds,
) -> Operation | Write | Call:
    if isinstance(node, OpNode):
        if used_up(node, trace.env):
            raise NotLaidOut
        return Operation(
            node.op, node.name(), node.attrs, edges, node.in_types, node.out_types,
            tuple([_saved(trace, s, holds) for s in node.saved_in or (None,) * len(node.in_types)]),
            tuple([
                _saved(trace, s, holds) for s in node.saved_out or (None,) * len(node.out_types)
            ]),
            node.loc,
        )
    if isinstance(node, FunctionNode):
        return recorded_call(trace, node, edges, places, holds)
    if isinstance(node, AsStridedBackward):
        return Write(AsStridedBackward, node.chain, edges, (node.base_type, *node.out_types))
    if isinstance(node, CopySlices):
        return Write(CopySlices, node.chain, edges, (*node.out_types, node.value_type))
    if isinstance(node, CopyBackwards):
        return Write(CopyBackwards, (), edges, node.out_types)
    raise NotLaidOut


def _saved(trace: Trace, value: Any, holds: Holds) -> Read | None:
    """What an operation saved. What hooks have packed is known where they give it back as it is."""
    if value is None:
        return None
    if isinstance(value, Packed):
        if value.original is None:
            raise NotLaidOut
        return Read(value.original)
    node = trace.saved_node(value)
    return Read(node) if len(value) == 1 else read_of(node, value[1], value[3], holds)


class Layout:
    """A recorded tape at given sizes. `graph`: the values that its rules read, of the inputs."""

    def __init__(self, tape: RecordedTape, graph: Graph, dims: Dims) -> None:
        self.tape = tape
        self.dims = dims
        self.plans = [
            self._plan(step) if isinstance(step, Operation) else None for step in tape.steps
        ]
        read: dict[Read, int] = {}
        for step, plan in zip(tape.steps, self.plans, strict=True):
            for value in _read_by(step, plan):
                read.setdefault(value, len(read))
        self.read = read
        # what lies in memory that the user can write to is read there; the rest is computed
        self.held = {i: value.held for value, i in read.items() if value.held is not None}
        self.places = {held.place for held in self.held.values()}
        computed = [value.node for value in read if value.held is None]
        self.graph = Graph(f"{graph.name}_saved", graph.inputs, tuple(computed), graph.env)
        self.above = frozenset(
            (*computed, *(source for node in self.graph.nodes for source in node.inputs))
        )
        self.behind = {i for i, node in enumerate(graph.inputs) if node in self.above}

    def _plan(self, step: Operation) -> GradientPlan:
        needs = tuple([e is not None for e in step.edges])
        attrs = dict(resolve_attrs(step.attrs, self.dims))
        if "graphs" in attrs:
            bodies = attrs["graphs"]
            attrs["graphs"] = tuple([specialise.at_sizes(body, self.dims) for body in bodies])
        return GradientPlan(
            step.op, self._types(step.in_types), self._types(step.out_types), attrs, needs
        )

    def values(
        self, inputs: Sequence[np.ndarray], compute: Graph, table: Table,
        memory: Callable[[Where], np.ndarray],
    ) -> list[np.ndarray]:
        """All that is read: `compute`, which is `graph` or does the same, of the inputs, and what
        `memory` holds."""
        computed = iter(evaluate_graph(compute, inputs, table, self.dims))
        return [
            _apart(next(computed), inputs) if value.held is None
            else value.held.of(memory(value.held.place), self.dims)
            for value in self.read
        ]

    def _types(self, types: Sequence[TensorType]) -> tuple[TensorType, ...]:
        return tuple([
            t.with_shape(tuple([s if isinstance(s, int) else evaluate(s, self.dims)
                                for s in t.shape]))
            for t in types
        ])

    def nodes(
        self, values: Sequence[np.ndarray], stamps: Mapping[int, Stamp],
        entries: Sequence[Edge | None], before: float, released: int = 0,
    ) -> tuple[Edge, ...]:
        """The tape of one call; gives what made each root.

        `values`: all that is read; `stamps`: of what is the user's memory;
        `entries`: where the gradients of the entries go; `before`: the number in the order of the
        tape that all nodes are to stay below (and above the next whole number below it);
        `released`: the steps whose saved values are freed, as bits.
        """
        made: list[GradNode] = []

        def find(place: Place) -> Edge | None:
            return entries[~place[0]] if place[0] < 0 else (made[place[0]], place[1])

        kept = CallValues(self.read, values, stamps, find, self.dims)
        count = len(self.tape.steps)
        for i, (step, plan) in enumerate(zip(self.tape.steps, self.plans, strict=True)):
            edges = tuple([None if place is None else find(place) for place in step.edges])
            if isinstance(step, Operation):
                assert plan is not None
                node = self._operation(step, plan, edges, values, stamps)
            elif isinstance(step, Call):
                node = kept.node(step, edges, self._types(step.out_types))
            else:
                node = self._write(step, edges)
            if i in self.tape.hooks:
                self.tape.hooks[i].put_on(node)
            node.sequence = before - 1 + (i + 1) / (count + 1)
            if released >> i & 1:
                node.release()
            made.append(node)
        return tuple([(made[step], output) for step, output in self.tape.roots])

    def _operation(
        self, step: Operation, plan: GradientPlan, edges: tuple[Edge | None, ...],
        values: Sequence[np.ndarray], stamps: Mapping[int, Stamp],
    ) -> GradNode:
        out_types = self._types(step.out_types)
        kind: type[OpNode] = named_class(step.name, OpNode)
        node = kind(step.op, plan.attrs, edges, plan.in_types, out_types)
        node.plan, node.loc = plan, step.loc
        saved_in, saved_out = list(plan.no_inputs), list(plan.no_outputs)
        found: list[Any] = []
        for i in plan.inputs:
            number = self.number(step.inputs[i])
            saved_in[i] = values[number]
            if number in stamps:
                found.append((*stamps[number], i))
        for i in plan.outputs:
            number = self.number(step.results[i])
            saved_out[i] = values[number]
            if number in stamps:
                found.append((*stamps[number], ~i))
        node.saved_in, node.saved_out = tuple(saved_in), tuple(saved_out)
        node.stamps = tuple(found)
        return node

    def number(self, value: Read | None) -> int:
        """Which of the values that are read this is."""
        assert value is not None
        return self.read[value]

    def _write(self, step: Write, edges: tuple[Edge | None, ...]) -> GradNode:
        chain = tuple([(op, resolve_attrs(attrs, self.dims)) for op, attrs in step.chain])
        kind: Any = step.kind
        types = self._types(step.types)
        if kind is CopyBackwards:
            made: GradNode = kind(edges, types)
        else:
            made = kind(chain, edges[0] if kind is AsStridedBackward else edges, *types)
        return made


def _apart(value: np.ndarray, inputs: Sequence[np.ndarray]) -> np.ndarray:
    """A value that no write to an input changes."""
    shared = any(may_share(value, array) for array in inputs)
    return value.copy() if shared else value


def _read_by(step: Operation | Write | Call, plan: GradientPlan | None) -> list[Read]:
    """The values that the rule of a step reads."""
    if isinstance(step, Call):
        return step.reads
    if plan is None or not isinstance(step, Operation):
        return []
    read = [*(step.inputs[i] for i in plan.inputs), *(step.results[i] for i in plan.outputs)]
    return [value for value in read if value is not None]
