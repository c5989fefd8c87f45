"""Number expressions as graph nodes: float64 or int64 scalars, one node per expression.

Sizes are computed with in the graph, and floats are added, multiplied and divided there. Every
other result of lifted numbers is an input that Python computes at each call, so that ints have no
bounds and everything is rounded as Python rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphc.ir import dtypes, ops
from graphc.ir.dtypes import DType
from graphc.ir.graph import Builder, Node
from graphc.ir.op import Attrs
from graphc.ir.op import get as get_op
from graphc.ir.types import TensorType

from .captured import Input, NumberInput
from .number_expr import NumberExpr
from .numbers import LiftedNumber, SymInt, TracedNumber

_OF_FLOATS = frozenset({"add", "sub", "mul", "div", "neg", "abs", "float"})
_GIVE_FLOATS = frozenset({"div", "float", "math.sqrt"})  # of ints, too
_IR_NAMES = {
    "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "invert": "bitwise_not",
    "lshift": "shift_left", "rshift": "shift_right", "int": "trunc", "math.sqrt": "sqrt",
}


class NumberNodes:
    """The nodes made so far; a source becomes a graph input when it is first needed."""

    def __init__(
        self, builder: Builder, inputs: list[Input],
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
            inside = expression.args if _in_graph(expression) else ()
            waiting = [a for a in inside if isinstance(a, NumberExpr) and a not in nodes]
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
        if not _in_graph(expression):
            number = len(self._inputs)
            of_source = expression.op == "source"
            name = self._name(expression.args[0]) if of_source else f"number{number}"
            with builder.at(None, builder.backward):
                node = builder.input(TensorType(dtype, ()), name)
            self._inputs.append(NumberInput(node, expression, number))
            return node
        of_ints = all(isinstance(a.value, int) for a in expression.args) and (
            expression.op not in _GIVE_FLOATS
        )
        kind = dtypes.i64 if of_ints else dtypes.f64
        inputs = [self._as(self._nodes[a], kind) for a in expression.args]
        if expression.op == "float":
            return inputs[0]
        name = _IR_NAMES.get(expression.op, expression.op)
        return self._as(builder.emit(get_op(name), *inputs), dtype)


def _in_graph(expression: NumberExpr) -> bool:
    if not expression.lifted:  # of sizes; IEEE 754 says how a root is rounded, not what cos is
        return not expression.op.startswith("math.") or expression.op == "math.sqrt"
    if expression.op not in _OF_FLOATS or isinstance(expression.value, int):
        return False
    # a quotient of ints is rounded once
    return expression.op != "div" or any(isinstance(a.value, float) for a in expression.args)


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
        return value.decided()
    if any(isinstance(v, (tuple, TracedNumber)) for v in value):
        return tuple([_plain(v) if type(v) in _MAY_HOLD else v for v in value])
    return value
