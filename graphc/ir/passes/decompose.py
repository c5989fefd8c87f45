"""decompose: composite operators that a backend does not claim, as their primitives."""

from __future__ import annotations

from collections.abc import Callable

from ..graph import Builder, Expr, Graph, Node, get_
from ..rewrite import everywhere, rebuilt, with_inputs
from ..types import TensorType

Claims = Callable[[Node], bool]


def decompose(graph: Graph, claimed: Claims = lambda node: False) -> Graph:
    """The graph in operators that have no decomposition, and nodes that are `claimed`."""

    def one(part: Graph) -> Graph:
        while any(_splits(node, claimed) for node in part.nodes):
            part = _decompose_one(part, claimed)
        return part

    return everywhere(graph, one)


def _splits(node: Node, claimed: Claims) -> bool:
    return node.op.decompose is not None and not claimed(node)


def _decompose_one(graph: Graph, claimed: Claims) -> Graph:
    builder = Builder(graph.env)
    new: dict[Node, Node] = {}
    parts: dict[Node, tuple[Node, ...]] = {}  # results of what had several
    for node in graph.nodes:
        if node.op is get_ and node.inputs[0] in parts:
            new[node] = parts[node.inputs[0]][node.attrs["index"]]
            continue
        if any(source in parts for source in node.inputs):
            raise ValueError(f"{node.op.name} reads all the results of a composite operator")
        inputs = [new[x] for x in node.inputs]
        if not _splits(node, claimed):
            new[node] = with_inputs(node, inputs)
            continue
        results = _expand(builder, node, inputs)
        if isinstance(node.type, TensorType):
            new[node] = results[0]
        else:
            parts[node] = results
    return rebuilt(graph, new)


def _expand(builder: Builder, node: Node, inputs: list[Node]) -> tuple[Node, ...]:
    """The results of a composite, decomposed once. Raises TypeError for a wrong decomposition."""
    assert node.op.decompose is not None
    with builder.at(node.loc, node.backward):
        result = node.op.decompose(*(Expr(builder, x) for x in inputs), **node.attrs)
    results = tuple(r.node for r in (result if isinstance(result, tuple) else (result,)))
    want = (node.type,) if isinstance(node.type, TensorType) else node.type.elements
    have = tuple(r.type for r in results)
    if have != want:
        raise TypeError(f"the decomposition of {node.op.name} gives {have}, expected {want}")
    return results
