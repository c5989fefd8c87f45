"""Positions that must be in range, as their operators say, are held there by a clamp, which is seen
where they are read: a value that was kept in memory is any number to the kernel that reads it. A
clamp is less than a check, and of 32 bits where the positions had no more before they were widened.
"""

from __future__ import annotations

from ... import dtypes
from ...dim import Size
from ...graph import Builder, Graph, Node
from ...op import get
from ...rewrite import remade
from ..lower.limits import inside, limits

_FIRST = {"gather": 1, "index": 1, "scatter": 1, "index_put": 2}  # operand with positions
_VIEWS = ("reshape", "expand", "permute")


def held_positions(graph: Graph) -> Graph:
    """Put in the clamps that replace checks; the graph itself where there are none."""
    found: dict[Node, dict[int, int]] = {}
    for node in graph.nodes:
        if node.op.name in _FIRST:
            held = {
                at: size for at, index, size in _positions(node)
                if isinstance(size, int) and inside(limits(index), size) and not _is_held(index)
            }
            if held:
                found[node] = held
    if not found:
        return graph
    made: dict[tuple[Node, int], Node] = {}

    def make(builder: Builder, node: Node, new: dict[Node, Node]) -> Node:
        inputs = [new[x] for x in node.inputs]
        for at, size in found.get(node, {}).items():
            key = node.inputs[at], size
            if key not in made:
                made[key] = _held(builder, node.inputs[at], size, new)
            inputs[at] = made[key]
        return builder.emit(node.op, *inputs, graphs=node.graphs, **node.attrs)

    return remade(graph, make)


def _positions(node: Node) -> list[tuple[int, Node, Size]]:
    """Which operands are positions, and the sizes that they have to be below."""
    first, dim = _FIRST[node.op.name], node.attrs["dim"]
    last = len(node.inputs) if node.op.name.startswith("index") else first + 1
    shape = node.inputs[0].shape
    return [(at, node.inputs[at], shape[dim + at - first]) for at in range(first, last)]


def _is_held(index: Node) -> bool:
    while index.op.name in ("cast", *_VIEWS):
        index = index.inputs[0]
    return index.op.name in ("clamp", "iota", "full")


def _held(builder: Builder, index: Node, size: int, new: dict[Node, Node]) -> Node:
    views, source = [], index
    while source.op.name in _VIEWS:
        views.append(source)
        source = source.inputs[0]
    if source.op.name == "cast" and source.inputs[0].dtype is dtypes.i32:
        value = new[source.inputs[0]]
        for view in reversed(views):
            value = builder.emit(view.op, value, **view.attrs)
    else:
        value = new[index]
    ends = [
        builder.emit(get("full"), shape=(), value=end, dtype=value.dtype) for end in (0, size - 1)
    ]
    value = builder.emit(get("clamp"), value, *ends)
    return value if value.dtype is dtypes.i64 else (
        builder.emit(get("cast"), value, dtype=dtypes.i64)
    )
