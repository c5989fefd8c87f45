"""The three ways a backward pass computes: on arrays, on graph nodes, on Tensors.

Arrays: eager, without create_graph. Nodes: under a trace, without create_graph. Tensors: with
create_graph, in either; every operation is then recorded again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.ir import dtypes, ops
from graphc.ir.dim import DimEnv
from graphc.ir.graph import Expr
from graphc.ir.op import Attrs, Op
from graphc.ir.types import TensorType

from .blocks import Blocks, whole
from .context import local
from .dispatch import apply, constant
from .eager import added as sum_of
from .layouts import NotDense
from .nodes import AccumulateGrad, Edge, OpNode
from .tensor import Tensor, current, from_array
from .values import ArrayValue, Eager

if TYPE_CHECKING:
    from .trace import Trace


class TensorValue(Expr):
    """A Tensor as a `Value`. (Tensor itself has torch's `type()` method instead of `type`.)"""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    @property
    def type(self) -> TensorType:
        return self.tensor._graphc_type

    @property
    def shape(self) -> Any:
        return self.tensor._graphc_type.shape

    @property
    def dtype(self) -> Any:
        return self.tensor._graphc_type.dtype

    def _emit(self, op: Op, inputs: tuple[Any, ...], attrs: Attrs) -> Any:
        out = apply(op, *[x.tensor for x in inputs], **attrs)
        return tuple([TensorValue(t) for t in out]) if type(out) is tuple else TensorValue(out)

    def _constant(self, value: float | int | bool, like: TensorType) -> TensorValue:
        return TensorValue(constant(value, like.dtype))


def added(old: Tensor, new: Tensor) -> Tensor:
    """The sum of two gradients, of which one or both are sparse."""
    total: Tensor = apply(ops.add, new, old) if old.is_sparse else apply(ops.add, old, new)
    return total


class ArrayWorld:
    """Eager: values are arrays; sparse gradients are themselves."""

    env = DimEnv()

    def __init__(self, collects: bool = False) -> None:
        """`collects`: who asks for rules knows of Blocks."""
        self._collects = collects

    def rule(self, node: OpNode, grads: list[Any], needs: Sequence[bool]) -> Sequence[Any]:
        if node.op is ops.slice and self._collects and Eager.elsewhere is None:
            blocks = Blocks.of(node.in_types[0], node.attrs, grads[0])
            if blocks is not None:
                return (blocks,)
        given = tuple([g is not None for g in grads])
        program = node.plan.program(tuple(needs), given)
        assert node.saved_in is not None and node.saved_out is not None
        return program.run(grads, node.saved_in, node.saved_out)

    def saved(self, value: np.ndarray, owner: Trace | None, edge: Edge | None) -> ArrayValue:
        return ArrayValue(value)

    def to_expr(self, value: np.ndarray) -> ArrayValue:
        return ArrayValue(value)

    def from_expr(self, value: ArrayValue) -> np.ndarray:
        return value.array

    def to_tensor(self, value: Any) -> Tensor:
        return value if isinstance(value, Tensor) else from_array(value)

    def from_tensor(self, tensor: Tensor) -> Any:
        try:
            return current(tensor)._graphc_array
        except NotDense:  # a sparse gradient stays what it is until an operator reads it
            return tensor

    def add(self, old: Any, new: Any) -> Any:
        if type(old) is type(new) is np.ndarray and (
            Eager.prepare is not None and Eager.elsewhere is None
        ):
            return sum_of(old, new)
        if (type(old) is Blocks and not isinstance(new, Tensor)) or (
            type(new) is Blocks and type(old) is np.ndarray
        ):
            return old.add(new) if type(old) is Blocks else new.add(old)
        old, new = whole(old), whole(new)  # beside a sparse one
        if (type(old) is not np.ndarray and isinstance(old, Tensor)) or (
            type(new) is not np.ndarray and isinstance(new, Tensor)
        ):
            return self.from_tensor(added(self.to_tensor(old), self.to_tensor(new)))
        run = Eager.elsewhere or Eager.run
        return run(ops.add, [old, new], {})


class _ExprWorld:
    """Worlds whose values are Exprs themselves."""

    def rule(self, node: OpNode, grads: list[Any], needs: Sequence[bool]) -> Sequence[Any]:
        world: Any = self
        return node.on_values(grads, needs, world)

    def to_expr(self, value: Any) -> Any:
        return value

    def from_expr(self, value: Any) -> Any:
        return value

    def add(self, old: Any, new: Any) -> Any:
        return ops.add(old, new)


class NodeWorld(_ExprWorld):
    """Under a trace: values are Exprs on the trace's Builder."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.env = trace.builder.env

    def saved(self, value: Any, owner: Trace | None, edge: Edge | None) -> Expr:
        trace: Any = self.trace
        if owner is self.trace:
            return Expr(trace.builder, trace.saved_node(value))
        return self.from_tensor(trace.recall(value, owner, None))

    def to_tensor(self, value: Expr) -> Tensor:
        return self.trace.wrap(value.node)

    def from_tensor(self, tensor: Tensor) -> Expr:
        return Expr(self.trace.builder, self.trace.read(current(tensor)))


# the slope of these is piecewise constant: torch's gradient of it is 0, so that what only slopes
# depend on (a bias before a ReLU, in a gradient penalty) has a gradient, and is not "unused"
_FLAT = frozenset({
    "ReluBackward0", "LeakyReluBackward0", "HardtanhBackward0", "ThresholdBackward0",
    "PreluKernelBackward0", "RreluWithNoiseBackward0", "HardshrinkBackward0",
    "SoftshrinkBackward0", "AvgPool2DBackward0", "AvgPool3DBackward0",
    "AdaptiveAvgPool2DBackward0", "AdaptiveAvgPool3DBackward0", "AdaptiveMaxPool2DBackward0",
    "AdaptiveMaxPool3DBackward0",
    "NllLossBackward0", "NllLoss2DBackward0", "ReflectionPad1DBackward0",
    "ReflectionPad2DBackward0", "ReflectionPad3DBackward0", "ReplicationPad1DBackward0",
    "ReplicationPad2DBackward0", "ReplicationPad3DBackward0",
})
_FLAT_OPS = frozenset({ops.max_pool, ops.window_sum})


def is_flat(node: Any) -> bool:
    """Whether a node is of such a function."""
    return type(node).__name__ in _FLAT or node.flat or node.op in _FLAT_OPS


class TensorWorld(_ExprWorld):
    """create_graph: values are TensorValues, with the history that their edges tell."""

    def __init__(self, trace: Trace | None) -> None:
        self.env = DimEnv() if trace is None else trace.builder.env

    def rule(self, node: OpNode, grads: list[Any], needs: Sequence[bool]) -> Sequence[Any]:
        found = super().rule(node, grads, needs)
        if not is_flat(node):
            return found
        for i, (place, value) in enumerate(zip(node.edges, found, strict=True)):
            if place is not None and value is not None and needs[i]:
                return (*found[:i], self._depending(value, place), *found[i + 1:])
        return found

    def _depending(self, value: TensorValue, edge: Edge) -> TensorValue:
        """The same, and its gradient with respect to the tensor at `edge` is 0, not none."""
        trace: Any = local.trace
        state = current(value.tensor)
        other = from_array(state._graphc_array) if trace is None else trace.wrap(trace.read(state))
        other._graphc_node, other._graphc_output = edge
        return TensorValue(apply(ops.where, constant(True, dtypes.bool_), value.tensor, other))

    def saved(self, value: Any, owner: Trace | None, edge: Edge | None) -> TensorValue:
        trace: Any = local.trace
        if trace is not None and owner is not local.trace:  # a SubTrace, on the tape outside it
            return TensorValue(trace.recall(value, owner, edge))
        if edge is not None and isinstance(edge[0], AccumulateGrad):
            variable = edge[0].variable
            if trace is None and variable._graphc_array is value:
                return TensorValue(variable)
        tensor = from_array(value) if trace is None else trace.wrap(trace.saved_node(value))
        if edge is not None and tensor._graphc_type.dtype.differentiable:  # not where sort() looked
            tensor._graphc_node, tensor._graphc_output = edge
        return TensorValue(tensor)

    def to_tensor(self, value: TensorValue) -> Tensor:
        return value.tensor

    def from_tensor(self, tensor: Tensor) -> TensorValue:
        return TensorValue(tensor)
