"""The end of a segment: which values leave a recording, and their way back to the user's tensors.

`Segment(trace)` says what the graph's outputs are:

    one per memory made in the trace on which a living tensor lies (`made`),
    one per captured memory that was written to (`mutations`: output -> input),

and which of these can be differentiated (`roots`) with regard to what (`entries`). `fill` then
makes every living traced tensor concrete, the same object, on the arrays of the results: views
stay views of their bases, and follow the bases' history.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from graphc.ir.graph import Node
from graphc.ir.memory import copied, on_host

from . import views
from .autograd import Pass
from .captured import UNREAD, TensorInput
from .functionalize import TracedStorage, dense_order
from .held import Holds, Place
from .history import edge, is_outdated, requires_grad
from .nodes import BrokenNode, Edge, SpentNode
from .nodes import Node as GradNode
from .picks import Pick, row_of
from .segment_tape import broken_nodes, script_key, tape_of
from .segment_trace import SegmentTrace
from .storage import Storage
from .tensor import Tensor, fields
from .unread import unread
from .used_up import entries_behind, spent_nodes
from .views import Chain
from .write_nodes import AsStridedBackward


class Segment:
    """What one stretch of recording came to."""

    def __init__(self, trace: SegmentTrace) -> None:
        self.trace = trace
        self.living = trace.living()
        for tensor in self.living:
            requires_grad(tensor)  # a view whose base was written to takes over its history
        self.inputs = list(trace.inputs)
        self.outputs: list[Node] = []
        self.orders: dict[int, tuple[int, ...] | None] = {}  # of an output: back from memory order
        self.made: dict[TracedStorage, int] = {}
        self.mutations: list[tuple[int, TensorInput, int]] = []  # output, input, versions
        shadows = [(tensor, shadow) for tensor, shadow in trace.shadows.values()]
        self.rebound = [(t, trace.shadows[id(t)][1]) for t, _ in trace.rebound.values()
                        if id(t) in trace.shadows]
        for tensor in [*self.living, *[shadow for _, shadow in self.rebound]]:
            root, _ = tensor._graphc_storage.resolve(tensor._graphc_traced.path)
            if root.source is None and root not in self.made:
                self.made[root] = self._output(root)
        self.rows = self._rows()
        for source, root in trace.sources:
            if root.parent is None and root.node is not source.node:
                self.mutations.append((len(self.outputs), source, root.version))
                self.outputs.append(root.node)
        self.outputs += unread(trace.builder, trace.failing, self.outputs)
        self.changed = [(t, s) for t, s in shadows if self._changed(t, s)]
        traced = [*self.living, *[shadow for _, shadow in self.changed]]
        candidates = [t for t in traced if t._graphc_node is not None and not _follows(t)]
        self.roots = candidates
        self.spent: set[GradNode] = set()
        self.broken: dict[GradNode, str] = {}
        # the tape under the roots, where it is made of known operations alone
        told = trace.told and not trace.written
        self.script = script_key(trace.script, candidates) if told else None
        if self.script is None:
            self.spent = spent_nodes(self.tape, trace.env)
            self.broken = broken_nodes(self.tape) if trace.written else {}
            self.roots = [
                t
                for t in candidates
                if t._graphc_node not in self.spent and t._graphc_node not in self.broken
            ]
            if len(self.roots) < len(candidates):
                del self.tape
        leaves = [t for t in self.living if t._graphc_requires_grad and t._graphc_node is None]
        self.entries: list[tuple[Tensor, Edge]] = [
            *trace.entries, *((t, edge(t)) for t in leaves)
        ]

    @functools.cached_property
    def tape(self) -> list[GradNode]:
        """Every node of the tape under the roots."""
        return tape_of([t._graphc_node for t in self.roots if t._graphc_node is not None])

    def _rows(self) -> dict[TracedStorage, tuple[Pick, list[int]]]:
        """What each living x[i] is of, by its memory, and the outputs that are the places."""
        picks = {pick.storage: pick for pick in self.trace.picks}
        found: dict[TracedStorage, tuple[Pick, list[int]]] = {}
        for root in self.made if picks else ():
            pick = picks.get(root)
            if pick is not None:
                found[root] = pick, [len(self.outputs) + i for i in range(len(pick.places))]
                self.outputs += pick.places
        return found

    def _changed(self, tensor: Tensor, shadow: Tensor) -> bool:
        """Whether writes gave a captured tensor another history."""
        requires_grad(shadow)
        if shadow._graphc_node is None:
            return tensor._graphc_node is not None
        return shadow._graphc_node not in self.trace.outside

    def _output(self, root: TracedStorage) -> int:
        node, index = root.node, len(self.outputs)
        self.orders[index] = None
        if root.layout is not None:
            physical = dense_order(node.shape, root.layout, self.trace.env)
            if physical is not None and physical != tuple(range(len(physical))):
                node = self.trace.emit("permute", node, dims=physical)
                self.orders[index] = tuple(physical.index(i) for i in range(len(physical)))
        self.outputs.append(node)
        return index

    def holds(self) -> Holds:
        """Where the memory of a value is after the run, if the user can write to it."""
        made = self.made
        mutated = {source.number: index for index, source, _ in self.mutations}

        def holds(root: TracedStorage, path: Chain) -> tuple[Place, Chain] | None:
            if root.source is None:
                index = made.get(root, -1)
                return None if index < 0 else (("output", index), path)
            number = root.source.number
            if number in mutated:
                return ("output", mutated[number]), path
            return ("input", number), path

        return holds

    @property
    def empty(self) -> bool:
        """Whether there is nothing to compute."""
        return not self.outputs

    # --- backward ----------------------------------------------------------------------------

    def record_backward(self) -> tuple[list[Node], list[Node | None]]:
        """Record the gradients: the tangents' inputs, and the gradient of each entry."""
        trace = self.trace
        if not self.roots:
            return [], [None] * len(self.entries)
        tangents: list[Node] = []
        seeds: list[Tensor] = []
        for root in self.roots:
            tangents.append(
                trace.builder.input(root._graphc_traced.type, f"tangent{len(tangents)}")
            )
            seeds.append(trace.wrap(tangents[-1]))
        tensors = [node.variable for _, (node, _) in self.entries if hasattr(node, "variable")]
        hooks = [(t, t._graphc_hooks) for t in tensors]
        for tensor in tensors:
            tensor._graphc_hooks = None  # they run when the gradient arrives
        try:
            edges = [place for _, place in self.entries]
            found = Pass(self.roots, seeds, True, False).execute(edges, accumulate=False)
        finally:
            for tensor, kept in hooks:
                tensor._graphc_hooks = kept
        return tangents, [None if g is None else trace.read(g) for g in found]

    def owner(self, number: int) -> Tensor:
        """The concrete tensor on the memory of an input."""
        source = self.inputs[number]
        assert isinstance(source, TensorInput)
        return source.owner

    def memory(self, number: int) -> np.ndarray:
        """The memory of an input that is written to."""
        source = self.inputs[number]
        assert isinstance(source, TensorInput)
        return source.array

    # --- filling -----------------------------------------------------------------------------

    def arrays(self) -> list[np.ndarray]:
        """The arrays of the inputs as they are now."""
        return input_arrays(self.trace)

    def fill(self, results: Sequence[np.ndarray], node: GradNode | None) -> None:
        """Make what lives concrete. `node`: the history of the roots."""
        filler = _Fill(self, results)
        for tensor in self.living:
            filler.tensor(tensor)
        numbers = {id(root): i for i, root in enumerate(self.roots)}
        for tensor, shadow in self.changed:
            if shadow._graphc_node is None:
                tensor._graphc_node, tensor._graphc_output = None, 0
            else:
                self._history(tensor, shadow, node, numbers, {})
        for tensor in sorted(self.living, key=lambda t: t._base is not None):
            self._history(tensor, tensor, node, numbers, filler.of_views)
        for tensor, of, chain in filler.of_rows:
            _join(tensor, of, chain)
        for tensor, shadow in self.trace.shadows.values():
            _take_over_hooks(tensor, shadow)
            if shadow._grad is not UNREAD and shadow._grad is not tensor._grad:
                tensor._grad = shadow._grad
            if (
                tensor._graphc_node is None
                and shadow._graphc_requires_grad != tensor._graphc_requires_grad
            ):
                tensor._graphc_requires_grad = shadow._graphc_requires_grad
        for tensor, shadow in self.rebound:
            filler.rebind(tensor, shadow)
        for tensor, shadow in self.trace.shadows.values():
            # graphc's own code may hold it a little longer
            shadow.__dict__.clear()
            shadow.__dict__.update(fields(tensor))

    def _history(
        self, tensor: Tensor, traced: Tensor, node: GradNode | None, numbers: dict[int, int],
        of_views: dict[int, tuple[Tensor, Chain]],
    ) -> None:
        old = traced._graphc_node
        if old is None:
            return
        label = old.label(traced._graphc_output)
        if old in self.spent:
            behind = entries_behind(old, [place for _, place in self.entries])
            edges = tuple([edge(self.entries[i][0]) for i in behind])
            tensor._graphc_node, tensor._graphc_output = (
                SpentNode(tensor._graphc_type, label, lambda: edges),
                0,
            )
        elif old in self.broken:
            edges = tuple([edge(t) for t, _ in self.entries])
            tensor._graphc_node = BrokenNode(self.broken[old], edges, (tensor._graphc_type,), label)
            tensor._graphc_output = 0
        elif id(traced) in numbers:
            assert node is not None
            tensor._graphc_node, tensor._graphc_output = node, numbers[id(traced)]
        else:
            base, chain = of_views.get(id(tensor)) or (
                views.base_of(tensor), tensor._graphc_chain
            )
            tensor._graphc_node = AsStridedBackward(
                chain, edge(base), base._graphc_type, tensor._graphc_type, label
            )
            tensor._graphc_output = 0


