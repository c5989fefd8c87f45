"""counter_random: draws as arithmetic on a counter, which fuses, in place of mt19937's stream.

The random operators that `counter_draws` does not know stay on the stream. What attention's dropout
keeps is drawn by attention itself: no tensor of the scores' shape is made.
"""

from __future__ import annotations

from typing import NamedTuple

from .. import dtypes
from ..counter_draws import DRAWS, drawn
from ..graph import Builder, Expr, Graph, Node, get_
from ..ops._counter import Source, in_32_bits
from ..rewrite import everywhere, rebuilt, with_inputs


def counter_random(graph: Graph) -> Graph:
    """The graph with its plain draws computed from a counter; others, and the graph of one
    without draws, are as they were."""
    return everywhere(graph, _one)


class _Place(NamedTuple):
    """A generator's state as a state that exists, and how many draws came after it."""

    base: Node
    draws: int


def _one(graph: Graph) -> Graph:
    if not any(node.op.name in DRAWS for node in graph.nodes):
        return graph
    builder = Builder(graph.env)
    new: dict[Node, Node] = {}
    results: dict[Node, tuple[Node, Node]] = {}
    places: dict[Node, _Place] = {}
    chosen: dict[Node, tuple[Node, _Place]] = {}  # what is kept -> its draw
    for node in graph.nodes:
        if node.op is get_ and node.inputs[0] in results:
            new[node] = results[node.inputs[0]][node.attrs["index"]]
        elif node.op.name in DRAWS:
            state = new[node.inputs[0]]
            place = places.get(state, _Place(state, 0))
            with builder.at(node.loc, node.backward):
                values, after = drawn(
                    node.op.name, Expr(builder, place.base), node.attrs, place.draws
                )
            results[node] = values.node, after.node
            places[after.node] = place._replace(draws=place.draws + 1)
            if _thins(node):
                chosen[values.node] = node, place
        else:
            inputs = [new[x] for x in node.inputs]
            choice = chosen.get(inputs[-1]) if "dropout" in node.attrs else None
            if choice is not None and choice[0].attrs["p"] == 1.0 - node.attrs["dropout"]:
                inputs[-1] = _draw(builder, node, *choice)
            new[node] = with_inputs(node, inputs)
    return rebuilt(graph, new)


def _thins(node: Node) -> bool:
    """Whether a draw may say what dropout keeps, and attention can draw it."""
    return (
        node.op.name == "rng_bernoulli" and node.attrs["dtype"] is dtypes.bool_
        and in_32_bits(node.attrs["p"])
    )


def _draw(builder: Builder, node: Node, choice: Node, place: _Place) -> Node:
    """From what an attention makes a choice itself."""
    with builder.at(node.loc, node.backward):
        source = Source(Expr(builder, place.base), place.draws, choice.attrs["shape"])
        found: Node = source.draw().node
    return found
