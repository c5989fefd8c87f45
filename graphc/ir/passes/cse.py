"""cse: equal computations once. Random operators are never merged."""

from __future__ import annotations

from typing import Any

from ..graph import Graph, Node, attr_key, input_
from ..rewrite import everywhere, rebuilt, with_inputs


def cse(graph: Graph) -> Graph:
    """The graph with equal nodes merged, its sub-graphs included."""
    return everywhere(graph, _cse_one)


def _cse_one(graph: Graph) -> Graph:
    numbers: dict[Any, int] = {}
    number_of: dict[Node, int] = {}
    best: list[Node] = []  # for each number, the node to keep
    for node in graph.nodes:
        key: Any = node
        if node.op is not input_ and not node.op.impure:
            key = (
                node.op.name,
                tuple(number_of[x] for x in node.inputs),
                node.graphs,
                tuple((k, attr_key(node.attrs[k])) for k in sorted(node.attrs)),
            )
        number = numbers.setdefault(key, len(best))
        number_of[node] = number
        if number == len(best):
            best.append(node)
        elif node.backward < best[number].backward:
            best[number] = node  # a value that the forward has is a forward value
    if len(best) == len(graph.nodes):
        return graph
    kept: list[Node] = []
    for node in best:  # operands have lower numbers
        kept.append(with_inputs(node, [kept[number_of[x]] for x in node.inputs]))
    return rebuilt(graph, {node: kept[number_of[node]] for node in graph.outputs})
