"""An operation that an earlier recording made, recorded again: no type rule, no geometry, no tape.

`operation_again` is Trace.apply for what is known. An operation is found by its operator, its
attributes and, of each operand, the node and the layout; what it made then, it makes again. Its
history (`nodes.OpNode`) is worked out if somebody asks: most tapes are only compared.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from graphc.ir import dtypes
from graphc.ir.dim import is_static
from graphc.ir.graph import Node, attr_key
from graphc.ir.op import Attrs, Op

from . import views
from .context import local
from .functionalize import TracedState, TracedStorage
from .history import edge, requires_grad
from .nodes import Edge, OpNode, class_of, next_sequence, records
from .tensor import Tensor
from .trace_history import record
from .unsaved import UNSAVED, keep_values
from .views import Chain

if TYPE_CHECKING:
    from .segment_trace import SegmentTrace

# values of these types are told apart by == and hash alone; 1, 1.0, True and -0.0 are not
_PLAIN = frozenset({int, str, tuple, type(None), dtypes.DType})
_NUMBERS = frozenset({bool, float})


class Operation:
    """What an operation on these nodes, in these layouts, makes."""

    __slots__ = (
        "attrs", "carries", "in_types", "kind", "node", "op", "out_types", "results", "single",
        "states", "step", "view",
    )

    def __init__(self, node: Node, results: tuple[Tensor, ...], source: Tensor | None) -> None:
        """`source`: the first operand, whose view a single result may be."""
        self.node, self.op = node, node.op
        self.attrs = dict(node.attrs)
        self.results = tuple([r._graphc_traced.value for r in results])
        self.in_types = tuple([n.tensor_type for n in node.inputs])
        self.out_types = tuple([r.tensor_type for r in self.results])
        self.single = len(results) == 1 and node is self.results[0]
        # where the results are found, if they are no views
        self.states = tuple([_place(r) for r in results])
        # which results carry a gradient; none do where there is no tape to keep
        recorded = records(node.op, node)
        self.carries = tuple([
            i for i, t in enumerate(self.out_types) if recorded and t.dtype.differentiable
        ])
        self.kind: type[OpNode] = class_of(node.op)
        # of a view: the last of the views that lead to it
        self.step: Chain = ()
        # its place as a view of what was viewed last: by the path, the writes and whether tracked
        self.view: tuple[Chain, int, bool, TracedState] | None = None
        if source is not None and results[0]._graphc_storage is source._graphc_storage:
            self.step = results[0]._graphc_traced.path[-1:]

    def place(self, before: TracedState) -> TracedState:
        """Where the view of a tensor is found."""
        path, view = before.path, self.view
        if view is not None and (
            view[0] is path and view[1] == before.stamp and view[2] is before.tracked
        ):
            return view[3]
        model = self.states[0]
        found = TracedState(
            model.type, model.value, before.stamp, None, path + self.step,
            None if model._rows else model._strides, model.offset,
        )
        found.tracked = before.tracked
        self.view = path, before.stamp, before.tracked, found
        return found

    @staticmethod
    def released(entry: OpNode) -> None:
        """A backward pass has freed what an entry of the tape saved."""
        trace: Any = entry.trace
        trace.told = False

    def fill(self, entry: OpNode) -> None:
        """Work out what an entry of the tape saved."""
        count = len(self.in_types)
        nodes = (*self.node.inputs, *self.results)
        saved: list[Any] = []
        stamps: list[Any] = []
        for i, node in enumerate(nodes):
            storage, path = entry.held[2 * i : 2 * i + 2]
            writes, version = entry.counts[i] if entry.counts else (0, 0)
            saved.append((node, storage, writes, path))
            stamps.append((storage, version, i if i < count else count - i - 1))
        entry.saved_in, entry.saved_out = tuple(saved[:count]), tuple(saved[count:])
        entry.stamps, entry.held = tuple(stamps), []
        if self.op.name in UNSAVED:
            keep_values(entry, UNSAVED[self.op.name])


def operation_again(
    trace: SegmentTrace, op: Op, inputs: tuple[Tensor, ...], attrs: Attrs
) -> Any:
    """Record an operation. Raises what its type rule finds wrong."""
    parts: list[Any] = [op]
    grad, tracks, captured = local.grad, False, False
    for tensor in inputs:
        if tensor._graphc_trace is not trace:
            tensor, captured = trace.shadow(tensor), True
        state, storage = tensor._graphc_traced, tensor._graphc_storage
        if storage.parent is None and state.stamp == storage._writes:
            node = state.value
        else:
            node = trace.read(tensor)
        parts.append(node if state._rows else (node, state._strides, state.offset))
        if grad and not tracks:
            base = tensor._base
            if tensor._graphc_node is not None or tensor._graphc_requires_grad:
                tracks = True
            elif base is not None:
                tracks = requires_grad(tensor) if trace.written or base._base is not None else (
                    base._graphc_node is not None or base._graphc_requires_grad
                )
    if attrs:
        parts += attrs
        for value in attrs.values():
            kind = type(value)
            if kind in _NUMBERS:
                value = attr_key(value)
            elif kind not in _PLAIN or (kind is tuple and trace.stepping):  # a lifted number in it
                return trace.apply_new(op, inputs, attrs)
            parts.append(value)
    key = tuple(parts)
    known: Operation | None = trace.nodes.operations.get(key)
    if captured:
        inputs = tuple([t if t._graphc_trace is trace else trace.shadow(t) for t in inputs])
    if known is None:
        return _first(trace, key, op, inputs, attrs)
    if not known.single:
        results = [_made(trace, state) for state in known.states]
        if tracks:
            _record(trace, known, inputs, results)
        return tuple(results)
    result = (
        _view(trace, known, inputs[0], grad) if known.step else _made(trace, known.states[0])
    )
    if tracks:
        _record(trace, known, inputs, (result,))
    return result


def _first(
    trace: SegmentTrace, key: Any, op: Op, inputs: tuple[Tensor, ...], attrs: Attrs
) -> Any:
    found = trace.apply_new(op, inputs, attrs)
    several = type(found) is tuple
    results: tuple[Tensor, ...] = found if several else (found,)
    node = results[0]._graphc_traced.value
    if several:
        node = node.inputs[0]
    # the rest of a call that began as one graph may have symbolic sizes
    if all(is_static(r._graphc_traced.type.shape) for r in results):
        trace.nodes.keep_operation(trace.builder, key, node, lambda: Operation(
            node, results, inputs[0] if inputs else None
        ))
    return found


def _place(tensor: Tensor) -> TracedState:
    """Where a tensor is found, for every recording."""
    state = tensor._graphc_traced
    strides = None if state._rows else state._strides
    return TracedState(state.type, state.value, 0, None, (), strides, state.offset)


def _made(trace: SegmentTrace, state: TracedState) -> Tensor:
    """A new tensor on memory of its own."""
    result: Tensor = object.__new__(Tensor)
    result._graphc_trace, result._graphc_traced = trace, state
    storage = result._graphc_storage = object.__new__(TracedStorage)
    storage.node = state.value
    storage.layout = None if state._rows else state._strides
    storage.source = storage.parent = None
    storage.path, storage._version, storage._writes = (), 0, 0
    storage.inference = trace.inference and local.inference
    trace.handles.append(weakref.ref(result))
    return result


def _view(trace: SegmentTrace, known: Operation, source: Tensor, grad: bool) -> Tensor:
    """A new view of a traced tensor, whose value was read just now."""
    before = source._graphc_traced
    result: Tensor = object.__new__(Tensor)
    result._graphc_trace = trace
    storage = result._graphc_storage = source._graphc_storage
    state = result._graphc_traced = known.place(before)
    base = source._base
    if base is None:
        base = source
    elif base._base is not None:
        base = views.base_of(source)
    result._base = base
    chain = source._graphc_chain
    result._graphc_chain = state.path if chain is before.path else chain + known.step
    if trace.written:
        result._graphc_seen = storage.version
    if not grad or source._graphc_no_grad_view:
        result._graphc_no_grad_view = True
    if source._graphc_several is not None:
        result._graphc_several = ""
    trace.handles.append(weakref.ref(result))
    return result


def _record(
    trace: SegmentTrace, known: Operation, inputs: tuple[Tensor, ...],
    results: Sequence[Tensor],
) -> None:
    """Note that an operation made `results` of `inputs`, where a gradient flows."""
    if not known.carries:
        return
    edges: list[Edge | None] = []
    script: list[Any] = [known]
    held: list[Any] = []
    flows = False
    for t in inputs:
        node = t._graphc_node
        if node is not None and t._base is None:
            place = node, t._graphc_output
        elif requires_grad(t):
            place = edge(t)
        else:
            edges.append(None)
            script.append("")
            held += t._graphc_storage, t._graphc_traced.path
            continue
        edges.append(place)
        position = place[0].position
        if position is None:
            trace.told = False
        script += position, place[1]
        held += t._graphc_storage, t._graphc_traced.path
        flows = True
    if not flows:
        return
    if local.saved_hooks or trace.inference:
        record(trace, known.node, known.node.inputs, list(inputs), tuple(edges), list(results))
        return
    entry: OpNode = object.__new__(known.kind)
    entry.edges, entry.out_types, entry.known = tuple(edges), known.out_types, known
    entry.op, entry.attrs, entry.in_types = known.op, known.attrs, known.in_types
    entry.sequence, entry.loc, entry.trace = next_sequence(), known.node.loc, trace
    for t in results:
        held += t._graphc_storage, t._graphc_traced.path
    entry.held = held
    if trace.written:
        entry.counts = [
            (t._graphc_storage.writes, t._graphc_storage.version) for t in (*inputs, *results)
        ]
    entry.position = trace.taped
    trace.taped += 1
    trace.script += script
    for i in known.carries:
        result = results[i]
        result._graphc_node = entry
        if i:
            result._graphc_output = i
