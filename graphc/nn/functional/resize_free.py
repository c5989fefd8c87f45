"""Resizing where sizes are free: where outputs lie among the inputs is computed from the sizes of
the call, by the formulas that resize.py has for numbers."""

from __future__ import annotations

from typing import Any

from ...frontend import functions as T
from ...frontend.numbers import is_traced_number
from ...frontend.tensor import Tensor


def is_free(*sizes: Any) -> bool:
    """Whether one of them is symbolic."""
    return any(map(is_traced_number, sizes))


def resized_by(size: Any, factor: float) -> Any:
    """int(size * factor), which a symbolic size stays where the factor is a simple fraction."""
    above, below = factor.as_integer_ratio()
    if not is_traced_number(size) or below > _MOST_BELOW:
        return int(size * factor)
    return size * above // below


_MOST_BELOW = 64


def scale_of(size: Any, count: Any, given: float | None, align: bool, real: Any) -> Any:
    """Input positions per output position, as resize._scale has it."""
    if align:
        return (size - 1) / (count - 1) if count > 1 else 0.0
    return size / count if given is None or given <= 0 else float(real(1 / given))


def _steps(count: Any, like: Tensor) -> Tensor:
    return T.arange(count, dtype=T.float64 if like.dtype is T.float64 else T.float32)


def _positions(count: Any, scale: Any, align: bool, like: Tensor) -> Tensor:
    steps = _steps(count, like)
    return steps * scale if align else (steps + 0.5) * scale - 0.5


def _within(index: Tensor, size: Any) -> Tensor:
    last = T.full((), 1, dtype=T.int64) * (size - 1)
    return T.minimum(index.clamp(min=0), last)


def _column(values: Tensor, like: Tensor, dim: int) -> Tensor:
    after = (1,) * (like.dim() - dim - 1)
    return values.to(like.dtype).reshape(-1, *after)


def nearest(input: Tensor, dim: int, size: Any, count: Any, scale: Any, exact: bool) -> Tensor:
    """The input whose place an output's falls into."""
    places = (_steps(count, input) + (0.5 if exact else 0.0)) * scale
    return input.index_select(dim, _within(places.long(), size))


def linear(input: Tensor, dim: int, size: Any, count: Any, scale: Any, align: bool) -> Tensor:
    """A blend of the two inputs around an output's place."""
    place = _positions(count, scale, align, input).clamp(min=0)
    lower = _within(place.long(), size)
    share = _column(place - lower, input, dim)
    first = input.index_select(dim, lower)
    second = input.index_select(dim, _within(lower + 1, size))
    return first * (1 - share) + second * share


def cubic(
    input: Tensor, dim: int, size: Any, count: Any, scale: Any, align: bool, weights: Any
) -> Tensor:
    """Of the four around it. `weights`: of distances, as resize.cubic_weights gives them."""
    place = _positions(count, scale, align, input)
    base = place.floor()
    result: Any = None
    for offset, weight in zip(range(-1, 3), weights(place - base), strict=True):
        term = input.index_select(dim, _within(base.long() + offset, size))
        term = term * _column(weight, input, dim)
        result = term if result is None else result + term
    return result
