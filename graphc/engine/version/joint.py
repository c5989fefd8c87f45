"""A version whose results carry a compiled backward, and the graph that both are cut from."""

from __future__ import annotations

from typing import Any

from ...frontend.captured import TensorInput, TracedGraph
from ...frontend.tensor import Tensor
from ...ir.graph import Graph
from .backward import BackwardPlan, History
from .sources import tensor_of
from .version import Specialisation, all_outputs, forget


class JointSpecialisation(Specialisation):
    """A version whose results carry a compiled backward."""

    plan: BackwardPlan

    def run(self, arguments: list[Any]) -> Any:
        fresh = self.check(arguments)
        try:
            arrays, dims = self.fetch(arguments)
            saved = list(arrays)
            read = {i for kind, i in self.plan.saved if kind == "input"} | self.plan.replay.read
            for i in read.intersection(self.mutable_inputs):
                saved[i] = arrays[i].copy()  # the backward reads what the call overwrites
            results = self.execute(arrays, dims)
        except BaseException:
            forget(fresh)
            raise
        self.calls += 1
        owners: list[Tensor | None] = []
        for i, source in enumerate(self.inputs):
            owner = None
            if isinstance(source, TensorInput) and i not in self.mutable_inputs:
                owner = tensor_of(source, arguments, self.moved)
            owners.append(owner)
        history = History(self.plan, arguments, saved, owners, results, dims, self.moved)
        return self.finish(arguments, results, dims, history)


def joint_graph(graph: Graph, traced: TracedGraph, mutated: dict[int, int]) -> tuple[Graph, int]:
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
