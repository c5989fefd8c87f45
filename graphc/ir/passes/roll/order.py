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
    `exact` where all attributes are, too. Node i reads nodes `reads[first[i] : first[i + 1]]`."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes = _early(graph)
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
    def _by_read(self) -> tuple[Numbers, Numbers]:
        """Who reads something, sorted by what it reads; where each node's readers begin."""
        sorting = np.argsort(self.reads, kind="stable")
        begins = np.searchsorted(self.reads[sorting], np.arange(len(self.nodes) + 1))
        return self.readers[sorting], begins

    def readers_of(self, place: int) -> list[int]:
        """The places of the nodes that read one, each once."""
        readers, begins = self._by_read
        found: list[int] = readers[begins[place] : begins[place + 1]].tolist()
        return list(dict.fromkeys(found))

    def read_outside(self, places: Numbers) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which of these nodes are read by others, or are the graph's outputs."""
        inside = np.zeros(len(self.nodes), np.bool_)
        inside[places[places >= 0]] = True
        read = self._outputs.copy()
        read[self.reads[inside[self.reads] & ~inside[self.readers]]] = True
        return np.where(places >= 0, read[places], False)

    @cached_property
    def _outputs(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        outputs = set(self.graph.outputs)
        return np.array([node in outputs for node in self.nodes], np.bool_)


def _early(graph: Graph) -> tuple[Node, ...]:
    """The nodes in an order in which none stands long after what it reads.

    A graph's order puts a node before its first reader: all contributions to a weight's gradient
    behind the steps that they come from, as a loop of their own, for which these would have to be
    kept. What only reads what another phase (the forward pass) or nothing has computed stays where
    it is. Parts of something stand beside their first reader: its other operand may be the end of
    a chain of all steps, and their parts would all come before that. Numbers come first: where two
    steps read equal ones, these are one node, which the second step would lack.
    """
    found = {node: i for i, node in enumerate(graph.nodes)}
    parts: set[Node] = set()
    for node in graph.nodes:
        if not node.inputs:
            found[node] = -1
        elif _varies(node) or (node.op.family == "movement" and parts.issuperset(node.inputs)):
            parts.add(node)
        else:
            computed = [x for x in node.inputs if x.inputs and x not in parts]
            latest = max(computed, key=found.__getitem__, default=None)
            if latest is not None and latest.backward == node.backward:
                found[node] = found[latest]
    first: dict[Node, int] = {}  # where the first reader of a part stands
    for node in reversed(graph.nodes):
        if node in parts:
            found[node] = first.get(node, found[node])
        for x in node.inputs:
            if x in parts:
                first[x] = min(found[node], first.get(x, found[node]))
    for node in graph.nodes:  # behind what it reads
        if node.inputs:
            found[node] = max(found[node], *(found[x] for x in node.inputs))
    return tuple(sorted(graph.nodes, key=found.__getitem__))


def _varies(node: Node) -> bool:
    return node.op is const or node.op.name in VARYING
