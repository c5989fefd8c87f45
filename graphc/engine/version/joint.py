"""A version whose results carry a compiled backward."""

from __future__ import annotations

from typing import Any

from ...frontend.captured import TensorInput
from ...frontend.tensor import Tensor
from ..capture.streams import put_back, states
from .backward import BackwardPlan, History
from .sources import tensor_of
from .version import Specialisation, forget


class JointSpecialisation(Specialisation):
    """A version whose results carry a compiled backward."""

    plan: BackwardPlan

    def run(self, arguments: list[Any], call: Any) -> Any:
        fresh = self.check(arguments, call)
        kept = states(self.draws)
        try:
            arrays, dims, said = self.fetch(arguments)
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
        history = History(self.plan, arguments, saved, owners, results, dims, self.moved)
        return self.finish(arguments, results, dims, said, history, call)
