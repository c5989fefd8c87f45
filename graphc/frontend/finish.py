"""The end of a trace: which values leave it, and what they are in the user's world."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.ir.graph import Node
from graphc.ir.record import replaced
from graphc.ir.types import Shape, TensorType

from .autograd import Pass
from .captured import (
    UNREAD,
    Backward,
    FlagWrite,
    GradRead,
    GradWrite,
    InputAlias,
    Mutation,
    Output,
    Rebind,
    TensorInput,
    TracedGraph,
)
from .context import local
from .functionalize import TracedStorage, dense_order, is_contiguous
from .held import behind_prefix
from .history import edge, gradient_kind, is_outdated, requires_grad
from .nodes import Edge, OpNode
from .nodes import Node as GradNode
from .pending import PendingItem
from .picks import Pick
from .recorded_tape import recorded_tape
from .segment_tape import tape_of
from .storage import address, strides_of
from .tape_order import inner_roots, labels_of, order_of
from .tensor import Tensor
from .texts import is_traced_value, plain_value
from .tree import Structure, flatten, unflatten
from .unread import unread
from .used_up import entries_behind, spent_nodes
from .views import Chain, base_of

if TYPE_CHECKING:
    from .trace import Trace


def finish(trace: Trace, result: Any, stored: dict[Any, Any], backward: bool) -> TracedGraph:
    """Build the Graph and say what its inputs and outputs are. The trace stays open: close() it
    (or rollback()) when its traced tensors have been replaced."""
    return _Finish(trace).run(result, stored, backward)


def _of_array(value: Any) -> Any:
    """A tensor on whose memory an array is given, which leaves with it."""
    return value.tensor if type(value) is PendingItem and value.method == "numpy" else value


def _memory(value: Any, trace: Trace, picks: dict[int, Pick]) -> Iterator[TracedStorage]:
    """The memory that a value lies in, and, of x[i], that of x."""
    while isinstance(value, Tensor):
        if value._graphc_trace is not trace:
            known = trace.shadows.get(id(value))
            if known is None:
                return
            value = known[1]
        root: Any = value._graphc_storage.root
        yield root
        pick = picks.get(id(root))
        if pick is None:
            return
        value = pick.x


class _Finish:
    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.order: list[Node] = []  # graph outputs
        self.written: dict[int, int] = {}  # by id of a captured storage: the output that it gets
        # by id of a storage on which views lie: its output, and how that is turned back
        self.bases: dict[int, tuple[int, tuple[int, ...] | None]] = {}
        self.outputs: dict[int, Output] = {}  # by id of the tensor
        self.leaving: set[int] = set()  # ids of the traced tensors that leave
        self.sharing: dict[int, int] = {}  # id of a storage made in the trace -> tensors on it
        # by id of a storage of which one tensor leaves: its output, and the views that lead there
        self.whole: dict[int, tuple[int, Chain]] = {}
        self.spent: set[GradNode] = set()  # what made values that can be differentiated no more
        self.rows: dict[int, Pick] = {}  # by id of a copy's storage: x[i] that is to be a view

    def run(self, result: Any, stored: dict[Any, Any], backward: bool) -> TracedGraph:
        trace, which = self.trace, self.trace.argument_index
        leaves, structure = flatten(result)
        grads = [
            (tensor, shadow._grad)
            for tensor, shadow in trace.shadows.values()
            if shadow._grad is not UNREAD
            # where nobody has looked, a later call may find something else there
            and (shadow._grad is not tensor._grad or id(tensor) not in trace.grad_reads)
        ]
        stored_leaves = flatten(list(stored.values()))[0]
        rebound = [value for _, value in trace.rebound.values()]
        leaving = [_of_array(v) for v in (*leaves, *stored_leaves)]
        leaving += [*(g for _, g in grads), *rebound]
        self._find_rows(leaving)
        self._count(leaving)
        self._find_spent(leaving)
        if backward:
            self._count_read(leaving)
        outputs = [self.output(leaf) for leaf in leaves]
        kept = {key: self._outputs(value) for key, value in stored.items()}
        mutations = self._mutations()
        rebinds = [Rebind(t, self.output(v), which(t)) for t, v in trace.rebound.values()]
        grad_writes = [self._grad_write(tensor, value) for tensor, value in grads]
        flags = [
            FlagWrite(tensor, shadow._graphc_requires_grad, which(tensor))
            for tensor, shadow in trace.shadows.values()
            if tensor._graphc_node is None
            and shadow._graphc_requires_grad != tensor._graphc_requires_grad
        ]
        grad_reads = [GradRead(t, present, which(t)) for t, present in trace.grad_reads.values()]
        self.order += unread(trace.builder, trace.builder.made(), self.order)
        differentiated = self._backward(leaving) if backward else None
        return TracedGraph(
            trace.builder.build(self.order, trace.name), tuple(trace.inputs),
            unflatten(outputs, _plain_keys(structure)), kept, tuple(mutations), tuple(rebinds),
            tuple(grad_writes), tuple(flags), tuple(grad_reads),
            tuple(trace.number_guards.values()), tuple(trace.overlaps),
            tuple(_input_aliases(trace)), differentiated, tuple(trace.deferred),
        )

    # --- outputs ---------------------------------------------------------------------------

    def _count(self, leaving: list[Any]) -> None:
        for value in leaving:
            if not isinstance(value, Tensor) or value._graphc_trace is not self.trace:
                continue
            if id(value) not in self.leaving:
                self.leaving.add(id(value))
                root = value._graphc_storage.root
                self.sharing[id(root)] = self.sharing.get(id(root), 0) + 1

    def _find_rows(self, leaving: list[Any]) -> None:
        """Find each x[i] that leaves while the memory of x is seen; that x leaves, too, then."""
        if not self.trace.picks or local.exporting:
            return
        picks = {id(pick.storage): pick for pick in self.trace.picks}
        whole: dict[int, int] = {}  # by id of a storage: how many leave that lie in it
        for value in leaving:
            for root in _memory(value, self.trace, picks):
                whole[id(root)] = whole.get(id(root), 0) + 1
        for value in leaving:  # which grows: rows of rows
            own = id(next(_memory(value, self.trace, {}), None))
            pick = picks.get(own)
            if pick is None or own in self.rows:
                continue
            *_, last = _memory(pick.x, self.trace, picks)
            if last.source is not None or whole.get(id(last), 0) > 1:
                self.rows[own] = pick
                leaving.append(pick.x)

    def _find_spent(self, leaving: list[Any]) -> None:
        trace = self.trace
        traced = [v for v in leaving if isinstance(v, Tensor) and v._graphc_trace is trace]
        traced += [shadow for _, shadow in trace.shadows.values()]
        made_by = [
            t._graphc_node for t in traced if requires_grad(t) and t._graphc_node is not None
        ]
        self.spent = spent_nodes(tape_of(made_by), trace.env)

    def _count_read(self, leaving: list[Any]) -> None:
        """Count what the tape reads of memory of which the user gets another view alone."""
        views = {
            id(root): path for value in leaving
            if isinstance(value, Tensor) and value._graphc_trace is self.trace
            for root, path in (value._graphc_storage.resolve(value._graphc_traced.path),)
            if path and root.source is None and self.sharing[id(root)] == 1
        }
        if not views:
            return
        ends = [edge(v) for v in leaving if isinstance(v, Tensor) and v._graphc_trace is self.trace
                and requires_grad(v)]
        for entry in order_of([node for node, _ in ends]):
            if not isinstance(entry, OpNode) or entry.packed:
                continue
            for saved in (*(entry.saved_in or ()), *(entry.saved_out or ())):
                if saved is None or len(saved) == 1:
                    continue
                root, path = saved[1].resolve(saved[3])
                known = views.get(id(root))
                if known is not None and behind_prefix(path, known) is None:
                    self.sharing[id(root)] += 1
                    del views[id(root)]

    def _holds(self, root: TracedStorage, path: Chain) -> tuple[tuple[str, int], Chain] | None:
        """Where the memory of a value is after the call, if the user can write to it."""
        if root.source is not None:
            if root.node is root.source.node:
                return ("input", root.source.number), path
            return ("output", self.written[id(root)]), path
        base = self.bases.get(id(root))
        if base is not None:
            return ("output", base[0]), path
        index, prefix = self.whole.get(id(root), (-1, ()))
        rest = None if index < 0 else behind_prefix(path, prefix)
        return None if rest is None else (("output", index), rest)

    def _outputs(self, value: Any) -> Any:
        leaves, structure = flatten(value)
        return unflatten([self.output(leaf) for leaf in leaves], _plain_keys(structure))

    def _own(self, node: Node) -> int:
        """The number of another output: memory of its own, whatever else has the same value."""
        self.order.append(node)
        return len(self.order) - 1

    def output(self, value: Any) -> Output:
        """What a leaf of the result is. Raises EscapedTensorError for another trace's tensor."""
        found = self.outputs.get(id(value))
        if found is None:
            found = self._classify(value)
            if isinstance(value, Tensor):
                if value._graphc_trace is self.trace and value._graphc_node is not None:
                    made_by = value._graphc_node
                    spent = self._behind(made_by) if made_by in self.spent else ()
                    found = replaced(
                        found, made_by=made_by.label(value._graphc_output), behind=spent
                    )
                self.outputs[id(value)] = found
        return found

    def _behind(self, node: GradNode) -> list[tuple[int, Tensor]]:
        trace = self.trace
        tensors = [trace.entries[i][0] for i in entries_behind(node, [e for _, e in trace.entries])]
        return [(trace.argument_index(t), t) for t in tensors]

    def _classify(self, value: Any) -> Output:
        trace = self.trace
        if type(value) is PendingItem:
            if value.method == "item":
                return replaced(self._classify(value.tensor), method="item")
            owner = self.output(value.tensor)
            return replaced(owner, method=value.method, owner=owner)
        if is_traced_value(value):
            return Output("number", number=value.expression)
        if type(value) in (set, frozenset):  # what it holds was hashed, and so decided upon
            value = type(value)(plain_value(item) for item in value)
        elif isinstance(value, Counter):
            value = Counter({plain_value(key): plain_value(n) for key, n in value.items()})
        if not isinstance(value, Tensor):
            return Output("object", tensor=value)
        if value._graphc_trace is None:
            shadow = trace.shadows.get(id(value))
            requires = requires_grad(value if shadow is None else shadow[1])
            if shadow is not None and trace.grad_owner(value) is not None:
                # the `.grad` of its owner at each call, which may be another object by then
                root, path = shadow[1]._graphc_storage.resolve(())
                if root.source is not None and not path:
                    return Output(
                        "alias", index=root.source.number, type=shadow[1]._graphc_traced.type,
                        requires_grad=requires,
                    )
            return Output(
                "input",
                tensor=value,
                argument=trace.argument_index(value),
                type=None if shadow is None else shadow[1]._graphc_traced.type,
                requires_grad=requires,
            )
        if value._graphc_trace is not trace:
            raise value._graphc_trace.escaped(value)
        requires = requires_grad(value)
        state = value._graphc_traced
        root, path = value._graphc_storage.resolve(state.path)
        if id(root) in self.rows:
            return self._row(self.rows[id(root)], value, path, requires)
        if root.source is not None:
            return Output(
                "alias", index=root.source.number, type=state.type, chain=path,
                detached=value._base is None or not requires, untracked=not state.tracked,
                unrecorded=value._graphc_no_grad_view, outdated=is_outdated(value),
                requires_grad=requires,
            )
        if self.sharing.get(id(root), 1) > 1:
            kept = self.bases.get(id(root))
            if kept is None:
                kept = self.bases[id(root)] = self._laid(root.node, root.layout)
            base = base_of(value)
            # its .data may have been set since
            leaves = id(base) in self.leaving and base._graphc_storage.root is root
            return Output(
                "view", index=kept[0], order=kept[1], type=state.type, chain=path,
                requires_grad=requires, inference=root.inference, versions=root.version,
                untracked=not state.tracked, unrecorded=value._graphc_no_grad_view,
                outdated=is_outdated(value),
                base=(self.output(base), value._graphc_chain) if leaves else None,
            )
        found = self._value(trace.read(value), state, requires, root.inference)
        self.whole[id(root)] = found.index, path
        return replaced(found, versions=root.version, unrecorded=value._graphc_no_grad_view)

    def _row(self, pick: Pick, value: Tensor, path: Chain, requires: bool) -> Output:
        """A view of x[i]."""
        self._own(pick.storage.node)  # so that the places are checked by the graph
        of = self.output(pick.x)
        return Output(
            "alias" if of.kind in ("input", "alias") else "view", index=of.index,
            type=value._graphc_traced.type, chain=path, requires_grad=requires,
            detached=value._base is None and value is not pick.given(),
            unrecorded=not requires and of.requires_grad,
            row=(of, pick.dim, tuple([self._own(place) for place in pick.places])),
        )

    def _value(self, node: Node, state: Any, requires: bool, inference: bool) -> Output:
        index, order = self._laid(node, None if state.is_contiguous() else state.strides)
        return Output(
            "value", index=index, type=state.type, order=order, requires_grad=requires,
            inference=inference,
        )

    def _laid(self, node: Node, strides: Shape | None) -> tuple[int, tuple[int, ...] | None]:
        """An output of its own in the order of its memory, and how it is turned back."""
        if strides is None or is_contiguous(node.shape, strides):
            return self._own(node), None
        physical = dense_order(node.shape, strides, self.trace.env)
        if physical is None:
            return self._own(node), None
        order = tuple([physical.index(i) for i in range(len(physical))])
        return self._own(self.trace.emit("permute", node, dims=physical)), order

    # --- effects ---------------------------------------------------------------------------

    def _grad_write(self, tensor: Tensor, value: Tensor | None) -> GradWrite:
        """`.grad` of a concrete tensor was set."""
        trace = self.trace
        kept = None if value is None else self.output(value)
        zero = value is not None and value._graphc_trace is trace and _zero(trace.read(value))
        return GradWrite(tensor, kept, zero, trace.argument_index(tensor))

    def _mutations(self) -> list[Mutation]:
        found: list[Mutation] = []
        # the roots that writes under the trace gave a history
        written = {
            id(shadow._graphc_storage.root) for _, shadow in self.trace.shadows.values()
            if self._has_history(shadow)
        }
        for source, root in self.trace.sources:
            if root.parent is not None or root.node is source.node:
                continue
            number = self.written[id(root)] = self._own(root.node)
            history = id(root) in written
            found.append(Mutation(source.number, number, root.version, history, _zero(root.node)))
        return found

    def _has_history(self, shadow: Tensor) -> bool:
        """Whether writes under the trace gave a concrete tensor a history of its own."""
        if not requires_grad(shadow) or shadow._graphc_node is None:
            return False
        return shadow._graphc_node not in self.trace.outside

    # --- backward --------------------------------------------------------------------------

    def _backward(self, leaving: list[Any]) -> Backward:
        """Gradients of what leaves with a history, by the tape; see captured.py."""
        trace = self.trace
        roots: dict[int, tuple[Tensor, Output]] = {}
        for value in leaving:
            if isinstance(value, Tensor) and value._graphc_trace is trace and requires_grad(value):
                output = self.output(value)
                if output.kind in ("value", "view") and value._graphc_node is not None and (
                    value._graphc_node not in self.spent
                ):
                    roots[id(value)] = (value, output)
        for tensor, shadow in trace.shadows.values():
            if self._has_history(shadow) and shadow._graphc_node not in self.spent:
                roots[id(shadow)] = (shadow, self.output(tensor))
        tensors = [t for t, _ in roots.values()]
        edges: list[Edge] = [e for _, e in trace.entries]
        ends = [edge(t) for t in tensors]
        tape = recorded_tape(trace, ends, edges, self._holds)  # it may read further numbers
        tangents: list[int] = []
        seeds: list[Tensor] = []
        for value, _ in roots.values():
            source = self._tangent(value._graphc_traced.type)
            tangents.append(source.number)
            seeds.append(trace.wrap(source.node))
        for _, shadow in trace.shadows.values():
            shadow._graphc_hooks = None
        if not roots:
            return Backward([], [], [t for t, _ in trace.entries], [None] * len(trace.entries))
        found = Pass(tensors, seeds, True, False).execute(edges, accumulate=False)
        return Backward(
            [output for _, output in roots.values()],
            tangents,
            [tensor for tensor, _ in trace.entries],
            [None if g is None else self._own(trace.read(g)) for g in found],
            tape, inner_roots(ends), labels_of(ends),
        )

    def _tangent(self, type_: TensorType) -> TensorInput:
        trace = self.trace
        node = trace.builder.input(type_, f"tangent{len(trace.inputs)}")
        source = TensorInput("tangent", None, node, (), number=len(trace.inputs))
        trace.inputs.append(source)
        return source


