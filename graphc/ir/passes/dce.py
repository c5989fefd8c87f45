"""dce: drop what no output needs. A Graph never holds a node that no output reaches; what is
left to drop are unused results and inputs of nodes with sub-graphs (cond, fusion; of scan what is
stacked and its sequences)."""

from __future__ import annotations

from collections.abc import Sequence

from ..graph import Builder, Graph, Node, get_, input_
from ..record import replaced
from ..rewrite import everywhere, rebuilt, with_inputs

_TRIMMED = frozenset({"cond", "fusion", "scan"})


def dce(graph: Graph) -> Graph:
    """The graph, its sub-graphs included, without what no output needs."""
    return everywhere(_outermost_first(graph), lambda g: g)


def _outermost_first(graph: Graph) -> Graph:
    """Trim until nothing changes: what an outer node drops may free results further in."""
    while True:
        trimmed = everywhere(graph, _trim)
        if trimmed is graph:
            return graph
        graph = trimmed


def _trim(graph: Graph) -> Graph:
    if not any(node.op.name in _TRIMMED for node in graph.nodes):
        return graph
    used = _used_results(graph)
    new: dict[Node, Node] = {}
    renumbered: dict[Node, dict[int, Node]] = {}
    for node in graph.nodes:
        if node.op is get_ and node.inputs[0] in renumbered:
            new[node] = renumbered[node.inputs[0]][node.attrs["index"]]
            continue
        current = with_inputs(node, [new[x] for x in node.inputs])
        if node.op.name in _TRIMMED:
            trimmed, results = _trim_node(current, used[node], graph)
            if trimmed is not current:
                renumbered[node] = results
                current = trimmed
        new[node] = current
    return rebuilt(graph, new)


def _used_results(graph: Graph) -> dict[Node, set[int]]:
    used: dict[Node, set[int]] = {node: set() for node in graph.nodes}
    for node in graph.nodes:
        if node.op is get_:
            used[node.inputs[0]].add(node.attrs["index"])
    return used


def _trim_node(node: Node, used: set[int], graph: Graph) -> tuple[Node, dict[int, Node]]:
    """The node without unused results and operands; where each result is found now."""
    outputs = sorted(used) if used else [0]
    lead = 1 if node.op.name == "cond" else 0
    carried = node.attrs.get("n_carried", 0)  # these stay
    outputs = [*range(carried), *(i for i in outputs if i >= carried)]
    bodies = [_with_outputs(body, outputs) for body in node.graphs]
    operands = node.inputs[lead:]
    read = [
        i for i in range(len(operands)) if i < carried or any(_reads(b, i) for b in bodies)
    ]
    if len(read) == carried < len(operands):
        read.append(carried)  # the first sequence says how many steps there are
    if len(outputs) == len(node.graphs[0].outputs) and len(read) == len(operands):
        return node, {}
    bodies = [_with_inputs(body, read) for body in bodies]
    builder = Builder(graph.env)
    with builder.at(node.loc, node.backward):
        trimmed = builder.emit(
            node.op, *node.inputs[:lead], *(operands[i] for i in read),
            graphs=tuple(bodies), **node.attrs,
        )
        results = builder.results(trimmed)
    return trimmed, dict(zip(outputs, results, strict=True))


def _reads(body: Graph, index: int) -> bool:
    """Whether a body uses one of its inputs."""
    value = body.inputs[index]
    return value in body.outputs or any(value in node.inputs for node in body.nodes)


def _with_outputs(body: Graph, outputs: Sequence[int]) -> Graph:
    if len(outputs) == len(body.outputs):
        return body
    return Graph(body.name, body.inputs, tuple(body.outputs[i] for i in outputs), body.env)


def _with_inputs(body: Graph, kept: Sequence[int]) -> Graph:
    if len(kept) == len(body.inputs):
        return body
    new: dict[Node, Node] = {}
    for index, i in enumerate(kept):
        old = body.inputs[i]
        new[old] = replaced(old, attrs={**old.attrs, "index": index})
    inputs = tuple(new[body.inputs[i]] for i in kept)
    for node in body.nodes:
        if node.op is not input_:
            new[node] = with_inputs(node, [new[x] for x in node.inputs])
    return Graph(body.name, inputs, tuple(new[n] for n in body.outputs), body.env)
