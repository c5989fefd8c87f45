"""The oracle: what a Graph means, node by node on NumPy.

`Evaluator()` computes in the graph's own dtypes, `Evaluator(wide=True)` with float64 in place of
every float. With `noise` each rounded operation is off by a few units of its dtype's last place:
how far the outputs then move is how well they are defined at all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphc.backends.numpy.ops import TABLE
from graphc.ir import dtypes
from graphc.ir.dtypes import DType
from graphc.ir.graph import Graph, Node
from graphc.ir.interpret import resolve_attrs
from graphc.ir.rounding import EXACT, Rounding, rounding_of
from graphc.ir.types import TensorType, TupleType

Array = np.ndarray[Any, Any]
EPSILON = {"f64": 2.0**-52, "f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}


def rounding(node: Node) -> Rounding:
    """How a node's results may differ from one engine to another."""
    sources = [result_types(x)[0].dtype for x in node.inputs]
    results = [t.dtype for t in result_types(node)]
    return rounding_of(node.op.rounding, node.attrs, sources, results)


def result_types(node: Node) -> tuple[TensorType, ...]:
    """The types of a node's results, one or several."""
    return node.type.elements if isinstance(node.type, TupleType) else (node.type,)


def tainted(graph: Graph) -> set[Node]:
    """Nodes that some rounded operation reaches: their bits are not fixed."""
    found: set[Node] = set()
    for node in graph.nodes:
        inner = any(tainted(g) for g in node.graphs)
        if inner or rounding(node).units or any(x in found for x in node.inputs):
            found.add(node)
    return found


def _in_turn(name: str, inputs: Sequence[Any], attrs: Mapping[str, Any]) -> float:
    """How much further a sum may be off whose terms are added one after another, each sum being
    rounded: as far as a random walk of so many steps, that of the place with most terms."""
    if name == "index_put" and attrs["accumulate"]:
        x, source, *indices = inputs
        counted = TABLE[name](np.zeros(x.shape, int), np.ones(source.shape, int), *indices, **attrs)
    elif name == "scatter" and attrs["reduce"] == "add":
        x, index, source = inputs
        counted = TABLE[name](np.zeros(x.shape, int), index, np.ones(source.shape, int), **attrs)
    elif name == "softmax":  # a register adds eight terms at a time, and more; NumPy adds in pairs
        return max(1.0, math.sqrt(inputs[0].shape[attrs["dim"]] / 64))
    else:
        return 1.0
    return math.sqrt(counted.max(initial=1))


class Noise:
    """Relative errors of up to `level` units in the last place, drawn from a seed."""

    def __init__(self, seed: int, level: float = 4.0) -> None:
        self.rng = np.random.default_rng(seed)
        self.level = level

    def apply(self, array: Any, dtype: DType, scale: float = 1.0) -> Any:
        """`array` of values of `dtype` (perhaps held as float64), each slightly off."""
        if not dtype.is_float:
            return array
        size = self.level * scale * EPSILON[dtype.name]
        wide = np.asarray(array, np.float64)
        moved = wide * (1.0 + size * self.rng.uniform(-1.0, 1.0, wide.shape))
        return moved.astype(array.dtype)


class Evaluator:
    """Values of nodes, each computed once."""

    def __init__(
        self,
        dims: Mapping[str, int],
        wide: bool = False,
        noise: Noise | None = None,
        excuse: int | None = None,
    ) -> None:
        self.dims = dims
        self.wide = wide
        self.noise = noise
        self.excuse = excuse  # stands for every element whose computation raises
        self.values: dict[Node, Any] = {}

    def give(self, node: Node, array: Array) -> None:
        """Set the value of an input."""
        self.values[node] = self._widened(array, node.dtype)

    def outputs(self, graph: Graph, arrays: Sequence[Array]) -> list[Array]:
        """The graph's outputs for these inputs, as copies."""
        for node, array in zip(graph.inputs, arrays, strict=True):
            self.give(node, array)
        return [np.array(self.value(node)) for node in graph.outputs]

    def value(self, node: Node) -> Any:
        """A node's value: an array, or a tuple of them. Iterative over what it needs."""
        stack = [node]
        with np.errstate(all="ignore"):
            while stack:
                top = stack[-1]
                missing = [x for x in top.inputs if x not in self.values]
                if top in self.values or not missing:
                    stack.pop()
                    if top not in self.values:
                        self.values[top] = self._compute(top)
                else:
                    stack.extend(missing)
        return self.values[node]

    # --- one node ------------------------------------------------------------------------------

    def _compute(self, node: Node) -> Any:
        inputs = [self.values[x] for x in node.inputs]
        name = node.op.name
        if name == "get":
            return inputs[0][node.attrs["index"]]
        if node.graphs:
            return self._control(node, inputs)
        attrs = resolve_attrs(node.attrs, self.dims)
        if name == "const":
            return self._widened(attrs["value"].array, node.dtype)
        if self.wide and node.op.family != "random" and "dtype" in attrs:
            attrs["dtype"] = dtypes.f64 if attrs["dtype"].is_float else attrs["dtype"]
        fact = EXACT if self.noise is None else rounding(node)
        if fact.operands:
            operands = zip(inputs, node.inputs, strict=True)
            inputs = [self._moved(x, i.dtype, 1.0) for x, i in operands]
        try:
            result = TABLE[name](*inputs, **attrs)
        except (RuntimeError, IndexError):
            if self.excuse is None:
                raise
            result = self._made_up(node, inputs, attrs, self.excuse)
        if self.wide and node.op.family == "random":
            result = tuple(
                self._widened(r, t.dtype) for r, t in zip(result, result_types(node), strict=True)
            )
        if not fact.units:
            return result
        if fact.overflows and not self.wide:
            result = _overflowing(name, inputs, attrs, result)
        if fact.cancels:
            result = result + (self._moved(inputs[0], node.dtype, 1.0) - inputs[0])
        if isinstance(result, tuple):
            pairs = zip(result, result_types(node), strict=True)
            return tuple(self._moved(r, t.dtype, fact.units) for r, t in pairs)
        return self._moved(result, node.dtype, fact.units * _in_turn(name, inputs, attrs))

    def _made_up(self, node: Node, inputs: list[Any], attrs: dict[str, Any], value: int) -> Any:
        """What an operator that raises gives, with `value` where it has no result."""
        name = node.op.name
        if node.op.divides:
            zero = inputs[1] == 0
            result = TABLE[name](inputs[0], np.where(zero, inputs[1].dtype.type(1), inputs[1]))
            return np.where(zero, result.dtype.type(value), result)
        if name in ("gather", "index"):
            return _lookup(name, inputs, attrs, value)
        results = []
        for type_ in result_types(node):
            shape = resolve_attrs({"shape": type_.shape}, self.dims)["shape"]
            results.append(np.full(shape, value, type_.dtype.numpy))
        return tuple(results) if isinstance(node.type, TupleType) else results[0]

    def _moved(self, array: Any, dtype: DType, scale: float) -> Any:
        assert self.noise is not None
        return self.noise.apply(array, dtype, scale)

    def _widened(self, array: Any, dtype: DType) -> Any:
        return np.asarray(array, np.float64) if self.wide and dtype.is_float else array

    def _inner(self, graph: Graph, arrays: Sequence[Any]) -> list[Any]:
        inner = Evaluator(self.dims, self.wide, self.noise, self.excuse)
        for node, array in zip(graph.inputs, arrays, strict=True):
            inner.give(node, array)
        return [inner.value(node) for node in graph.outputs]

    def _control(self, node: Node, inputs: list[Any]) -> Any:
        results = _CONTROL[node.op.name](self, node, inputs)
        return tuple(results) if isinstance(node.type, TupleType) else results[0]


