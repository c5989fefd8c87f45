"""A graph's nodes in order, as arrays: what can be compared for all of them at once.

Unrolled steps stand behind each other in a graph's order, so that a loop is a stretch of it in
which labels repeat with a period.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...graph import Graph, Node, attrs_key, const

# What may differ from step to step: which part of a whole is read, which number is meant.
VARYING = frozenset({"slice", "const", "full"})

Numbers = np.ndarray[Any, np.dtype[np.int64]]


class Order:
    """`labels` are equal where operator, attributes (but for VARYING), type and backward call are;
    `exact` where all attributes are, too. Node i reads nodes `reads[first[i] : first[i + 1]]`;
    the last to read it is `last_use[i]` (behind all for the graph's outputs)."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes = graph.nodes
        position = {node: i for i, node in enumerate(self.nodes)}
        labels: dict[Any, int] = {}
        exact: dict[Any, int] = {}
        self.labels: Numbers = np.empty(len(self.nodes), np.int64)
        self.exact: Numbers = np.empty(len(self.nodes), np.int64)
        first, reads = [0], []
        for i, node in enumerate(self.nodes):
            key = (node.op, node.type, node.backward, len(node.inputs), node.graphs)
            attrs = attrs_key(dict(node.attrs))
            whole = (key, attrs)
            self.labels[i] = labels.setdefault(key if _varies(node) else whole, len(labels))
            self.exact[i] = exact.setdefault(whole, len(exact))
            reads += [position[x] for x in node.inputs]
            first.append(len(reads))
        self.first: Numbers = np.array(first, np.int64)
        self.reads: Numbers = np.array(reads, np.int64)
        self.readers: Numbers = np.repeat(
            np.arange(len(self.nodes), dtype=np.int64), np.diff(self.first)
        )
        self.last_use: Numbers = np.full(len(self.nodes), -1, np.int64)
        np.maximum.at(self.last_use, self.reads, self.readers)
        self.last_use[[position[x] for x in graph.outputs]] = len(self.nodes)


def _varies(node: Node) -> bool:
    return node.op is const or node.op.name in VARYING
