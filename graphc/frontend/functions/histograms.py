"""torch.histogram and torch.histogramdd, on the host."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dispatch import constant
from ..errors import located
from ..placement import beside
from ..tensor import Tensor, concrete
from . import return_types
from .arguments import with_out

_CURE = "call it outside the compiled function"


def _edges(values: np.ndarray, bins: Any, limits: tuple[float, float] | None) -> np.ndarray:
    """The bins' edges: given, or so many equal bins over the range (the data's by default)."""
    if isinstance(bins, Tensor):
        return concrete(bins, "histogram()", _CURE)
    count = int(bins)
    if count <= 0:
        raise RuntimeError(located(f"torch.histogram(): bins must be > 0, but got {count}"))
    if limits is not None:
        low, high = limits
    else:
        low, high = (values.min(), values.max()) if values.size else (0.0, 1.0)
    if not low <= high:
        raise RuntimeError(located(f"torch.histogram: min {low} must not be above max {high}"))
    if not (np.isfinite(low) and np.isfinite(high)):
        raise RuntimeError(located(f"torch.histogram: range of [{low}, {high}] is not finite"))
    if low == high:
        low, high = low - 0.5, high + 0.5
    return np.linspace(low, high, count + 1, dtype=values.dtype)


def _counted(
    points: np.ndarray, edges: list[np.ndarray], weight: Tensor | None, density: bool
) -> Tensor:
    weights = None if weight is None else concrete(weight, "histogram()", _CURE).reshape(-1)
    inside = np.ones(len(points), bool)
    places = []
    for x, bounds in zip(points.T.astype(np.float64), edges, strict=True):
        inside &= (x >= bounds[0]) & (x <= bounds[-1])
        place = np.searchsorted(bounds.astype(np.float64), x, "right") - 1
        places.append(np.where(x == bounds[-1], len(bounds) - 2, place))
    sizes = [len(bounds) - 1 for bounds in edges]
    flat = np.ravel_multi_index([place[inside] for place in places], sizes)
    given = None if weights is None else weights[inside].astype(np.float64)
    found = np.bincount(flat, given, math.prod(sizes)).reshape(sizes).astype(np.float64)
    if density:
        total = found.sum()  # of what lies inside
        for dim, bounds in enumerate(edges):
            widths = np.diff(bounds.astype(np.float64))
            found = found / widths.reshape((-1,) + (1,) * (found.ndim - dim - 1))
        with np.errstate(divide="ignore", invalid="ignore"):
            found = found / total
    return constant(found.astype(points.dtype))


def _require_float(name: str, x: Tensor) -> None:
    if not x.dtype.is_float:
        raise NotImplementedError(located(
            f'"{name}" not implemented for {x.dtype}: cast to a float'
        ))


@beside
@with_out
def histogram(
    input: Tensor, bins: Any = 100, *, range: Any = None, weight: Tensor | None = None,
    density: bool = False,
) -> Any:
    """(counts, edges) of the values in bins, a number of them or their edges."""
    _require_float("histogram_cpu", input)
    values = concrete(input, "histogram()", _CURE).reshape(-1)
    limits = None if range is None else (float(range[0]), float(range[1]))
    edges = _edges(values, bins, limits)
    counts = _counted(values[:, None], [edges], weight, density)
    return return_types.histogram(counts, constant(edges.astype(values.dtype)))


@beside
def histogramdd(
    input: Tensor, bins: Any, *, range: Sequence[float] | None = None,
    weight: Tensor | None = None, density: bool = False,
) -> Any:
    """(counts, edges of each dim) of the points in the last dim's space."""
    _require_float("histogramdd", input)
    if input.ndim < 2:
        raise RuntimeError(located(
            "torch.histogramdd: input tensor should have at least 2 dimensions, but got "
            f"{input.ndim}"
        ))
    array = concrete(input, "histogramdd()", _CURE)
    points = array.reshape(-1, array.shape[-1])
    count = points.shape[1]
    given = list(bins) if isinstance(bins, (tuple, list)) else [bins] * count
    if len(given) != count:
        raise RuntimeError(located(
            f"torch.histogramdd: Expected {count} sequences of bin edges for a {count}-dimensional "
            f"histogram but got {len(given)}"
        ))
    edges = []
    for dim, wanted in enumerate(given):
        limits = None if range is None else (float(range[2 * dim]), float(range[2 * dim + 1]))
        edges.append(_edges(points[:, dim], wanted, limits))
    counts = _counted(points, edges, weight, density)
    made = tuple(constant(e.astype(points.dtype)) for e in edges)
    return return_types.histogramdd(counts, made)
