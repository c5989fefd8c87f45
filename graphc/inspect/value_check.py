"""GRAPHC_CHECK=2: the graph's values before and after each pass, by NumPy, and who changed them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.ir import interpret
from graphc.ir.dim import evaluate
from graphc.ir.dtypes import DType, from_numpy
from graphc.ir.graph import Graph
from graphc.ir.interpret import Table
from graphc.ir.types import TensorType

Array = np.ndarray[Any, Any]

# Largest accepted difference, as a part of the output's largest magnitude: what reassociation
# and other formulas of the same function may change. A wrong rule changes more.
TOLERANCE = {"f64": 1e-8, "f32": 2e-3, "f16": 5e-2, "bf16": 1e-1}
CANCELLED = 8  # ulps of the largest input: what is left of a difference that should be zero
SLACK = 10  # times that between two implementations: deep networks magnify their rounding


class ValueChangedError(AssertionError):
    """A stage of the compiler changed a value: a compiler bug. The message holds the graph."""


class ValueCheck:
    """The outputs of a graph on example inputs, to compare with after each stage."""

    def __init__(self, graph: Graph, table: Table, example: Sequence[Array] | None) -> None:
        self.table = table
        self.inputs = [np.array(a) for a in example] if example is not None else draw_inputs(graph)
        self.dims = dict(graph.env.hints)
        if example is not None:
            self.dims = interpret.bind_dims(graph, self.inputs)
        self.expected = self._evaluate(graph)

    def _evaluate(self, graph: Graph) -> list[Array] | None:
        try:
            outputs = interpret.evaluate(graph, self.inputs, self.table, self.dims)
        except (RuntimeError, IndexError):
            return None  # these inputs raise: there is no value to compare
        return [np.array(output) for output in outputs]

    def after(self, stage: str, before: Graph, graph: Graph) -> None:
        """Raise ValueChangedError if `stage` made a graph that computes something else."""
        found = self._evaluate(graph)
        if (found is None) != (self.expected is None):
            happened = "raises now" if found is None else "no longer raises"
            raise ValueChangedError(f"pass {stage}: graph {graph.name} {happened}\n{before}")
        self.compare(stage, found, before)
        self.expected = found

    def compare(
        self, stage: str, found: Sequence[Array] | None, graph: Graph, slack: float = 1
    ) -> None:
        """Raise ValueChangedError unless `found` are the expected outputs, within `slack` times
        the TOLERANCE."""
        if self.expected is None or found is None:
            return
        pairs = zip(self.expected, found, graph.outputs, strict=True)
        for i, (want, have, node) in enumerate(pairs):
            tolerance = slack * TOLERANCE.get(node.dtype.name, 0.0)
            fault = difference(have, want, tolerance, rounding(node.dtype, self.inputs))
            if fault:
                cone = Graph(graph.name, graph.inputs, (node,), graph.env)
                raise ValueChangedError(
                    f"pass {stage} changed output {i} of graph {graph.name}: {fault}\n"
                    f"Before it, that output was:\n{cone}"
                )


def rounding(dtype: DType, inputs: Sequence[Array]) -> float:
    """CANCELLED ulps of the largest magnitude among `inputs`, for results of a dtype."""
    largest = 0.0
    for array in inputs:
        if array.size and from_numpy(array.dtype).is_float:
            magnitudes = np.abs(array.astype(np.float64))
            largest = max(largest, float(magnitudes[np.isfinite(magnitudes)].max(initial=0.0)))
    return CANCELLED * _EPSILON.get(dtype.name, 0.0) * largest


_EPSILON = {"f64": 2.0**-52, "f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}


def difference(found: Array, want: Array, tolerance: float, floor: float = 0.0) -> str:
    """How two arrays differ, "" where they agree to `tolerance` of the largest magnitude or to
    `floor`."""
    if found.shape != want.shape or found.dtype != want.dtype:
        return f"{found.dtype}{list(found.shape)} instead of {want.dtype}{list(want.shape)}"
    if want.size == 0:
        return ""
    if not tolerance:
        wrong = found != want
        if not wrong.any():
            return ""
        return _worst(found, want, wrong.astype(np.float64), f"{int(wrong.sum())} elements differ")
    wide, reference = found.astype(np.float64), want.astype(np.float64)
    special = ~np.isfinite(reference) | ~np.isfinite(wide)
    same = (wide == reference) | (np.isnan(wide) & np.isnan(reference))
    if (special & ~same).any():
        return _worst(found, want, (special & ~same).astype(np.float64), "inf or nan")
    error = np.abs(np.where(special, 0, wide) - np.where(special, 0, reference))
    scale = float(np.abs(np.where(special, 0, reference)).max())
    if error.max() <= max(tolerance * scale, floor, 1e-30):
        return ""
    return _worst(found, want, error, f"largest difference {error.max():.3g}")


def _worst(found: Array, want: Array, error: Array, what: str) -> str:
    place = tuple(int(i) for i in np.unravel_index(int(error.argmax()), error.shape))
    return f"{what}; at {list(place)} {found[place]!r} instead of {want[place]!r}"


def draw_inputs(graph: Graph, seed: int = 0) -> list[Array]:
    """Inputs that most graphs take: floats from [0.25, 1.75), integers 0, false and true mixed.

    Symbolic sizes get their hints. Zero is a valid index, and a valid generator state.
    """
    rng = np.random.default_rng(seed)
    arrays: list[Array] = []
    for node in graph.inputs:
        arrays.append(_draw(node.tensor_type, graph, rng))
    return arrays


def _draw(type_: TensorType, graph: Graph, rng: np.random.Generator) -> Array:
    shape = tuple(evaluate(size, graph.env.hints) for size in type_.shape)
    if type_.dtype.is_float:
        return (rng.random(shape) * 1.5 + 0.25).astype(type_.dtype.numpy)
    if type_.dtype.kind == "bool":
        return rng.random(shape) < 0.5
    return np.zeros(shape, type_.dtype.numpy)
