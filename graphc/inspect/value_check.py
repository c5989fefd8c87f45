"""GRAPHC_CHECK=2: the graph's values before and after each pass, by NumPy, and who changed them.

Graphs are compared in float64 (widen.py), where equal meanings agree to many digits. A Program
computes in its own types: it may differ by what the graph itself loses in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.inspect.widen import widen, widen_array
from graphc.ir import interpret
from graphc.ir.dim import evaluate
from graphc.ir.dtypes import DType, from_numpy
from graphc.ir.graph import Graph
from graphc.ir.interpret import Table
from graphc.ir.types import TensorType

Array = np.ndarray[Any, Any]

# Largest accepted differences, as parts of an output's largest magnitude: what reassociation and
# other formulas of the same function may change. A wrong rule changes more.
PASS_TOLERANCE = 1e-6  # of a pass, in float64; constants folded in float32 leave 1e-7
TOLERANCE = {"f64": 1e-8, "f32": 2e-3, "f16": 5e-2, "bf16": 1e-1}
SLACK = 10  # how many times what the graph itself loses to rounding a Program may lose
CANCELLED = 8  # ulps of the largest input: what is left of a difference that should be zero


class ValueChangedError(AssertionError):
    """A stage of the compiler changed a value: a compiler bug. The message holds the graph.

    `case`: the graph and the inputs for which it did (doubt.case.Case), where they are known;
    `backend`: whose code it was, if it was run; `kernel` and `locs`: the native kernel that is
    wrong, if it is one, and its lines.
    """

    case: Any = None
    backend: str = ""
    kernel: str = ""
    locs: tuple[str, ...] = ()


class ValueCheck:
    """The outputs of a graph on example inputs, to compare with after each stage."""

    def __init__(self, graph: Graph, table: Table, example: Sequence[Array] | None) -> None:
        self.table = table
        self.inputs = [np.array(a) for a in example] if example is not None else draw_inputs(graph)
        self.dims = dict(graph.env.hints)
        if example is not None:
            self.dims |= interpret.bind_dims(graph, self.inputs)
        self.wide_inputs = [widen_array(array) for array in self.inputs]
        self.wide = self._evaluate(widen(graph), self.wide_inputs)
        # in the graph's own types; None where these inputs raise and there is nothing to compare
        self.expected = self._evaluate(graph, self.inputs)

    def _evaluate(self, graph: Graph, inputs: Sequence[Array]) -> list[Array] | None:
        try:
            outputs = interpret.evaluate(graph, inputs, self.table, self.dims)
        except (RuntimeError, IndexError):
            return None
        return [np.array(output) for output in outputs]

    def after_pass(self, name: str, before: Graph, graph: Graph) -> None:
        """Raise ValueChangedError if a pass made a graph that computes something else."""
        found = self._evaluate(widen(graph), self.wide_inputs)
        if (found is None) != (self.wide is None):
            happened = "raises now" if found is None else "no longer raises"
            raise ValueChangedError(f"pass {name}: graph {graph.name} {happened}\n{before}")
        if found is None or self.wide is None:
            return
        for i, (want, have, node) in enumerate(zip(self.wide, found, before.outputs, strict=True)):
            tolerance = PASS_TOLERANCE if node.dtype.is_float else 0.0
            fault = difference(have, want, tolerance, rounding(self.wide_inputs))
            if fault:
                _fail(f"pass {name} changed", i, before, fault)
        self.wide = found

    def program(self, found: Sequence[Array], graph: Graph) -> None:
        """Raise ValueChangedError unless a Program's outputs are those of the graph."""
        if self.expected is None or self.wide is None:
            return
        pairs = zip(self.expected, self.wide, found, graph.outputs, strict=True)
        for i, (want, exact, have, node) in enumerate(pairs):
            tolerance = TOLERANCE.get(node.dtype.name, 0.0)
            floor = SLACK * _lost(want, exact) if tolerance else 0.0
            fault = difference(have, want, tolerance, max(floor, rounding(self.inputs)))
            if fault:
                _fail("lower or plan changed", i, graph, fault)


def _fail(what: str, output: int, graph: Graph, fault: str) -> None:
    cone = Graph(graph.name, graph.inputs, (graph.outputs[output],), graph.env)
    raise ValueChangedError(
        f"{what} output {output} of graph {graph.name}: {fault}\nBefore it, that output was:\n"
        f"{cone}"
    )


def _lost(want: Array, exact: Array) -> float:
    """The largest error of a result in its own type."""
    with np.errstate(invalid="ignore"):
        error = np.abs(want.astype(np.float64) - exact)
    return float(error[np.isfinite(error)].max(initial=0.0))


def rounding(inputs: Sequence[Array], dtype: DType | None = None) -> float:
    """CANCELLED ulps (of `dtype`, or each input's own) of the largest magnitude among `inputs`."""
    largest = 0.0
    for array in inputs:
        own = from_numpy(array.dtype)
        if array.size and own.is_float:
            magnitudes = np.abs(array.astype(np.float64))
            finite = float(magnitudes[np.isfinite(magnitudes)].max(initial=0.0))
            largest = max(largest, finite * _EPSILON[(dtype or own).name])
    return CANCELLED * largest


_EPSILON = {"f64": 2.0**-52, "f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}


def difference(found: Array, want: Array, tolerance: float, floor: float = 0.0) -> str:
    """How two arrays differ, "" where they agree to `tolerance` of the largest magnitude or to
    `floor`. Without a tolerance they have to be equal."""
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
    return [_draw(node.tensor_type, graph, rng) for node in graph.inputs]


def _draw(type_: TensorType, graph: Graph, rng: np.random.Generator) -> Array:
    shape = tuple(evaluate(size, graph.env.hints) for size in type_.shape)
    if type_.dtype.is_float:
        return (rng.random(shape) * 1.5 + 0.25).astype(type_.dtype.numpy)
    if type_.dtype.kind == "bool":
        return rng.random(shape) < 0.5
    return np.zeros(shape, type_.dtype.numpy)
