"""compile(model) in an ordinary loop: a compiled forward whose backward() is compiled too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .frontend.captured import Output, TensorInput, TracedGraph
from .frontend.errors import located
from .frontend.nodes import TWICE, Node
from .frontend.tensor import Tensor, edge, requires_grad
from .ir.types import TensorType
from .specialisation import Allocate, concrete_shape


class BackwardPlan:
    """What a compiled forward's tape node needs to know; made once per version."""

    def __init__(self, traced: TracedGraph, split: Any, engine: Any, allocate: Allocate) -> None:
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
        self.types: tuple[TensorType, ...] = tuple(
            o.type for o in backward.outputs if o.type is not None
        )


class History:
    """The tape node of one call, attached to its results."""

    def __init__(
        self, plan: BackwardPlan, arguments: list[Any], inputs: list[np.ndarray],
        owners: list[Tensor | None], results: list[np.ndarray], dims: dict[str, int],
    ) -> None:
        tensors = [arguments[i] if i >= 0 else t for i, t in plan.sources]
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

    __slots__ = ("dims", "plan", "saved", "stamps")

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

    def gradients(self, grads: list[Any], needs: Sequence[bool], world: Any) -> Sequence[Any]:
        if self.saved is None:
            raise RuntimeError(located(TWICE))
        for storage, version in self.stamps:
            if storage.version != version:
                raise RuntimeError(located(
                    "one of the variables needed for gradient computation has been modified by an "
                    "inplace operation after the compiled forward that reads it. Hint: call "
                    "backward() before the in-place operation, or clone() the tensor."
                ))  # fmt: skip
        if any(g is not None and not isinstance(g, np.ndarray) for g in grads):
            raise RuntimeError(located(
                "create_graph=True through a compiled function is not supported. Cure: compile "
                "the whole step, gradients included, or call the function uncompiled"
            ))  # fmt: skip
        tangents = [
            np.zeros(t.static_shape, t.dtype.numpy) if g is None
            else np.ascontiguousarray(g)
            for g, t in zip(grads, self.out_types, strict=True)
        ]
        plan = self.plan
        results = [
            plan.allocate(concrete_shape(t, self.dims), t.dtype.numpy)
            for t in plan.engine.output_types
        ]
        saved = [np.ascontiguousarray(a) for a in self.saved]
        dims = tuple(self.dims[name] for name in plan.engine.dims)
        plan.engine.run([*saved, *tangents], results, dims)
        return [r if need else None for r, need in zip(results, needs, strict=True)]


