"""A version whose results carry a compiled backward."""

from __future__ import annotations

from typing import Any

from ...frontend.captured import TensorInput
from ...frontend.storage import readers
from ...frontend.tensor import Tensor
from ...ir.graph import Graph
from ...ir.passes.partition import Split
from .. import pipeline
from ..capture.streams import put_back, states
from .backward import BackwardPlan, History
from .parts import Parts, behind
from .sources import tensor_of, written_to
from .version import Specialisation, forget


def build_joint(
    graph: Graph, inputs: int, outputs: int, options: dict[str, Any]
) -> tuple[pipeline.Built, Split, Parts]:
    """The forward of a joint graph, where it is cut, and its backward.

    Where several results carry a history, that backward is built when it runs: of hidden states
    and a loss, only the loss may ever be differentiated.
    """
    late = {key: options[key] for key in ("config", "backend")}

    def build(reduced: Graph) -> pipeline.Built:
        return pipeline.build(reduced, name=f"{options['name']}_backward", **late)

    several = len(graph.inputs) - inputs > 1
    forward, reverse, split = pipeline.build_pair(graph, inputs, outputs, late=several, **options)
    parts = Parts(split.backward, len(split.saved), build, behind(graph, inputs, outputs))
    if reverse is not None:
        parts.keep_whole(reverse)
    return forward, split, parts


class JointSpecialisation(Specialisation):
    """A version whose results carry a compiled backward."""

    plan: BackwardPlan

    def run(self, arguments: list[Any], call: Any) -> Any:
        fresh = self.check(arguments, call)
        kept = states(self.draws)
        try:
            arrays, dims, said = self.fetch(arguments)
            if readers:
                self.before_write(arguments)
            saved = list(arrays)
            read = {i for kind, i in self.plan.saved if kind == "input"} | self.plan.replay.read
            for i in read.intersection(self.mutable_inputs):
                saved[i] = arrays[i].copy()  # the backward reads what the call overwrites
            results = self.execute(arrays, dims)
        except BaseException:
            forget(fresh)
            put_back(kept)
            raise
        self.calls += 1
        owners: list[Tensor | None] = []
        for i, source in enumerate(self.inputs):
            tensor = None
            if isinstance(source, TensorInput) and i not in self.mutable_inputs:
                tensor = tensor_of(source, arguments, self.moved)
            owners.append(tensor)
        for flag in self.traced.flags:  # what begins to require a gradient is part of the history
            if flag.requires_grad:
                written_to(flag, arguments, self.moved)._requires_grad = True
        history = History(self.plan, arguments, saved, owners, results, dims, self.moved)
        return self.finish(arguments, results, dims, said, history, call)
