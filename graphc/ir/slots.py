"""A Graph as steps over numbered slots: what runs it node by node, in either interpreter.

`evaluate` (interpret.py) gives a step's node to a table of functions; the gradient rules of eager
mode (frontend/programs.py) give its operator to the runner of the tensors' device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .graph import Graph, Node, const, get_, input_

# runs one step: what `head` made of its node, its operands and its attributes
Run = Callable[[Any, list[Any], Any], Any]


def steps_of(graph: Graph) -> list[Node]:
    """The nodes that are computed, in their order."""
    return [node for node in graph.nodes if node.op is not input_ and node.op is not const]


class Slots:
    """A Graph's steps, with slots in place of nodes; constants lie in theirs from the start."""

    __slots__ = ("inputs", "outputs", "start", "steps")

    def __init__(self, graph: Graph, head: Callable[[Node], Any]) -> None:
        slot = {node: i for i, node in enumerate(graph.nodes)}
        steps = steps_of(graph)
        self.start: list[Any] = [
            node.attrs["value"].array if node.op is const else None for node in graph.nodes
        ]
        self.inputs = tuple([slot[node] for node in graph.inputs])
        self.outputs = tuple([slot[node] for node in graph.outputs])
        last: dict[int, int] = {}
        for i, node in enumerate(steps):
            last[slot[node]] = i  # a value nobody reads dies at once
            for source in node.inputs:
                last[slot[source]] = i
        for kept in self.outputs:
            last.pop(kept, None)
        dead: list[list[int]] = [[] for _ in steps]
        for place, i in last.items():
            dead[i].append(place)
        # plain tuples, which unpack fastest: what `head` made of the node; of one that takes one of
        # several results, which; its slot, its operands'; attributes; what is not read afterwards
        self.steps: list[tuple[Any, int | None, int, tuple[int, ...], Any, tuple[int, ...]]] = [
            (
                head(node), node.attrs["index"] if node.op is get_ else None, slot[node],
                tuple([slot[x] for x in node.inputs]),
                {**node.attrs, "graphs": node.graphs} if node.graphs else node.attrs,
                tuple(dead[i]),
            )
            for i, node in enumerate(steps)
        ]

    def fill(self, values: list[Any], run: Run) -> None:
        """Compute the outputs' slots. `values`: a copy of `start` with the inputs in theirs; what
        is no output is freed after its last use."""
        for head, part, slot, sources, attrs, dead in self.steps:
            if part is None:
                values[slot] = run(head, [values[s] for s in sources], attrs)
            else:
                values[slot] = values[sources[0]][part]
            for s in dead:
                values[s] = None
