"""A training step run node by node on NumPy: the meaning of its graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from graphc.backends.numpy import TABLE
from graphc.export.contents import Contents
from graphc.export.interpreting import as_drawn
from graphc.export.steps.program import ExportedStep
from graphc.frontend.placement import Place
from graphc.ir.interpret import evaluate


class InterpretedStep(ExportedStep):
    """An ExportedStep on the CPU that compiles nothing."""

    def __init__(self, contents: Contents) -> None:
        super().__init__(contents)
        self._mutated, self._copied = {}, list(self.signature.writes)

    def _runner(
        self, place: Place | None, dims: Mapping[str, int]
    ) -> Callable[[list[Any]], list[Any]]:
        graph = as_drawn(self.contents, self.graph)
        # an output may share memory with an input, which is about to be written
        return lambda arrays: [np.array(a) for a in evaluate(graph, arrays, TABLE, dims)]
