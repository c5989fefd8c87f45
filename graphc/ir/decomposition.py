"""Composite operators as Graphs of their primitives, traced once per signature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .dim import DimEnv
from .graph import Builder, Expr, Graph, attr_key
from .op import Attrs, Op
from .types import TensorType

_graphs: dict[Any, Graph] = {}
_LIMIT = 10_000


def decomposition_graph(op: Op, types: Sequence[TensorType], attrs: Attrs) -> Graph:
    """The decomposition of `op` for inputs of these (concrete) types; cached.

    Raises ValueError for an operator without one.
    """
    if op.decompose is None:
        raise ValueError(f"operator {op.name} has no decomposition")
    key = (op.name, tuple(types), tuple((k, attr_key(v)) for k, v in attrs.items()))
    graph = _graphs.get(key)
    if graph is None:
        if len(_graphs) >= _LIMIT:
            _graphs.clear()
        op.infer(tuple(types), attrs, DimEnv())  # raises what the operator does not take
        builder = Builder()
        inputs = [Expr(builder, builder.input(t)) for t in types]
        result = op.decompose(*inputs, **attrs)
        results = result if isinstance(result, tuple) else (result,)
        graph = _graphs[key] = builder.build([r.node for r in results], op.name)
    return graph
