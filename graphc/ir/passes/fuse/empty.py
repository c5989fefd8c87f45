"""Values without elements, and what is computed from them, as constants: no kernel walks them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ... import op
from ...dim import product
from ...graph import Builder, Graph, Node
from ...rewrite import remade
from ...types import TensorType

_STARTS = {"sum": 0, "prod": 1, "any": False, "all": True}


def replace_empty(graph: Graph) -> Graph:
    """Replace every value that has no elements, or is made of none, by a fill."""
    if not any(_is_empty(n) for n in graph.nodes):
        return graph
    return remade(graph, _replaced)


def _is_empty(node: Node) -> bool:
    return isinstance(node.type, TensorType) and product(node.type.shape) == 0


def _replaced(builder: Builder, node: Node, new: dict[Node, Node]) -> Node:
    inputs = tuple(new[x] for x in node.inputs)
    name = node.op.name
    if node.op.family not in ("random", "control", "structure"):
        if _is_empty(node):
            return _fill(builder, node, 0)
        empty = [_is_empty(x) for x in node.inputs]
        if name == "concat" and any(empty):
            inputs = tuple(x for x, e in zip(inputs, empty, strict=True) if not e)
        elif empty and empty[0] and name in _STARTS:
            return _fill(builder, node, _STARTS[name])
        elif empty and empty[0] and name == "pad":
            return _fill(builder, node, node.attrs["value"])
        elif any(empty) and node.op.family == "contract":
            return _fill(builder, node, 0)
        elif name in ("scatter", "index_put", "slice_update", "as_strided_update") and any(empty):
            return inputs[0]
        elif name in ("max_pool_grad", "sparse_product") and any(empty[:2]):
            return _fill(builder, node, 0)
    return builder.emit(node.op, *inputs, graphs=node.graphs, **node.attrs)


def _fill(builder: Builder, node: Node, value: Any) -> Node:
    dtype = node.dtype
    if isinstance(value, float) and not dtype.is_float:
        value = int(value) if math.isfinite(value) else 0
    number = np.asarray(value, dtype.numpy).item() if not dtype.is_float else float(value)
    return builder.emit(op.get("full"), shape=node.shape, value=number, dtype=dtype)
