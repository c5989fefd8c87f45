"""A graph's nodes in order, as arrays: what can be compared for all of them at once.

Unrolled steps stand behind each other in a graph's order, so that a loop is a stretch of it in
which labels repeat with a period.
"""

from __future__ import annotations

from functools import cached_property
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
        labels: dict[Any, int] = {}
        exact: dict[Any, int] = {}
        self.labels: Numbers = np.empty(len(self.nodes), np.int64)
        self.exact: Numbers = np.empty(len(self.nodes), np.int64)
        for i, node in enumerate(self.nodes):
            key = (node.op.name, node.type, node.backward, len(node.inputs), node.graphs)
            whole = (key, attrs_key(dict(node.attrs)))
            self.labels[i] = labels.setdefault(key if _varies(node) else whole, len(labels))
            self.exact[i] = exact.setdefault(whole, len(exact))

    @cached_property
    def first(self) -> Numbers:
        """Where in `reads` each node begins."""
        counts = [len(node.inputs) for node in self.nodes]
        return np.cumsum([0, *counts], dtype=np.int64)

    @cached_property
    def reads(self) -> Numbers:
        """The places of what the nodes read."""
        place = {node: i for i, node in enumerate(self.nodes)}
        return np.array([place[x] for node in self.nodes for x in node.inputs], np.int64)

    @cached_property
    def readers(self) -> Numbers:
        """For each of `reads`, who reads it."""
        return np.repeat(np.arange(len(self.nodes), dtype=np.int64), np.diff(self.first))

    @cached_property
    def last_use(self) -> Numbers:
        """Who is the last to read each node."""
        last: Numbers = np.full(len(self.nodes), -1, np.int64)
        np.maximum.at(last, self.reads, self.readers)
        outputs = set(self.graph.outputs)
        last[[i for i, node in enumerate(self.nodes) if node in outputs]] = len(self.nodes)
        return last


def _varies(node: Node) -> bool:
    return node.op is const or node.op.name in VARYING
