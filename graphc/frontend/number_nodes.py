"""Number expressions as graph nodes: float64 or int64 scalars, one node per expression."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphc.ir import dtypes, ops
from graphc.ir.dtypes import DType
from graphc.ir.graph import Builder, Node
from graphc.ir.op import Attrs
from graphc.ir.op import get as get_op
from graphc.ir.types import TensorType

from .captured import NumberInput, TensorInput
from .numbers import LiftedNumber, NumberExpr, SymInt, TracedNumber


class NumberNodes:
    """The nodes made so far; a source becomes a graph input when it is first needed."""

    def __init__(
        self, builder: Builder, inputs: list[TensorInput | NumberInput],
        name: Callable[[Any], str],
    ) -> None:
        """`name` gives the name of a run-time number by its source."""
        self._builder = builder
        self._inputs = inputs
        self._name = name
        self._nodes: dict[NumberExpr, Node] = {}

    def node(self, root: NumberExpr, dtype: DType) -> Node:
        """The 0-d node of an expression as `dtype`; iterative."""
        nodes = self._nodes
        stack = [root]
        while stack:
            expression = stack[-1]
            if expression in nodes:
                stack.pop()
                continue
            waiting = [
                a for a in expression.args if isinstance(a, NumberExpr) and a not in nodes
            ]
            if waiting:
                stack.extend(waiting)
            else:
                nodes[expression] = self._make(expression)
        return self._as(nodes[root], dtype)

    def _as(self, node: Node, dtype: DType) -> Node:
        return node if node.dtype is dtype else self._builder.emit(ops.cast, node, dtype=dtype)

    def _make(self, expression: NumberExpr) -> Node:
        dtype = dtypes.i64 if isinstance(expression.value, int) else dtypes.f64
        builder = self._builder
        if expression.op == "constant":
            return builder.const(expression.value, dtype)
        if expression.op == "dim":
            return builder.emit(ops.full, shape=(), value=expression.args[0], dtype=dtypes.i64)
        if expression.op == "source":
            with builder.at(None, builder.backward):
                node = builder.input(TensorType(dtype, ()), self._name(expression.args[0]))
            number = len(self._inputs)
            self._inputs.append(
                NumberInput(node, expression.args[0], expression.value, number)
            )
            return node
        # Python divides and powers in the result's type
        same = dtypes.f64 if expression.op == "div" else dtype
        inputs = [self._as(self._nodes[a], same) for a in expression.args]
        if expression.op == "float":
            return inputs[0]
        return builder.emit(get_op(expression.op), *inputs)


def plain_attrs(attrs: Attrs) -> Attrs:
    """Attributes with SymInts as Dims, wherever they are."""
    if not attrs:
        return attrs
    return {k: _plain(v) if type(v) in _MAY_HOLD else v for k, v in attrs.items()}


_MAY_HOLD = frozenset({tuple, SymInt, LiftedNumber})


def _plain(value: Any) -> Any:
    if isinstance(value, SymInt):
        return value.dim
    if isinstance(value, LiftedNumber):
        return value.item()
    if any(isinstance(v, (tuple, TracedNumber)) for v in value):
        return tuple([_plain(v) if type(v) in _MAY_HOLD else v for v in value])
    return value
