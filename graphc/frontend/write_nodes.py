"""The history of in-place writes to tensors and their views: nodes whose gradients are views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphc.ir.autodiff import run_vjp
from graphc.ir.dim import DimEnv
from graphc.ir.types import TensorType

from .nodes import Edge, Node, World, zeros
from .values import TypeValue
from .views import Chain, replay, write_back


class ViewNode(Node):
    """A node whose gradients are plain expressions of the results' gradients."""

    def gradients(self, grads: list[Any], needs: Sequence[bool], world: World) -> Sequence[Any]:
        found = self.rule(world.to_expr(grads[0]), needs, world.env)
        return [None if g is None else world.from_expr(g) for g in found]

    def rule(self, g: Any, needs: Sequence[bool], env: DimEnv) -> Sequence[Any]:
        """The gradients of the inputs from that of the result."""
        raise NotImplementedError


class AsStridedBackward(ViewNode):
    """The history of a view whose base was written to: the base's history, then the views."""

    def __init__(
        self, chain: Chain, edge: Edge, base_type: TensorType, type_: TensorType,
        made_by: str = "AsStridedBackward0",
    ) -> None:
        super().__init__((edge,), (type_,))
        self.chain = chain
        self.base_type = base_type
        self.made_by = made_by

    def name(self) -> str:
        return self.made_by

    def rule(self, g: Any, needs: Sequence[bool], env: DimEnv) -> Sequence[Any]:
        types = [self.base_type]
        for op, attrs in self.chain:
            type_ = op.infer((types[-1],), attrs, env)
            assert isinstance(type_, TensorType)
            types.append(type_)
        for i in reversed(range(len(self.chain))):
            op, attrs = self.chain[i]
            values = [TypeValue(types[i], g)], [TypeValue(types[i + 1], g)]
            (g,) = run_vjp(op, [g], *values, [True], attrs)
        return (g,)


class CopySlices(ViewNode):
    """A base after a view of it was written to. Inputs: the base before, the value written."""

    def __init__(
        self,
        chain: Chain,
        edges: tuple[Edge | None, Edge | None],
        base_type: TensorType,
        value_type: TensorType,
    ) -> None:
        super().__init__(edges, (base_type,))
        self.chain = chain
        self.value_type = value_type

    def rule(self, g: Any, needs: Sequence[bool], env: DimEnv) -> Sequence[Any]:
        base = value = None
        if needs[0]:
            base = write_back(self.chain, g, zeros(g, self.value_type), env)
        if needs[1]:
            value = replay(self.chain, g)
        return base, value


class CopyBackwards(ViewNode):
    """A tensor after all of it was overwritten. Inputs: the tensor before, the value written."""

    def rule(self, g: Any, needs: Sequence[bool], env: DimEnv) -> Sequence[Any]:
        return (
            zeros(g, self.out_types[0]) if needs[0] else None,
            g if needs[1] else None,
        )
