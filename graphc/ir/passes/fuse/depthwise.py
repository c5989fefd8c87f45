"""Gradients of depthwise weights, of halves: as floats.

Each of their sums is along the lines of one plane, which is as quick as memory for what lies there
as it is added up. Of words of two halves, or of halves that have to be widened on the way, lines
would be put together one value at a time, for a few taps each.
"""

from __future__ import annotations

from ... import dtypes
from ...graph import Builder, Graph, Node
from ...machine import Machine
from ...op import get
from ...rewrite import remade

_MOST_OUTPUTS = 5  # of a group; more share what is put together


def widened_planes(graph: Graph, machine: Machine) -> Graph:
    """Put in the casts; the graph itself where there is nothing to do."""
    found = {
        node for node in graph.nodes
        if machine.tiling and is_of_planes(node) and node.dtype in (dtypes.f16, dtypes.bf16)
    }
    if not found:
        return graph

    def make(builder: Builder, node: Node, new: dict[Node, Node]) -> Node:
        inputs = [new[x] for x in node.inputs]
        if node not in found:
            return builder.emit(node.op, *inputs, graphs=node.graphs, **node.attrs)
        cast = get("cast")
        wide = [builder.emit(cast, x, dtype=dtypes.f32) for x in inputs]
        return builder.emit(cast, builder.emit(node.op, *wide, **node.attrs), dtype=node.dtype)

    return remade(graph, make)


def is_of_planes(node: Node) -> bool:
    """Whether it is the gradient of depthwise weights."""
    if node.op.name != "conv_weight_grad":
        return False
    outputs, channels = node.attrs["weight_shape"][:2]
    groups = node.attrs["groups"]
    return (
        isinstance(outputs, int) and channels == 1 and groups > 1
        and outputs // groups <= _MOST_OUTPUTS
    )
