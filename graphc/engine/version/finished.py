"""The graph of a finished recording: effects and gradients as outputs, each memory written once."""

from __future__ import annotations

from ...frontend.captured import TracedGraph
from ...ir.graph import Graph
from .version import all_outputs, final_graph


def finished(traced: TracedGraph) -> tuple[Graph, dict[int, int], int | None]:
    """The graph to compile, which output goes into which input's memory, and how many outputs are
    the forward's, where gradients follow them."""
    graph, mutated = final_graph(traced, traced.mutations)
    if traced.backward is None or not traced.backward.outputs:
        return graph, mutated, None
    graph, count = _joint(graph, traced, mutated)
    return graph, mutated, count


def _joint(graph: Graph, traced: TracedGraph, mutated: dict[int, int]) -> tuple[Graph, int]:
    """The graph with the gradients after the forward's outputs, and how many those are."""
    backward = traced.backward
    assert backward is not None
    gradients = [graph.outputs[g] for g in backward.gradients if g is not None]
    only = {g for g in backward.gradients if g is not None}
    kept = [i for i in range(len(graph.outputs)) if i not in only or i in _used(traced, mutated)]
    number = {old: new for new, old in enumerate(kept)}
    _renumber(traced, number)
    moved = {number[o]: i for o, i in mutated.items()}
    mutated.clear()
    mutated.update(moved)
    outputs = tuple(graph.outputs[i] for i in kept) + tuple(gradients)
    return Graph(graph.name, graph.inputs, outputs, graph.env), len(kept)


def _used(traced: TracedGraph, mutated: dict[int, int]) -> set[int]:
    return set(mutated) | {o.index for o in all_outputs(traced) if o.kind in ("value", "view")}


def _renumber(traced: TracedGraph, number: dict[int, int]) -> None:
    done: set[int] = set()
    for output in all_outputs(traced):
        if output.kind in ("value", "view") and id(output) not in done:
            done.add(id(output))
            output.index = number[output.index]
    for mutation in traced.mutations:
        mutation.output = number[mutation.output]
