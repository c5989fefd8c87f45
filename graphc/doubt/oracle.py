"""Is a compiled result as good as NumPy's? Exact where bits are fixed, else by competition.

A rounded result may be a few units in the last place off, or no worse than a few times NumPy's
own distance from the float64 value. What fails that test gets a second opinion: evaluations with
noise show how far rounding alone can move each element.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from graphc.doubt.evaluate import EPSILON, Evaluator, Noise, tainted
from graphc.ir.dtypes import DType, from_numpy
from graphc.ir.graph import Graph

Array = np.ndarray[Any, Any]
_UNITS = 16.0  # in the last place, always allowed
_TIMES = 4.0  # NumPy's own error, or the noise's spread
_SAMPLES = 10  # noisy evaluations, half of them wide
_TINY = {"f64": 1e-300, "f32": 2.0**-140, "f16": 2.0**-23, "bf16": 2.0**-130}


class Oracle:
    """The expected outputs of a graph for some inputs, and what may differ from them."""

    def __init__(self, graph: Graph, arrays: Sequence[Array], dims: Mapping[str, int]) -> None:
        self.graph, self.arrays, self.dims = graph, arrays, dims
        self.expected = Evaluator(dims).outputs(graph, arrays)
        self.rounded = tainted(graph)
        self.second_opinions = 0
        self._wide: list[Array] | None = None
        self._samples: list[list[Array]] = []

    @classmethod
    def without(
        cls, graph: Graph, arrays: Sequence[Array], dims: Mapping[str, int]
    ) -> Oracle | None:
        """For a graph that raises: its outputs, if none of them depends on the elements that
        cannot be computed. A compiled graph computes what its outputs need, and may not raise."""
        oracle = cls.__new__(cls)
        oracle.graph, oracle.arrays, oracle.dims = graph, arrays, dims
        try:
            first, *others = (
                Evaluator(dims, excuse=value).outputs(graph, arrays) for value in (0, 1, 3)
            )
        except (RuntimeError, IndexError):  # one made-up value is another's bad index
            return None
        for other in others:
            if any(a.tobytes() != b.tobytes() for a, b in zip(first, other, strict=True)):
                return None
        oracle.expected, oracle.rounded = first, tainted(graph)
        oracle.second_opinions, oracle._wide, oracle._samples = 0, None, []
        return oracle

    @property
    def wide(self) -> list[Array]:
        """The outputs with float64 for every float; the plain ones where that fails."""
        if self._wide is None:
            self._wide = self._try(lambda: Evaluator(self.dims, wide=True)) or self.expected
        return self._wide

    def _try(self, make: Callable[[], Evaluator]) -> list[Array] | None:
        try:
            return make().outputs(self.graph, self.arrays)
        except (RuntimeError, IndexError):
            return None  # an index or divisor that depends on rounding

    def samples(self, index: int) -> list[Array]:
        """An output's noisy values."""
        if not self._samples:
            self.second_opinions += 1
            found = [self._try(functools.partial(
                Evaluator, self.dims, i % 2 == 0, Noise(i)
            )) for i in range(_SAMPLES)]
            self._samples = [s for s in found if s is not None] or [self.wide]
        return [s[index] for s in self._samples]

    def compare(self, found: Sequence[Array]) -> str:
        """What is wrong with these outputs; "" if nothing is."""
        for i, (have, want, node) in enumerate(
            zip(found, self.expected, self.graph.outputs, strict=True)
        ):
            if have.shape != want.shape or have.dtype != want.dtype:
                have_type, want_type = (f"{a.dtype}{list(a.shape)}" for a in (have, want))
                return f"output {i} is {have_type}, not {want_type}"
            wrong = self._wrong(i, have, want, node in self.rounded)
            if wrong.any():
                return self._describe(i, have, want, wrong)
        return ""

    def _wrong(self, i: int, have: Array, want: Array, rounded: bool) -> Array:
        dtype = from_numpy(want.dtype)
        if not dtype.is_float:
            wrong = np.asarray(have != want)
            if rounded and wrong.any():
                wrong &= ~between(have, [want, self.wide[i], *self.samples(i)])
            return wrong
        h, n = have.astype(np.float64), want.astype(np.float64)
        same = (h == n) | (np.isnan(h) & np.isnan(n))
        if not rounded or same.all():
            return np.asarray(~same)
        with np.errstate(all="ignore"):
            wrong = ~(same | _competes(h, n, self.wide[i].astype(np.float64), dtype))
            if wrong.any():
                wide = [s.astype(np.float64) for s in (self.wide[i], want, *self.samples(i))]
                wrong &= ~spread(h, wide, dtype)
        return np.asarray(wrong)

    def _describe(self, i: int, have: Array, want: Array, wrong: Array) -> str:
        at = tuple(int(k) for k in np.argwhere(wrong)[0])
        return (
            f"output {i}: {int(wrong.sum())} of {wrong.size} elements differ; at {list(at)} "
            f"{have[at]!r} instead of {want[at]!r} (in float64 {self.wide[i][at]!r})"
        )


def _competes(have: Array, numpy: Array, wide: Array, dtype: DType) -> Array:
    """Close to NumPy's value or to the float64 one, or no worse than a few times NumPy."""
    unit = _UNITS * EPSILON[dtype.name]
    rounded = wide.astype(dtype.numpy).astype(np.float64)  # overflows as the dtype does
    good = (have == rounded) | (np.isnan(have) & np.isnan(rounded))
    good |= np.abs(have - wide) <= unit * np.abs(wide) + _TINY[dtype.name]
    good |= np.abs(have - numpy) <= unit * np.abs(numpy) + _TINY[dtype.name]
    error = np.abs(numpy - wide)
    return np.asarray(good | (np.isfinite(error) & (np.abs(have - wide) <= _TIMES * error)))


def spread(have: Array, values: list[Array], dtype: DType) -> Array:
    """Within a few times the noise's spread round the first value."""
    stack = np.stack(values)
    centre = stack[0]
    finite = np.isfinite(stack)
    spread = np.max(np.where(finite, np.abs(stack - centre), 0.0), axis=0)
    scale = np.max(np.where(finite, np.abs(stack), 0.0), axis=0)
    room = _TIMES * spread + _UNITS * EPSILON[dtype.name] * scale + _TINY[dtype.name]
    good = np.abs(have - centre) <= room
    good |= np.isnan(have) & np.isnan(stack).any(axis=0)
    # NaN stands for sums that overflow in one order and not in another
    good |= np.isinf(have) & ((stack == have) | np.isnan(stack)).any(axis=0)
    # where noise alone decides between a number and NaN or infinity, any number may be right
    good |= ~finite.all(axis=0) & np.isfinite(have) & ~np.isfinite(centre)
    return np.asarray(good)


def between(have: Array, values: list[Array]) -> Array:
    """Integers within the range of what noise makes of them."""
    stack = np.stack([v.astype(have.dtype) for v in values])
    low, high = stack.min(axis=0), stack.max(axis=0)
    return np.asarray((low != high) & (have >= low) & (have <= high))
