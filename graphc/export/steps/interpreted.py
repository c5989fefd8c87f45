"""A training step run node by node on NumPy: the meaning of its graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from graphc.backends.numpy import TABLE
from graphc.export.interpreting import as_drawn
from graphc.export.steps.program import ExportedStep, Plan
from graphc.frontend.placement import Place
from graphc.ir.interpret import evaluate


class InterpretedStep(ExportedStep):
    """An ExportedStep on the CPU that compiles nothing."""

    def plan_at(self, dims: Mapping[str, int]) -> Plan:
        """The graph that stands for these sizes, which writes to no input's memory."""
        variant = super().plan_at(dims).variant
        return Plan(variant, {}, list(variant.signature.writes))

    def _runner(
        self, plan: Plan, place: Place | None, dims: Mapping[str, int]
    ) -> Callable[[list[Any]], list[Any]]:
        graph = as_drawn(self.contents, plan.variant.graph)
        # an output may share memory with an input, which is about to be written
        return lambda arrays: [np.array(a) for a in evaluate(graph, arrays, TABLE, dims)]