def _lookup(name: str, inputs: list[Any], attrs: dict[str, Any], value: int) -> Any:
    """gather or index with `value` for what lies outside."""
    x, indices, dim = inputs[0], inputs[1:], attrs["dim"]
    bad: Any = np.zeros((), bool)
    kept = []
    for d, index in enumerate(indices, dim):
        outside = (index >= x.shape[d]) | (index < (-x.shape[d] if name == "index" else 0))
        bad = bad | outside
        kept.append(np.where(outside, 0, index))
    result = TABLE[name](x, *kept, **attrs)
    if name == "index":  # the indexed shape stands at `dim`
        bad = np.reshape(bad, (*bad.shape, *(1,) * (result.ndim - dim - bad.ndim)))
    return np.where(bad, result.dtype.type(value), result)


def _overflowing(name: str, inputs: list[Any], attrs: dict[str, Any], result: Any) -> Any:
    """NaN where partial sums in one order may overflow that do not in another: inf - inf."""
    sizes = TABLE[name](*(np.abs(np.asarray(x, np.float64)) for x in inputs), **attrs)
    most = np.finfo(np.float64 if result.dtype == np.float64 else np.float32).max
    return np.where(sizes > most, np.array(np.nan, result.dtype), result)


def _cond(run: Evaluator, node: Node, inputs: list[Any]) -> list[Any]:
    return run._inner(node.graphs[0 if inputs[0].all() else 1], inputs[1:])


def _while(run: Evaluator, node: Node, inputs: list[Any]) -> list[Any]:
    condition, body = node.graphs
    carried = list(inputs)
    while run._inner(condition, carried)[0].all():
        carried = run._inner(body, carried)
    return carried


def _unwind(run: Evaluator, node: Node, inputs: list[Any]) -> list[Any]:
    condition, body, back = node.graphs
    n, most = node.attrs["n_state"], node.attrs["most"]
    state, slopes = list(inputs[:n]), list(inputs[n:])
    began: list[list[Any]] = []
    while len(began) < most and run._inner(condition, state)[0].all():
        began.append(state)
        state = run._inner(body, state)
    for state in reversed(began):
        slopes = run._inner(back, [*slopes, *state])
    return slopes


def _scan(run: Evaluator, node: Node, inputs: list[Any]) -> list[Any]:
    body, n = node.graphs[0], node.attrs["n_carried"]
    carried, xs = list(inputs[:n]), inputs[n:]
    rows: list[list[Any]] = []
    order = range(len(xs[0]))
    reverse = node.attrs["reverse"]
    for step in reversed(order) if reverse else order:
        results = run._inner(body, [*carried, *(np.asarray(x[step]) for x in xs)])
        carried = results[:n]
        rows.append(results[n:])
    if reverse:
        rows.reverse()
    stacked = []
    for i, type_ in enumerate(result_types(node)[n:]):
        if rows:
            stacked.append(np.stack([row[i] for row in rows]))
        else:
            shape = resolve_attrs({"shape": type_.shape}, run.dims)["shape"]
            stacked.append(run._widened(np.empty(shape, type_.dtype.numpy), type_.dtype))
    return [*carried, *stacked]


_CONTROL = {"cond": _cond, "while_loop": _while, "unwind": _unwind, "scan": _scan}
