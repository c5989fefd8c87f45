"""Running sums, products and extremes along a dim, and differences."""

from __future__ import annotations

from typing import Any

from graphc.ir import dtypes, ops

from .. import promote
from ..dispatch import apply, filled_beside
from ..errors import located
from ..replayed import replayed
from ..tensor import Tensor
from . import pointwise as P
from . import return_types
from .arguments import check_dtype, numpy_names, recorded_as, shape, with_out, wrap_dim
from .joining import cat, stack, triangle_mask
from .parts import slice_dim, unbind
from .pointwise_composed import complex_logaddexp, logaddexp


def _running(name: str, doc: str) -> Any:
    record = getattr(ops, name)

    def function(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
        dtype = check_dtype(dtype) or (
            input.dtype if input.dtype.differentiable else dtypes.i64
        )
        x = promote.cast(input, dtype)
        along = wrap_dim(dim, x.ndim)
        if x.ndim == 0:
            return x.clone()  # type: ignore[no-any-return]
        result: Tensor = apply(record, x, dim=along)
        return result

    function.__name__ = name
    function.__doc__ = doc
    return replayed(with_out(numpy_names(function)))


cumsum = _running("cumsum", "Running sum along `dim`; integers in int64.")
cumprod = _running("cumprod", "Running product along `dim`; integers in int64.")


def _running_extreme(name: str, doc: str) -> Any:
    record = getattr(ops, name)
    struct = getattr(return_types, name)

    def function(input: Tensor, dim: int) -> Any:
        along = wrap_dim(dim, input.ndim)
        if input.ndim == 0:
            zero = filled_beside(input, (), 0, dtypes.i64)
            return struct(input.clone(), zero)
        if input.dtype is dtypes.bool_:
            values, indices = apply(record, promote.cast(input, dtypes.u8), dim=along)
            return struct(promote.cast(values, dtypes.bool_), indices)
        return struct(apply(record, input, dim=along))

    function.__name__ = name
    function.__doc__ = doc
    return replayed(with_out(numpy_names(function)))


cummax = _running_extreme("cummax", "Running maximum and its index along `dim`.")
cummin = _running_extreme("cummin", "Running minimum and its index along `dim`.")


def _complex_logcumsumexp(x: Tensor, dim: int) -> Tensor:
    """One after the other, as in torch: the phase goes on beyond pi."""
    slices = list(unbind(x, dim))
    for i in range(1, len(slices)):
        slices[i] = complex_logaddexp(slices[i], slices[i - 1])
    return stack(slices, dim) if slices else x.clone()


@replayed
@with_out
@numpy_names
@recorded_as("LogcumsumexpBackward0")
def logcumsumexp(input: Tensor, dim: int) -> Tensor:
    """log of the running sum of exp along `dim`: each place scaled by its running maximum."""
    along = wrap_dim(dim, input.ndim)
    if input.ndim == 0:
        return input.clone()  # type: ignore[no-any-return]
    if input.dtype.is_complex:
        return _complex_logcumsumexp(input, along)
    return _running_logsumexp(input, along)


_SQUARE = 64  # numbers up to which each place's sum is added up by itself


def _running_logsumexp(x: Tensor, along: int) -> Tensor:
    """Of many, by pairs: the running sums of the pairs' sums are every other result."""
    size = shape(x)[along]
    if not isinstance(size, int) or size <= _SQUARE or not x.dtype.is_float:
        return _squared_logsumexp(x, along)
    if x.dtype.bits == 16:
        return promote.cast(_running_logsumexp(promote.cast(x, dtypes.f32), along), x.dtype)
    even, odd = (slice_dim(x, along, start, size, 2) for start in (0, 1))
    pairs = size // 2
    odd_results = _running_logsumexp(
        logaddexp(slice_dim(even, along, 0, pairs), odd), along
    )
    later = slice_dim(even, along, 1, (size + 1) // 2)
    before = slice_dim(odd_results, along, 0, (size + 1) // 2 - 1)
    first = slice_dim(x, along, 0, 1)
    even_results = cat([first, logaddexp(before, later)], along)
    woven = stack([slice_dim(even_results, along, 0, pairs), odd_results], along + 1)
    result: Tensor = woven.flatten(along, along + 1)
    if size % 2:
        result = cat([result, slice_dim(even_results, along, pairs, pairs + 1)], along)
    return result


def _squared_logsumexp(input: Tensor, along: int) -> Tensor:
    """Each place's sum by itself, scaled by its running maximum."""
    tops = apply(ops.cummax, input.detach(), dim=along)[0]
    size = shape(input)[along]
    # row i holds exp(x[j] - top[i]) for j <= i
    x = input.unsqueeze(along)
    top = tops.unsqueeze(along + 1)
    mask = triangle_mask(size, size, 0, True)
    mask = mask.reshape((1,) * along + (size, size) + (1,) * (input.ndim - along - 1))
    infinite = P.isinf(top)
    safe = P.where(infinite, 0.0, top)
    terms = P.where(mask, P.exp(P.sub(P.where(mask, x, safe), safe)), 0.0)
    total = apply(ops.sum, terms, dims=(along + 1,), keepdim=False)
    result: Tensor = P.add(P.log(total), safe.reshape(shape(tops)))
    return result


@replayed
@with_out
def diff(
    input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:
    """The n-th difference along `dim`."""
    if input.ndim == 0:
        raise RuntimeError(located("diff expects input to be at least one-dimensional"))
    along = wrap_dim(dim, input.ndim)
    if n < 0:
        raise RuntimeError(located(f"order must be non-negative but got {n}"))
    if n == 0:
        same: Tensor = input.clone()
        return same
    parts = [x for x in (prepend, input, append) if x is not None]
    x = cat(parts, along) if len(parts) > 1 else input
    for _ in range(n):
        size = shape(x)[along]
        if isinstance(size, int) and size <= 1:
            return slice_dim(x, along, 0, 0)
        high, low = slice_dim(x, along, 1, size), slice_dim(x, along, 0, size - 1)
        x = P.logical_xor(high, low) if x.dtype is dtypes.bool_ else P.sub(high, low)
    return x


@replayed
def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """The integral of y along `dim` by the trapezoidal rule."""
    along = wrap_dim(dim, y.ndim)
    size = shape(y)[along]
    if isinstance(size, int) and size == 0:
        return y.sum(along, dtype=y.dtype)  # type: ignore[no-any-return]
    if x is None:
        ends = P.add(y.select(along, 0), y.select(along, -1))
        inside = P.sub(y.sum(along), P.mul(ends, 0.5))
        return P.mul(inside, 1.0 if dx is None else dx)  # type: ignore[no-any-return]
    areas = P.add(slice_dim(y, along, 0, size - 1), slice_dim(y, along, 1, size))
    steps = diff(x, dim=-1 if x.ndim == 1 else along)
    if x.ndim == 1 and along != y.ndim - 1:
        steps = steps.reshape((-1,) + (1,) * (y.ndim - along - 1))
    return P.div(P.mul(areas, steps).sum(along), 2.0)


trapz = trapezoid
