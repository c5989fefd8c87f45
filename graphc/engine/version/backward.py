"""compile(model) in an ordinary loop: a compiled forward whose backward() is compiled too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...frontend.captured import Output, TensorInput, TracedGraph
from ...frontend.context import local
from ...frontend.errors import located
from ...frontend.nodes import TWICE, Node, zeros
from ...frontend.tensor import Tensor, edge, requires_grad
from ...ir.graph import Graph
from ...ir.types import TensorType
from .replay import replay, replay_of
from .sources import Moved, owner_of
from .version import Allocate, concrete_shape


class BackwardPlan:
    """What a compiled forward's tape node needs to know; made once per version."""

    def __init__(
        self, traced: TracedGraph, split: Any, engine: Any, allocate: Allocate,
        joint: tuple[Graph, int, int],
    ) -> None:
        backward = traced.backward
        assert backward is not None
        self.outputs: list[Output] = backward.outputs
        # (argument number or -1, tensor), and the number of its gradient
        arguments = {
            id(i.tensor): i.index for i in traced.inputs
            if isinstance(i, TensorInput) and i.kind == "argument"
        }
        pairs = [
            (arguments.get(id(t), -1), t)
            for t, g in zip(backward.tensors, backward.gradients, strict=True) if g is not None
        ]
        self.sources: list[tuple[int, Tensor]] = pairs
        self.gradients = [g for g in backward.gradients if g is not None]
        self.saved: Sequence[tuple[str, int]] = split.saved
        self.engine = engine
        self.allocate = allocate
        self.behind = _behind(*joint)
        self.replay = replay_of(*joint, traced.inputs, pairs)
        self.types: tuple[TensorType, ...] = tuple(
            o.type for o in backward.outputs if o.type is not None
        )


def _behind(graph: Graph, forward_inputs: int, forward_outputs: int) -> list[int]:
    """Which cotangents each gradient of a joint graph hangs on, as bits: without any of those it
    is None. (0: floor's and its kin's, zeros that hang on nothing, are always there.)

    Asked of the graph as it was recorded: simplified, a gradient of zeros hangs on nothing.
    """
    bits = {node: 1 << i for i, node in enumerate(graph.inputs[forward_inputs:])}
    for node in graph.nodes:
        if node not in bits:
            found = 0
            for source in node.inputs:
                found |= bits[source]
            bits[node] = found
    return [bits[node] for node in graph.outputs[forward_outputs:]]


class History:
    """The tape node of one call, attached to its results."""

    def __init__(
        self, plan: BackwardPlan, arguments: list[Any], inputs: list[np.ndarray],
        owners: list[Tensor | None], results: list[np.ndarray], dims: dict[str, int], moved: Moved,
    ) -> None:
        tensors = [owner_of(t, i, arguments, moved) for i, t in plan.sources]
        edges = tuple(edge(t) if requires_grad(t) else None for t in tensors)
        saved = [inputs[i] if kind == "input" else results[i] for kind, i in plan.saved]
        stamps = []
        for kind, i in plan.saved:
            owner = owners[i] if kind == "input" else None
            if owner is not None:
                stamps.append((owner._storage, owner._storage.version))
        types = tuple(
            TensorType(t.dtype, concrete_shape(t, dims)) for t in plan.types
        )
        self.node = CompiledBackward(plan, edges, types, saved, stamps, dims)
        self.node.inputs = inputs
        self.node.input_stamps = [
            (owner._storage, owner._storage.version)
            for i in plan.replay.read if (owner := owners[i]) is not None
        ]
        self.plan = plan

    def attach(self, builder: Any) -> None:
        """Make the results' grad_fn this call's node."""
        for number, output in enumerate(self.plan.outputs):
            tensor: Tensor = builder.tensor(output)
            tensor._node, tensor._output = self.node, number

    def watch(self, builder: Any) -> None:
        """A saved value that the user holds too must not change before backward()."""
        kept = {i for kind, i in self.plan.saved if kind == "output"}
        held = [tensor for output, tensor in builder.handed_out() if output.index in kept]
        held += [builder.written(i) for i in kept if i in builder.spec.mutated]
        self.node.stamps += [(t._storage, t._storage.version) for t in held]


class CompiledBackward(Node):
    """The backward of a compiled forward: one native call."""

    __slots__ = ("dims", "input_stamps", "inputs", "plan", "saved", "stamps")
    inputs: list[np.ndarray]  # of the forward; those that it overwrote, as they were
    input_stamps: list[Any]

    def __init__(
        self, plan: BackwardPlan, edges: Any, types: Any, saved: list[np.ndarray],
        stamps: list[Any], dims: dict[str, int],
    ) -> None:
        super().__init__(edges, types)
        self.plan = plan
        self.saved: list[np.ndarray] | None = saved
        self.stamps = stamps
        self.dims = dims

    def release(self) -> None:
        self.saved = None
        self.inputs = []

    def gradients(self, grads: list[Any], needs: Sequence[bool], world: Any) -> Sequence[Any]:
        if self.saved is None:
            raise RuntimeError(located(TWICE))
        by_tape = any(g is not None and not isinstance(g, np.ndarray) for g in grads)
        for storage, version in [*self.stamps, *(self.input_stamps if by_tape else ())]:
            if storage.version != version:
                raise RuntimeError(located(
                    "one of the variables needed for gradient computation has been modified by an "
                    "inplace operation after the compiled forward that reads it. Hint: call "
                    "backward() before the in-place operation, or clone() the tensor."
                ))  # fmt: skip
        if by_tape:
            return self._by_tape(grads, needs, world)
        tangents = [
            np.zeros(t.static_shape, t.dtype.numpy) if g is None
            else np.asarray(g, order="C")
            for g, t in zip(grads, self.out_types, strict=True)
        ]
        plan = self.plan
        results = [
            plan.allocate(concrete_shape(t, self.dims), t.dtype.numpy)
            for t in plan.engine.output_types
        ]
        saved = [np.asarray(a, order="C") for a in self.saved]
        dims = tuple(self.dims[name] for name in plan.engine.dims)
        plan.engine.run([*saved, *tangents], results, dims)
        live = sum(1 << i for i, g in enumerate(grads) if g is not None)
        return [
            r if need and (bits & live or not bits) else None
            for r, need, bits in zip(results, needs, plan.behind, strict=True)
        ]

    def _by_tape(self, grads: list[Any], needs: Sequence[bool], world: Any) -> list[Any]:
        """The gradients with a history of their own, or inside vmap."""
        like = world.to_expr(next(g for g in grads if g is not None))
        given = [
            world.to_tensor(world.from_expr(zeros(like, t)) if g is None else g)
            for g, t in zip(grads, self.out_types, strict=True)
        ]
        found = replay(self.plan.replay, self.inputs, given, self.edges, self.dims, local.grad)
        return [
            world.from_tensor(t) if need else None for t, need in zip(found, needs, strict=True)
        ]