def _input_aliases(trace: Trace) -> list[InputAlias]:
    """Tensors that are read through the memory of another's input."""
    found: list[InputAlias] = []
    for tensor, storage in trace.memory.input_aliases:
        host = storage.root.source
        assert host is not None
        array: np.ndarray = tensor._graphc_array
        owner = trace.grad_owner(tensor)
        index = trace.argument_index(tensor)
        kind = "argument" if index >= 0 else "tensor" if owner is None else "grad"
        if kind == "grad" and owner is not None:
            index = trace.argument_index(owner)
        source = TensorInput(
            kind, tensor if owner is None else owner, host.node, strides_of(array), index,
            requires_grad=gradient_kind(tensor), leaf=tensor._graphc_node is None,
        )
        offset = address(array) - address(_captured(host))
        found.append(InputAlias(source, host.number, offset, array.shape))
    return found


def _captured(source: TensorInput) -> np.ndarray:
    tensor: Any = source.tensor
    array: np.ndarray = (
        tensor._graphc_storage.root.flat() if source.kind == "storage"
        else tensor._grad._graphc_array if source.kind == "grad" else tensor._graphc_array
    )
    return array


_VIEWS = frozenset({"reshape", "expand", "permute", "slice", "cast"})


def _zero(node: Node) -> bool:
    """Whether a node is visibly all zeros."""
    while node.op.name in _VIEWS:
        node = node.inputs[0]
    if node.op.name == "full":
        return bool(node.attrs["value"] == 0)
    return node.op.name == "const" and not node.attrs["value"].array.any()


def _plain_keys(structure: Structure) -> Structure:
    """The same with plain numbers as the keys of dicts, which were hashed, and so decided upon."""
    if structure.kind is None:
        return structure
    keys = tuple([plain_value(key) for key in structure.keys])
    children = tuple([_plain_keys(child) for child in structure.children])
    return Structure(structure.kind, keys, children, structure.extra)
