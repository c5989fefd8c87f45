"""A recorded graph for other machines: named inputs, no large constants, no names of folders."""

from __future__ import annotations

import os

import numpy as np

from graphc.ir.graph import Graph, Node, const, input_
from graphc.ir.record import replaced
from graphc.ir.rewrite import everywhere, with_inputs

LARGE = 256  # elements: larger constants are stored as weights, not in the graph's text


def portable(graph: Graph, labels: list[str]) -> tuple[Graph, list[np.ndarray]]:
    """The graph with inputs of these names, and its large constants, which are further inputs."""
    graph = everywhere(graph, _without_folders)
    new: dict[Node, Node] = {}
    constants: list[np.ndarray] = []
    inputs: list[Node] = []

    def add_input(node: Node, name: str) -> None:
        attrs = {"index": len(inputs), "name": name, "type": node.type}
        new[node] = replaced(node, op=input_, attrs=attrs, loc=None)
        inputs.append(new[node])

    for node, label in zip(graph.inputs, labels, strict=True):
        add_input(node, label)
    for node in graph.nodes:
        if node in new:
            continue
        if node.op is const and node.attrs["value"].array.size > LARGE:
            add_input(node, f"large.{len(constants)}")
            constants.append(node.attrs["value"].array)
        else:
            new[node] = with_inputs(node, [new[x] for x in node.inputs])
    outputs = tuple(new[node] for node in graph.outputs)
    return Graph(graph.name, tuple(inputs), outputs, graph.env), constants


def _without_folders(graph: Graph) -> Graph:
    """User lines by the file's name alone: a file tells nothing of the machine it was made on."""
    new: dict[Node, Node] = {}
    for node in graph.nodes:
        loc = node.loc
        short = None if loc is None else loc._replace(file=os.path.basename(loc.file))
        inputs = tuple(new[x] for x in node.inputs)
        new[node] = replaced(node, inputs=inputs, loc=short)
    return Graph(
        graph.name, tuple(new[n] for n in graph.inputs), tuple(new[n] for n in graph.outputs),
        graph.env,
    )
