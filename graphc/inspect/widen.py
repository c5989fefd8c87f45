"""A Graph computed in float64 throughout: what it means, with next to no rounding.

Two graphs that mean the same agree there to many digits, also where float32 magnifies rounding
without bounds (Adam's first step on a gradient that is zero but for rounding, deep networks).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.ir import dtypes
from graphc.ir.dtypes import DType
from graphc.ir.graph import Builder, Constant, Graph, Node, input_
from graphc.ir.rewrite import everywhere
from graphc.ir.types import TensorType

Array = np.ndarray[Any, Any]


def widen(graph: Graph) -> Graph:
    """The graph with float64 in place of every float type, its sub-graphs included."""
    return everywhere(graph, _widen_one)


def widen_array(array: Array) -> Array:
    """A float array as float64; others as they are."""
    return array.astype(np.float64) if dtypes.from_numpy(array.dtype).is_float else array


def _widen_one(graph: Graph) -> Graph:
    builder = Builder(graph.env)
    new: dict[Node, Node] = {}
    for node in graph.nodes:
        attrs = {name: _widened(value) for name, value in node.attrs.items()}
        with builder.at(node.loc, node.backward):
            if node.op is input_:
                new[node] = builder.input(attrs["type"], attrs["name"])
            else:
                sources = (new[x] for x in node.inputs)
                new[node] = builder.emit(node.op, *sources, graphs=node.graphs, **attrs)
    inputs = tuple(new[node] for node in graph.inputs)
    return Graph(graph.name, inputs, tuple(new[node] for node in graph.outputs), graph.env)


def _widened(value: Any) -> Any:
    if isinstance(value, DType):
        return dtypes.f64 if value.is_float else value
    if isinstance(value, TensorType):
        return value.with_dtype(_widened(value.dtype))
    return Constant(widen_array(value.array)) if isinstance(value, Constant) else value
