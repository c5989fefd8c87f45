"""The backward of a compiled segment, built for the gradients that really arrive.

Of what a segment leaves behind only some is ever differentiated: a norm that was looked at is
not. A gradient is linear in the cotangents, so a node of the backward graph that hangs on missing
cotangents alone is zero, and what it alone would read need not be as it was saved.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...frontend.context import local
from ...frontend.errors import located
from ...frontend.nodes import TWICE, Node, zeros
from ...ir.graph import Builder, Graph
from ...ir.graph import Node as IrNode
from ...ir.op import get as get_op
from ...ir.rewrite import with_inputs
from ...ir.types import TensorType
from ..built import Engine
from ..version.replay import Replay, replay
from ..version.version import concrete_shape

Build = Callable[[Graph], Any]


@dataclass(eq=False)
class Part:
    """The backward for one choice of cotangents and gradients."""

    engine: Engine | None  # None: no gradient arrives anywhere
    saved: list[int]
    tangents: list[int]
    results: list[int]  # which edge each output belongs to


class BackwardPlan:
    """The backward graph of a segment: its inputs are saved values, then cotangents."""

    def __init__(
        self, graph: Graph, saved: Sequence[tuple[str, int]], entries: list[int],
        strict: set[int], allocate: Callable[[tuple[int, ...], np.dtype], np.ndarray],
        build: Build,
    ) -> None:
        self.graph = graph
        self.saved = tuple(saved)
        self.entries = entries  # which of the segment's entries each output is for
        self.inner: frozenset[int] = frozenset()
        self.strict = strict  # saved values that eager mode's rules read, too
        self.allocate = allocate
        self.parts: dict[Any, Part] = {}
        self.replay: Replay  # for create_graph
        self._build = build
        self._lock = threading.Lock()
        tangents = graph.inputs[len(self.saved) :]
        self._bits = {node: 1 << i for i, node in enumerate(tangents)}  # cotangents behind a node
        for node in graph.nodes:
            if node not in self._bits:
                bits = 0
                for source in node.inputs:
                    bits |= self._bits[source]
                self._bits[node] = bits

    def part(self, given: tuple[bool, ...], needs: tuple[bool, ...]) -> Part:
        """The part for these cotangents and these edges; compiled the first time."""
        found = self.parts.get((given, needs))
        if found is None:
            with self._lock:
                found = self.parts.get((given, needs))
                if found is None:
                    found = self.parts[given, needs] = self._make(given, needs)
        return found

    def _make(self, given: tuple[bool, ...], needs: tuple[bool, ...]) -> Part:
        graph, bits = self.graph, self._bits
        live = sum(1 << i for i, there in enumerate(given) if there)
        results = [  # gradients that hang on nothing (sign's, floor's zeros) are always there
            i for i, out in enumerate(graph.outputs)
            if needs[i] and (bits[out] & live or not bits[out])
        ]
        if not results:
            return Part(None, [], [], [])
        needed: set[IrNode] = set()
        stack = [graph.outputs[i] for i in results]
        while stack:
            node = stack.pop()
            if node not in needed:
                needed.add(node)
                if not bits[node] or bits[node] & live:
                    stack.extend(node.inputs)
        builder = Builder(graph.env)
        made: dict[IrNode, IrNode] = {}
        kept = [i for i, node in enumerate(graph.inputs) if node in needed and (
            not bits[node] or bits[node] & live
        )]  # fmt: skip
        for i in kept:
            node = graph.inputs[i]
            made[node] = builder.input(node.tensor_type, node.attrs["name"])
        for node in graph.nodes:
            if node not in needed or node in made:
                continue
            if bits[node] and not bits[node] & live:
                builder.loc, builder.backward = node.loc, node.backward
                made[node] = _zeros(builder, node)
            else:
                made[node] = with_inputs(node, [made[n] for n in node.inputs])
        reduced = builder.build([made[graph.outputs[i]] for i in results], graph.name)
        types = [n.tensor_type for n in reduced.outputs]
        count = len(self.saved)
        return Part(
            Engine(self._build(reduced), types, tuple(graph.env.hints)),
            [i for i in kept if i < count], [i - count for i in kept if i >= count], results,
        )  # fmt: skip


def _zeros(builder: Builder, node: IrNode) -> IrNode:
    if not hasattr(node.type, "shape"):
        return node  # of several results: only their zeros are read
    type_ = node.tensor_type
    value: float | int = 0.0 if type_.dtype.is_float else 0
    return builder.emit(get_op("full"), shape=type_.shape, value=value, dtype=type_.dtype)


class SegmentBackward(Node):
    """The history of what one run of a segment left: native calls."""

    def __init__(
        self, plan: BackwardPlan, edges: Any, types: Any, saved: list[np.ndarray],
        dims: dict[str, int],
    ) -> None:
        Node.__init__(self, edges, types)
        self.plan = plan
        self.inner = plan.inner
        self.saved: list[np.ndarray] | None = saved
        # memory that was saved: by place in `saved`, its storage and the version then
        self.stamps: dict[int, tuple[Any, int]] = {}
        self.dims = dims
        self.inputs: list[np.ndarray] = []
        self.owners: dict[int, tuple[Any, int]] = {}
        self.overwritten: set[int] = set()

    def watch(self, places: dict[int, Any]) -> None:
        """Note which saved values lie in memory that the user can write to."""
        self.stamps = {place: (storage, storage.version) for place, storage in places.items()}
        reference = weakref.ref(self)
        for place, storage in places.items():
            if place not in self.plan.strict:
                storage.readers = [*(storage.readers or ()), reference]

    def keep(self, storage: Any) -> None:
        """`storage` is about to be written to. What eager mode would not read there is copied:
        only the compiled backward computes it again from there."""
        for place, (watched, _) in list(self.stamps.items()):
            if watched is storage and place not in self.plan.strict and self.saved is not None:
                self.saved[place] = self.saved[place].copy()
                del self.stamps[place]

    def keep_former(self, storage: Any) -> None:
        for place, (watched, _) in list(self.stamps.items()):
            if watched is storage and self.saved is not None:
                self.saved[place] = self.saved[place].copy()
                del self.stamps[place]

    def name(self) -> str:
        return "CompiledBackward"

    def release(self) -> None:
        self.released = True
        self.saved = None
        self.stamps = {}
        self.inputs, self.owners = [], {}

    def gradients(self, grads: list[Any], needs: Sequence[bool], world: Any) -> Sequence[Any]:
        if self.saved is None:
            raise RuntimeError(located(TWICE))
        if any(g is not None and not isinstance(g, np.ndarray) for g in grads):
            return self._by_tape(grads, needs, world)
        found: list[Any] = [None] * len(self.edges)
        part = self.plan.part(tuple([g is not None for g in grads]), tuple(needs))
        if part.engine is None:
            return found
        for i in part.saved:
            if i in self.stamps:
                _check_unchanged(self.stamps[i], self.saved[i])
        engine = part.engine
        inputs = [np.ascontiguousarray(self.saved[i]) for i in part.saved]
        inputs += [np.ascontiguousarray(grads[i]) for i in part.tangents]
        results = [
            self.plan.allocate(concrete_shape(t, self.dims), t.dtype.numpy)
            for t in engine.output_types
        ]
        engine.run(inputs, results, tuple([self.dims[name] for name in engine.dims]))
        for i, value in zip(part.results, results, strict=True):
            found[i] = value
        return found

    def remember(
        self, arrays: list[np.ndarray], owners: dict[int, Any], overwritten: set[int]
    ) -> None:
        """What create_graph computes from: the segment's inputs, their storages by number, and
        which of them the segment has written to since."""
        self.inputs = arrays
        self.overwritten = overwritten
        self.owners = {i: (storage, storage.version) for i, storage in owners.items()}

    def _by_tape(self, grads: list[Any], needs: Sequence[bool], world: Any) -> list[Any]:
        """The gradients with a history of their own."""
        plan = self.plan.replay
        if not plan.read.isdisjoint(self.overwritten):
            raise RuntimeError(located(
                "create_graph=True through a segment of a compiled function that overwrites what "
                "its gradients are computed from is not supported. Cure: clone() that first, or "
                "call the function uncompiled"
            ))  # fmt: skip
        for i in plan.read.intersection(self.owners):
            _check_unchanged(self.owners[i], self.inputs[i])
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


def _check_unchanged(stamp: tuple[Any, int], array: np.ndarray) -> None:
    """Raise RuntimeError if a storage was written to since."""
    storage, version = stamp
    if storage.version != version:
        raise RuntimeError(located(
            "one of the variables needed for gradient computation has been modified by an "
            f"inplace operation: [torch.Tensor {list(array.shape)}] is at version "
            f"{storage.version}; expected version {version} instead. Hint: use an "
            "out-of-place operation, or clone() the tensor before the in-place one."
        ))  # fmt: skip