def _follows(tensor: Tensor) -> bool:
    """Whether a traced tensor's history is that of the tensor which it is a view of."""
    return tensor._base is not None and requires_grad(tensor._base)


def _join(tensor: Tensor, of: Tensor, chain: Chain) -> None:
    """A tensor that was a copy is the view of `of` that `chain` makes."""
    learns = requires_grad(of)
    base = views.base_of(of)
    if base is None:
        tensor._base, tensor._graphc_chain = of, chain
    else:
        tensor._base, tensor._graphc_chain = base, (*of._graphc_chain, *chain)
    tensor._graphc_seen = tensor._graphc_storage.version
    tensor._graphc_no_grad_view = learns and tensor._graphc_node is None


def _take_over_hooks(tensor: Tensor, shadow: Tensor) -> None:
    """What was registered on, or removed from, a captured leaf."""
    for name in ("_graphc_hooks", "_graphc_post_hooks"):
        before, now = getattr(tensor, name), getattr(shadow, name)
        if before is now or now is None:
            continue
        if before is None:
            setattr(tensor, name, now)
            continue
        for key in before.keys() - now.keys():
            del before[key]
        before.update(now)


class _Fill:
    """Arrays and storages for traced tensors, which the user's Python holds: they stay the objects
    that they are. (What a version gives is made anew, by engine/version/results.py.)"""

    def __init__(self, segment: Segment, results: Sequence[np.ndarray]) -> None:
        self.trace = segment.trace
        self.bases: dict[TracedStorage, tuple[np.ndarray, Storage]] = {}
        self.rows = segment.rows
        self.results = results
        self.of_rows: list[tuple[Tensor, Tensor, Chain]] = []  # their views, of what, by what
        # the captured view that a tensor is a view of, by what; it may be a leaf of its own
        self.of_views: dict[int, tuple[Tensor, Chain]] = {}
        for root, index in segment.made.items():
            if root in self.rows:
                continue
            array, order = results[index], segment.orders[index]
            if order is not None:
                array = array.transpose(order)
            storage = Storage(results[index])
            storage.inference = root.inference
            storage.version = root.version
            self.bases[root] = array, storage

    def place(self, traced: Tensor) -> tuple[np.ndarray, Storage]:
        """The array and the storage of a traced tensor."""
        own: TracedStorage = traced._graphc_storage
        root, path = own.resolve(traced._graphc_traced.path)
        if root in self.rows:
            array, storage = self.of(self.rows[root][0].x)
            path = (*self.row(root, array), *path)
        elif root.source is None:
            array, storage = self.bases[root]
        else:
            array = root.source.array
            nearest = own.source if own.source is not None else root.source
            storage = nearest.owner._graphc_storage
        for op, attrs in path:
            view = views.ARRAYS[op.name](array, attrs)
            array = copied(array).reshape(attrs["shape"]) if view is None else view
        return array, storage if traced._graphc_traced.tracked else storage.sibling()

    def of(self, x: Tensor) -> tuple[np.ndarray, Storage]:
        """The array and the storage of what x[i] is of."""
        if x._graphc_trace is None:  # captured, or made concrete already
            return x._graphc_array, x._graphc_storage
        return self.place(x)

    def row(self, root: TracedStorage, array: np.ndarray) -> Chain:
        """The views that lead from an array to x[i]."""
        pick, places = self.rows[root]
        numbers = [int(on_host(self.results[place]).item()) for place in places]
        return row_of(array.shape, pick.dim, numbers)

    def tensor(self, tensor: Tensor) -> None:
        """Make a traced tensor concrete."""
        array, storage = self.place(tensor)
        outdated = is_outdated(tensor)
        if self.rows:
            self._note_row(tensor)
        # attribute by attribute: an object whose __dict__ was asked for is slower from then on;
        # _node stays readable for _history
        tensor._graphc_trace = None
        del tensor._graphc_traced
        tensor._graphc_array, tensor._graphc_storage = array, storage
        base = tensor._base
        if base is not None:
            of = tensor._base = self.trace.concrete_of(base)
            if of is not base and of._base is not None:  # a view of a captured view
                tensor._base = views.base_of(of)
                self.of_views[id(tensor)] = of, tensor._graphc_chain
                tensor._graphc_chain = (*of._graphc_chain, *tensor._graphc_chain)
            tensor._graphc_seen = storage.version - outdated

    def _note_row(self, tensor: Tensor) -> None:
        root, path = tensor._graphc_storage.resolve(tensor._graphc_traced.path)
        known = self.rows.get(root)
        if known is None or (tensor._base is None and tensor is not known[0].given()):
            return  # detach() of one is a view that no history follows
        x = known[0].x
        self.of_rows.append((tensor, x, (*self.row(root, self.of(x)[0]), *path)))

    def rebind(self, tensor: Tensor, shadow: Tensor) -> None:
        """`tensor.data` was set."""
        array, storage = self.place(shadow)
        tensor._graphc_array, tensor._graphc_storage = array, storage.sibling()
        tensor._base, tensor._graphc_chain = None, ()


def input_arrays(trace: SegmentTrace) -> list[np.ndarray]:
    """The arrays of a recording's inputs as they are now."""
    found: list[np.ndarray] = []
    for source in trace.inputs:
        snapshot = trace.snapshots.get(source.number)
        if not isinstance(source, TensorInput):
            found.append(np.asarray(source.value, source.type.dtype.numpy))
        elif snapshot is not None:
            found.append(snapshot)
        else:
            found.append(source.array)
    return found
