"""partition: a joint forward and backward graph as two graphs, saving as few bytes as it can.

For compile(model) in an ordinary loop: the forward runs, then the user's code, then the backward.
What the backward needs of the forward is either kept (bytes) or computed again from what is kept.
Which, is a minimum cut (Chen et al. 2016, arXiv:1604.06174, chose by layers; the cut is exact):
every value costs its bytes to keep; values that must not be computed twice hang on the source.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ..dim import evaluate
from ..graph import Builder, Graph, Node, const, input_
from ..record import record
from ..rewrite import with_inputs
from ..types import TensorType


@record
class Split:
    """The two graphs. The backward's inputs are the saved values, then the cotangents.

    `saved`: where each comes from, ("input", i) of the forward's inputs or ("output", i) of its
    outputs. The forward's outputs are the joint graph's forward outputs, then saved values that
    are not among them.
    """

    forward: Graph
    backward: Graph
    saved: tuple[tuple[str, int], ...]


def split(
    graph: Graph, forward_inputs: int, forward_outputs: int,
    again: Collection[Node] = frozenset(),
) -> Split:
    """Cut a joint graph in two.

    Its first `forward_inputs` inputs are the forward's, the others cotangents; its first
    `forward_outputs` outputs are the forward's, the others gradients. `again`: dear values that may
    be computed twice all the same.
    """
    results, gradients = graph.outputs[:forward_outputs], graph.outputs[forward_outputs:]
    cotangents = graph.inputs[forward_inputs:]
    backward_only = _descendants(graph, cotangents)
    late = [node for node in results if node in backward_only]
    if late:
        raise ValueError(f"forward output {late[0]!r} depends on a cotangent")
    frontier = _frontier(graph, gradients, backward_only)
    anchored = _anchors(graph, results).difference(again)
    saved = _minimum_cut(graph, frontier, anchored, set(results))
    return _build(graph, saved, forward_inputs, forward_outputs)


def split_uncut(graph: Graph, forward_inputs: int, forward_outputs: int) -> Split:
    """Like split(), but everything that the backward reads is kept and nothing computed again."""
    backward_only = _descendants(graph, graph.inputs[forward_inputs:])
    frontier = _frontier(graph, graph.outputs[forward_outputs:], backward_only)
    saved = [node for node in frontier if node.op is not const]
    return _build(graph, saved, forward_inputs, forward_outputs)


def _descendants(graph: Graph, roots: Iterable[Node]) -> set[Node]:
    found = set(roots)
    for node in graph.nodes:
        if any(source in found for source in node.inputs):
            found.add(node)
    return found


def _frontier(graph: Graph, gradients: Iterable[Node], backward_only: set[Node]) -> list[Node]:
    """Values without cotangents in them that the backward reads, or hands out."""
    found: dict[Node, None] = {}
    for node in graph.nodes:
        if node in backward_only:
            found.update(dict.fromkeys(x for x in node.inputs if x not in backward_only))
    found.update(dict.fromkeys(g for g in gradients if g not in backward_only))
    return list(found)


def _anchors(graph: Graph, results: Iterable[Node]) -> set[Node]:
    """What the backward may only keep: the inputs, and what is dear and computed anyway."""
    needed = set(results)
    for node in reversed(graph.nodes):
        if node in needed:
            needed.update(node.inputs)
    return {
        node for node in graph.nodes
        if node.op is input_ or (node in needed and node.op.cost is None)
    }


def _minimum_cut(
    graph: Graph, frontier: list[Node], anchored: set[Node], results: set[Node]
) -> list[Node]:
    """The cheapest set of values from which the frontier can be computed."""
    import networkx as nx

    users = graph.users()
    boykov = nx.algorithms.flow.boykov_kolmogorov  # the fastest of networkx on such graphs
    net: Any = nx.DiGraph()
    net.add_nodes_from(("source", "sink"))
    seen = set(frontier)
    stack = list(frontier)
    for node in frontier:
        net.add_edge((node, "out"), "sink")  # no capacity: infinite
    while stack:
        node = stack.pop()
        cost = None if _is_view(node, users) else _cost(node, graph, results)
        net.add_edge((node, "in"), (node, "out"), **({} if cost is None else {"capacity": cost}))
        if node in anchored:
            net.add_edge("source", (node, "in"))
            continue
        for source in node.inputs:
            net.add_edge((source, "out"), (node, "in"))
            if source not in seen:
                seen.add(source)
                stack.append(source)
    _, (kept_side, _) = nx.minimum_cut(net, "source", "sink", flow_func=boykov)
    return [n for n in graph.nodes
            if n in seen and (n, "in") in kept_side and (n, "out") not in kept_side]


def _cost(node: Node, graph: Graph, results: set[Node]) -> int | None:
    """Bytes that keeping a value takes (1 if it is there anyway); None: cannot be kept."""
    if not isinstance(node.type, TensorType):
        return None
    if node.op is input_ or node in results:
        return 1
    elements = evaluate(node.type.elements, graph.env.hints)
    return max(elements, 1) * node.dtype.itemsize


def _is_view(node: Node, users: Mapping[Node, list[Node]]) -> bool:
    """Whether a value is only how convolutions read another one: what it is read from is kept."""
    return node.op.name == "permute" and bool(users[node]) and all(
        user.op.family == "contract" and user.op.name != "dot_general" for user in users[node]
    )


def _build(graph: Graph, saved: list[Node], forward_inputs: int, forward_outputs: int) -> Split:
    primals = graph.inputs[:forward_inputs]
    numbers = {node: i for i, node in enumerate(primals)}
    outputs = list(graph.outputs[:forward_outputs])
    places = {node: i for i, node in reversed(list(enumerate(outputs)))}
    sources: list[tuple[str, int]] = []
    builder = Builder(graph.env)
    new: dict[Node, Node] = {}
    for i, node in enumerate(saved):
        if node in numbers:
            sources.append(("input", numbers[node]))
        else:
            if node not in places:
                places[node] = len(outputs)
                outputs.append(node)
            sources.append(("output", places[node]))
        with builder.at(node.loc):
            new[node] = builder.input(node.tensor_type, node.attrs.get("name", "") or f"saved{i}")
    for node in graph.inputs[forward_inputs:]:
        with builder.at(node.loc):
            new[node] = builder.input(node.tensor_type, node.attrs["name"])
    gradients = graph.outputs[forward_outputs:]
    for node in _between(graph, gradients, set(new)):
        new[node] = with_inputs(node, [new[x] for x in node.inputs])
    forward = Graph(f"{graph.name}_forward", primals, tuple(outputs), graph.env)
    backward = builder.build([new[g] for g in gradients], f"{graph.name}_backward")
    return Split(forward, backward, tuple(sources))


def _between(graph: Graph, outputs: Iterable[Node], known: set[Node]) -> list[Node]:
    """The nodes that compute `outputs` from `known`, in order."""
    needed = {node for node in outputs if node not in known}
    for node in reversed(graph.nodes):
        if node in needed:
            needed.update(x for x in node.inputs if x not in known)
    return [node for node in graph.nodes if node in needed]


