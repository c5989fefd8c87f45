"""GRAPHC_CHECK=3: every call of compiled code, compared with the graph's meaning on NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..backends import Backend, Executable, name_of
from ..inspect.native_check import check_native
from ..inspect.value_check import ValueChangedError
from ..ir.dim import evaluate
from ..ir.graph import Graph
from ..ir.interpret import Table
from ..ir.kernel import Program
from ..ir.memory import Buffer
from .case import Case, Style
from .oracle import Oracle

Array = np.ndarray[Any, Any]


class Checked:
    """An executable that raises ValueChangedError where its outputs are not those of the graph."""

    def __init__(
        self, executable: Executable, backend: Backend, program: Program, graph: Graph,
        mutated: Mapping[int, int], table: Table,
    ) -> None:
        self.executable, self.program, self.graph = executable, program, graph
        self._backend = backend
        self._mutated, self._table = dict(mutated), table

    def __getattr__(self, name: str) -> Any:
        return getattr(self.executable, name)

    def run(
        self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], dims: Sequence[int] = ()
    ) -> None:
        """One call, on contiguous buffers, to its end; see backends.Executable."""
        read = self._backend.memory.read
        sizes = dict(zip(self.program.dims, dims, strict=True))
        before = [  # np.ascontiguousarray makes one dimension of none
            np.array(read(buffer)).reshape([evaluate(n, sizes) for n in node.shape])
            for buffer, node in zip(inputs, self.graph.inputs, strict=True)
        ]
        self.executable.run(inputs, outputs, dims)
        found = [read(buffer) for buffer in outputs]
        fault = difference(self.graph, before, found, sizes)
        if fault:
            raise self._error(fault, before, found, sizes)

    def _error(
        self, fault: str, inputs: list[Array], outputs: Sequence[Array], sizes: dict[str, int]
    ) -> ValueChangedError:
        given = [a.copy() for a in inputs]
        made = [
            given[self._mutated[i]] if i in self._mutated else np.empty_like(a, order="C")
            for i, a in enumerate(outputs)
        ]
        error = ValueChangedError(f"compiled code of {self.program.name} is wrong: {fault}")
        try:
            check_native(
                self.program, self.executable, self._backend.memory, given, made, self._table,
                sizes,
            )
        except ValueChangedError as found:
            error = found
        error.case = case_of(self.graph, inputs, self._mutated, sizes)
        error.backend = name_of(self._backend)
        return error


def difference(
    graph: Graph, inputs: Sequence[Array], outputs: Sequence[Array], sizes: Mapping[str, int]
) -> str:
    """How compiled outputs differ from the graph's meaning; "" if they do not."""
    with np.errstate(all="ignore"):
        oracle: Oracle | None
        try:
            oracle = Oracle(graph, inputs, sizes)
        except (RuntimeError, IndexError):  # of something that no output needs
            oracle = Oracle.without(graph, inputs, sizes)
        return "" if oracle is None else oracle.compare(outputs)


def case_of(
    graph: Graph, inputs: Sequence[Array], mutated: Mapping[int, int], sizes: Mapping[str, int]
) -> Case:
    """A call of a graph with these inputs, to be made smaller."""
    env = graph.env.copy()
    env.hints.update(sizes)
    copy = Graph(graph.name, graph.inputs, graph.outputs, env)
    pairs = zip(graph.inputs, inputs, strict=True)
    return Case(0, copy, {n: Style("given", array=a) for n, a in pairs}, dict(mutated))
