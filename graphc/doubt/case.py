"""A Graph, which outputs are written into inputs, and its inputs, given or drawn: to be tried."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphc.backends.numpy.random import seed_state
from graphc.ir.dim import Size, evaluate
from graphc.ir.dtypes import DType
from graphc.ir.graph import Graph, Node

Array = np.ndarray[Any, Any]

SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 1.5, 2.5, 1e-30, 3e38, -7e4, 1e19)


@dataclass(frozen=True)
class Style:
    """How an input's elements are drawn.

    kind "uniform" in [low, high) (integers too), "halves" (multiples of 0.5: many ties),
    "special" (zeros, infinities, NaN, huge), "extreme" (integers of the whole range, and its
    ends), "index" (0 .. limit-1, or from -limit where `low` is negative; a few beyond with
    `high` 1), "distinct" (different indices below limit along the last dim), "state" (of a
    generator), "given" (`array`).
    """

    kind: str = "uniform"
    low: float = -2.0
    high: float = 2.0
    limit: Size = 1
    array: Array | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Case:
    """A Graph to compile and run. `styles` are by input; `mutated` output -> input.

    `forward` is the graph that `graph` was derived from by autodiff, if it was.
    """

    seed: int
    graph: Graph
    styles: Mapping[Node, Style]
    mutated: Mapping[int, int] = field(default_factory=dict)
    forward: Graph | None = None

    def arrays(self, dims: Mapping[str, int]) -> list[Array]:
        """The inputs for these sizes: the same at every call."""
        return [
            draw(self.seed, i, node.dtype, tuple(evaluate(n, dims) for n in node.shape),
                 self.styles[node], dims)
            for i, node in enumerate(self.graph.inputs)
        ]


def draw(
    seed: int, number: int, dtype: DType, shape: tuple[int, ...], style: Style,
    dims: Mapping[str, int],
) -> Array:
    """One input's array."""
    rng = np.random.default_rng([seed, number])
    if style.array is not None:
        return np.array(style.array)
    if style.kind == "state":
        return np.array(seed_state(seed * 31 + number))
    if style.kind in ("index", "distinct"):
        return _indices(rng, shape, style, evaluate(style.limit, dims))
    if dtype.kind == "bool":
        return np.asarray(rng.random(shape) < 0.5)
    if not dtype.is_float:
        return _integers(rng, dtype, shape, style)
    values = np.asarray(rng.uniform(style.low, style.high, shape))
    if style.kind == "halves":
        values = np.round(values * 2) / 2
    elif style.kind == "special":
        chosen = rng.random(shape) < 0.3
        values = np.where(chosen, rng.choice(np.array(SPECIAL), shape), values)
    with np.errstate(all="ignore"):
        return np.asarray(values.astype(dtype.numpy))


def _integers(rng: Any, dtype: DType, shape: tuple[int, ...], style: Style) -> Array:
    limits = np.iinfo(dtype.numpy)
    if style.kind in ("extreme", "special"):
        ends = np.array([limits.min, limits.min + 1, limits.max, 0, 1], dtype.numpy)
        any_value = rng.integers(limits.min, limits.max, shape, dtype=dtype.numpy, endpoint=True)
        small = rng.integers(max(-3, limits.min), 4, shape).astype(dtype.numpy)
        pick = rng.random(shape)
        values = np.where(pick < 0.4, rng.choice(ends, shape), any_value)
        return np.asarray(np.where(pick > 0.7, small, values), dtype.numpy)
    low, high = max(int(style.low), limits.min), int(style.high)
    return np.asarray(rng.integers(low, max(high, low) + 1, shape), dtype.numpy)


def _indices(rng: Any, shape: tuple[int, ...], style: Style, limit: int) -> Array:
    if style.kind == "distinct":
        if 0 in shape:
            return np.zeros(shape, np.int64)
        size = shape[-1] if shape else 1
        rows = [rng.permutation(limit)[:size] for _ in range(max(1, int(np.prod(shape[:-1]))))]
        return np.asarray(np.stack(rows).reshape(shape), np.int64)
    low = -limit if style.low < 0 else 0
    values = np.asarray(rng.integers(low, max(limit, low + 1), shape), np.int64)
    if style.high == 1.0 and values.size:
        values.reshape(-1)[int(rng.integers(values.size))] = limit + int(rng.integers(0, 3))
    return values
