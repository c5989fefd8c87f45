"""Order: sort, topk, kthvalue, median, mode, unique, searchsorted, histograms."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.ir import dtypes, ops

from .. import promote
from ..context import local
from ..dispatch import apply, constant, filled_beside
from ..errors import located
from ..history import requires_grad
from ..meta import concrete_or_zeros
from ..ownership import owns_result
from ..placement import beside
from ..replayed import replayed
from ..tensor import Tensor, concrete, current
from . import pointwise as P
from . import return_types
from .arguments import (
    environment,
    named,
    numpy_names,
    public_size,
    recorded_as,
    shape,
    with_out,
    wrap_dim,
)
from .creation import as_tensor
from .few_searched import searched, searched_few
from .most_frequent import last_of_most
from .parts import slice_dim
from .pointwise_combined import lerp
from .ranked import again_of_few, distinct, ranked
from .reduction import pick

_CURE = "its result's size depends on values: call it outside the compiled function"


def _sorted(x: Tensor, dim: int, descending: bool, stable: bool) -> tuple[Tensor, Tensor]:
    values, indices = apply(
        ops.sort, x, dim=dim, descending=bool(descending), stable=bool(stable)
    )
    return values, indices


@replayed
@with_out
def sort(
    input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False
) -> Any:
    """Sorted values and their indices along `dim`; NaN counts as the largest."""
    along = wrap_dim(dim, input.ndim)
    if input.ndim == 0:
        zero = filled_beside(input, (), 0, dtypes.i64)
        return return_types.sort(input.clone(), zero)
    return return_types.sort(_sorted(input, along, descending, True))


@replayed
def argsort(
    input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False
) -> Tensor:
    """The indices that sort along `dim`."""
    result: Tensor = sort(input, dim, descending, stable)[1]
    return result


@with_out
def msort(input: Tensor) -> Tensor:
    """Sorted along dim 0."""
    result: Tensor = sort(input, 0)[0]
    return result


@replayed
@with_out
def topk(
    input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> Any:
    """The k largest (smallest) along `dim` in order, and their indices."""
    along = wrap_dim(dim, input.ndim)
    if input.ndim == 0:
        zero = filled_beside(input, (), 0, dtypes.i64)
        return return_types.topk(input.clone(), zero)
    size = shape(input)[along]
    if isinstance(k, Tensor):
        k = int(k.item())
    if input.dtype is dtypes.bool_:
        raise RuntimeError(located(
            "topk does not support bool dtypes on CPU. Cure: input.to(torch.uint8)"
        ))
    if k < 0 or not environment().at_most(k, size):
        raise RuntimeError(located(
            f"selected index k out of range: k is {k}, dimension {dim} has size {size}"
        ))
    return return_types.topk(apply(ops.topk, input, k=int(k), dim=along, largest=bool(largest)))


def _some(name: str, x: Tensor, dim: int) -> Any:
    """The size of a dim. Raises IndexError where that is 0."""
    size = shape(x)[dim]
    if isinstance(size, int) and size == 0:
        raise IndexError(located(
            f"{name}(): Expected reduction dim {dim} to have non-zero size."
        ))
    return size


@with_out
@again_of_few
@owns_result
@recorded_as("KthvalueBackward0")
def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """The k-th smallest (from 1) along `dim`, and its index."""
    along = wrap_dim(dim, input.ndim)
    if input.ndim == 0 and k != 1:
        raise RuntimeError(located("kthvalue(): selected number k out of range for dimension 0"))
    if input.ndim == 0:
        zero = filled_beside(input, (), 0, dtypes.i64)
        return return_types.kthvalue(input.clone(), zero)
    size = _some("kthvalue", input, along)
    if input.dtype is dtypes.bool_:
        raise NotImplementedError(located(
            "\"kthvalue_cpu\" not implemented for 'Bool'. Cure: input.to(torch.uint8)"
        ))
    if k < 1 or not environment().at_most(k, size):
        raise RuntimeError(located(
            f"kthvalue(): selected number k out of range for dimension {dim}"
        ))
    index = ranked(input, along, k - 1)
    if index is None:
        order = _sorted(input.detach(), along, False, True)[1]
        index = slice_dim(order, along, k - 1, k).contiguous()
    return return_types.kthvalue(pick(input, index, along, keepdim))


def _middle(x: Tensor, along: int, size: Any, ignore_nan: bool) -> Tensor:
    """Where the middle one of each row is, or its first NaN."""
    order, middle = _sorted(x, along, False, True)[1], (size - 1) // 2
    if not x.dtype.is_float:
        index: Tensor = slice_dim(order, along, middle, middle + 1).contiguous()
        return index
    count = apply(ops.sum, promote.cast(P.isnan(x), dtypes.i64), dims=(along,), keepdim=True)
    size, middle = public_size(size), public_size(middle)
    if ignore_nan:
        place = P.div(P.sub(size - 1, count), 2, rounding_mode="floor")
        place = P.clamp(place, min=0)
    else:  # a NaN, which is sorted last, is the median
        place = P.where(P.gt(count, 0), P.sub(size, count), middle)
    index = apply(ops.gather, order, place, dim=along)
    return index


def _median(name: str, ignore_nan: bool) -> Any:
    struct, title = getattr(return_types, name), name.capitalize()

    def function(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
        if input.dtype is dtypes.bool_:
            raise NotImplementedError(located(f"\"{name}_cpu\" not implemented for 'Bool'"))
        if dim is None:
            if input._graphc_type.elements == 0:
                if input.dtype.is_float:
                    return P.add(input.sum(), float("nan"))
                return constant(np.array(np.iinfo(input.dtype.numpy).min, input.dtype.numpy))
            if not (local.grad and requires_grad(current(input))):
                return function(input.reshape(-1), 0)[0]
            value = _shared(input, function(input.detach().reshape(-1), 0)[0])
            return named(value, f"{title}Backward0")
        along = wrap_dim(dim, input.ndim)
        x = input.reshape(1) if input.ndim == 0 else input
        size = _some(name, x, along)
        index = ranked(x, along, (size - 1) // 2)
        if index is None:
            index = _middle(x.detach(), along, size, ignore_nan)
        values, indices = pick(x, index, along, keepdim and input.ndim > 0)
        return struct(named(values, f"{title}Backward1"), indices)

    function.__name__ = name
    function.__doc__ = "The middle value (the lower of two), or with its index along a dim."
    return with_out(numpy_names(again_of_few(owns_result(function))))


def _shared(x: Tensor, value: Tensor) -> Tensor:
    """`value`, which occurs in x, with a gradient that its places share evenly."""
    detached = x.detach()
    places = P.logical_or(P.eq(detached, value), P.logical_and(P.isnan(detached), P.isnan(value)))
    count = promote.cast(places, x.dtype).sum()
    # finite: exactly value + 0; else the mean of equal infinities or NaNs
    nothing = P.div(P.where(places, P.sub(x, value), 0.0).sum(), count)
    mean = P.div(P.where(places, x, 0.0).sum(), count)
    result: Tensor = P.where(P.isfinite(value), P.add(value, nothing), mean)
    return result


median = _median("median", False)
nanmedian = _median("nanmedian", True)


@beside
@with_out
@numpy_names
@owns_result
@recorded_as("ModeBackward0")
def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """The most frequent value along `dim` (the smallest of equals), and its last index."""
    along = wrap_dim(dim, input.ndim)
    array = concrete_or_zeros(input, "mode()", "call it outside the compiled function")
    if array.ndim == 0:
        return return_types.mode(input.clone(), constant(np.zeros((), np.int64)))
    _some("mode", input, along)
    moved = array if along == array.ndim - 1 else np.moveaxis(array, along, -1)
    found = last_of_most(moved.reshape(-1, moved.shape[-1]))
    index = found.reshape((*array.shape[:along], 1, *array.shape[along + 1 :]))
    return return_types.mode(pick(input, constant(index, fresh=True), along, keepdim))


def _quantile_points(x: Tensor, q: Any) -> Tensor:
    """q as a tensor of x's dtype. What it is inside a compiled function is not looked at."""
    if x.dtype not in (dtypes.f32, dtypes.f64):
        raise RuntimeError(located(
            f"quantile() input tensor must be either float or double dtype, is {x.dtype}"))
    if any(size == 0 for size in shape(x)):
        raise RuntimeError(located("quantile() input tensor must be non-empty"))
    if not isinstance(q, Tensor):
        if not isinstance(q, (int, float)):
            raise TypeError(located(
                f"quantile(): argument 'q' must be Tensor or float, not {type(q).__name__}"))
        if not 0 <= q <= 1:
            raise RuntimeError(located(f"quantile() q must be in the range [0, 1] but got {q}"))
        return promote.operand(float(q), x.dtype)
    if q.ndim > 1:
        raise RuntimeError(located(
            f"quantile() q must be a scalar or 1D tensor, has shape {list(q.shape)}"))
    if q.dtype is not x.dtype:
        raise RuntimeError(located(
            f"quantile() q tensor must be same dtype as the input tensor: {q.dtype}, {x.dtype}"))
    if local.trace is None:
        values = concrete_or_zeros(q, "quantile()", _CURE)
        if not ((values >= 0) & (values <= 1)).all():
            raise RuntimeError(located(
                f"quantile() q values must be in the range [0, 1], are {values.tolist()}"))
    return q


def _quantile(
    input: Tensor, q: Any, dim: int | None, keepdim: bool, interpolation: str, ignore_nan: bool
) -> Tensor:
    x = input.reshape(-1) if dim is None or input.ndim == 0 else input
    along = 0 if dim is None else wrap_dim(dim, x.ndim)
    points = _quantile_points(x, q)
    rank = input.ndim
    values = _sorted(x, along, False, True)[0].movedim(along, -1)
    size = public_size(shape(values)[-1])
    at = P.mul(points.reshape(-1), size - 1)
    if ignore_nan:  # NaN is sorted last: [..., 1] how many numbers each row has
        present = promote.cast(P.logical_not(P.isnan(values)), values.dtype)
        count = present.sum(-1, keepdim=True)
        at = P.mul(points.reshape(-1), P.clamp(P.sub(count, 1), min=0))
    low = P.floor(at)
    choices = {"linear": None, "lower": low, "higher": P.ceil(at), "nearest": P.round(at)}
    if interpolation == "midpoint":
        weight: Any = P.mul(P.ne(at, low), 0.5)
    elif interpolation in choices:
        chosen = choices[interpolation]
        weight = P.sub(at, low) if chosen is None else P.sub(chosen, low)
    else:
        raise RuntimeError(located(
            "quantile() interpolation must be one of linear, lower, higher, midpoint or nearest, "
            f"but got {interpolation}"
        ))
    i = promote.cast(low, dtypes.i64)
    j = P.clamp(P.add(i, 1), max=size - 1)
    if ignore_nan:
        lower, upper = values.gather(-1, i), values.gather(-1, j)
        upper = P.where(P.gt(weight, 0), upper, lower)
    else:
        lower, upper = values.index_select(-1, i), values.index_select(-1, j)
    result = lerp(lower, upper, promote.cast(weight, lower.dtype))
    if not ignore_nan:
        missing = P.isnan(values).any(-1, keepdim=True)
        result = P.where(missing, float("nan"), result)
    result = result.movedim(-1, 0)
    if keepdim:
        result = result.unsqueeze(along + 1) if dim is not None and rank else result.reshape(
            (-1, *(1,) * rank)
        )
    return result if points.ndim else result.squeeze(0)  # type: ignore[no-any-return]


@replayed
@beside
@with_out
@owns_result
def quantile(
    input: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *,
    interpolation: str = "linear",
) -> Tensor:
    """The q-quantiles along `dim` (of all without one), interpolated."""
    return _quantile(input, q, dim, keepdim, interpolation, False)


@replayed
@beside
@with_out
@owns_result
def nanquantile(
    input: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *,
    interpolation: str = "linear",
) -> Tensor:
    """quantile() of what is not NaN."""
    return _quantile(input, q, dim, keepdim, interpolation, True)


# --- unique ------------------------------------------------------------------------------------


@beside
def unique(
    input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The distinct values (or slices of `dim`), sorted; with their inverse and counts if asked."""
    array = concrete(input, "unique()", _CURE)
    axis = None if dim is None else wrap_dim(dim, array.ndim)
    values, inverse, counts = distinct(array, axis, bool(return_inverse), bool(return_counts))
    results = [constant(values)]
    if return_inverse:
        sizes = array.shape if axis is None else (array.shape[axis],)
        results.append(constant(inverse.reshape(sizes).astype(np.int64, copy=False)))
    if return_counts:
        results.append(constant(counts.astype(np.int64, copy=False)))
    return results[0] if len(results) == 1 else tuple(results)


@beside
def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The values without repetitions of the one before."""
    array = concrete(input, "unique_consecutive()", _CURE)
    axis = None if dim is None else wrap_dim(dim, array.ndim)
    rows = array.reshape(-1) if axis is None else np.moveaxis(array, axis, 0)
    count = len(rows)
    changed = np.ones(count, bool)
    if count:
        changed[1:] = (rows[1:] != rows[:-1]).any(tuple(range(1, rows.ndim)))
    kept = rows[changed]
    results = [constant(kept if axis is None else np.moveaxis(kept, 0, axis))]
    if return_inverse:
        inverse = np.cumsum(changed) - 1
        results.append(constant(inverse.reshape(array.shape if axis is None else (count,))))
    if return_counts:
        starts = np.append(np.nonzero(changed)[0], count)
        results.append(constant(np.diff(starts).astype(np.int64)))
    return results[0] if len(results) == 1 else tuple(results)


# --- positions in a sorted sequence, counts ----------------------------------------------------


@with_out
def searchsorted(
    sorted_sequence: Tensor, input: Any, *, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Tensor | None = None,
) -> Tensor:
    """Where each value of `input` belongs in the (last dim of the) sorted sequence."""
    if sorter is None and side is None and not out_int32:
        found = searched_few(sorted_sequence, input, right)
        if found is not None:
            return found
    if side not in (None, "left", "right"):
        raise RuntimeError(
            f"torch.searchsorted(): side can only be 'left' or 'right' but got {side}"
        )
    if right and side == "left":
        raise RuntimeError(
            "torch.searchsorted(): side and right can't be set to opposites, got side of left "
            "while right was True"
        )
    right = right or side == "right"
    edges = sorted_sequence if sorter is None else sorted_sequence.gather(-1, sorter)
    edges, values = (x.detach() for x in promote.operands(edges, input))
    known = searched(edges, values, right)
    if known is not None:
        return promote.cast(known, dtypes.i32) if out_int32 else known
    if edges.ndim > 1:
        if values.ndim != edges.ndim:
            raise RuntimeError(located(
                "torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 "
                "dimensions of boundaries tensor and input value tensor must match"
            ))
        edges = edges.unsqueeze(-2)
    values = values.unsqueeze(-1)
    # counting the edges below is O(n) per value, but it traces and fuses
    below = P.le(edges, values) if right else P.lt(edges, values)
    if edges.dtype.is_float:
        below = P.logical_or(below, P.logical_and(P.isnan(values), P.logical_not(P.isnan(edges))))
    count = apply(
        ops.sum, promote.cast(below, dtypes.i64), dims=(below.ndim - 1,), keepdim=False
    )
    return promote.cast(count, dtypes.i32) if out_int32 else count


@with_out
def bucketize(
    input: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    """The bucket of each value between sorted boundaries."""
    if boundaries.ndim != 1:
        raise RuntimeError(located(
            f"boundaries tensor must be 1 dimension, but got dim({boundaries.ndim})"
        ))
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


@beside
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each non-negative integer occurs (or its summed weights)."""
    array = concrete(input, "bincount()", _CURE)
    if array.dtype.kind not in "iu":
        raise NotImplementedError(located(
            f"\"bincount_cpu\" not implemented for '{promote._name(input.dtype)}'. Cure: .long()"
        ))
    if array.ndim != 1:
        raise RuntimeError(located(
            "bincount only supports 1-d non-negative integral inputs."
        ))
    if array.size and array.min() < 0:
        raise RuntimeError(located("bincount only supports 1-d non-negative integral inputs."))
    if weights is None:
        return constant(np.bincount(array, minlength=minlength).astype(np.int64))
    given = concrete(weights, "bincount()", _CURE)
    found = np.bincount(array, given, minlength)
    return constant(found.astype(np.float32 if given.dtype == np.float32 else np.float64))


@beside
@with_out
def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """Counts in `bins` equal bins between min and max (the data's own where both are equal)."""
    array = concrete_or_zeros(input, "histc()", _CURE)
    if bins <= 0:
        raise RuntimeError(located(
            f"torch.histogram(): bins must be > 0, but got {bins} for dimension 0"
        ))
    low, high = float(min), float(max)
    if low == high and array.size:
        low, high = float(array.min()), float(array.max())
    if low == high:
        low, high = low - 1, high + 1
    if not np.isfinite(low) or not np.isfinite(high):
        raise RuntimeError(located(f"torch.histc: range of [{low:g}, {high:g}] is not finite"))
    if low > high:
        raise RuntimeError(located("torch.histc: max must be larger than min"))
    flat = array.reshape(-1)
    flat = flat[(flat >= low) & (flat <= high)]
    start, width, count = (np.asarray(v, array.dtype) for v in (low, high - low, bins))
    places = ((flat - start) * count / width).astype(np.int64)  # in this order, as torch rounds
    counts = np.bincount(np.minimum(places, bins - 1), minlength=bins)
    return constant(counts.astype(input.dtype.numpy))


_FEW_TESTS = 16  # of which each is compared with each element


@replayed
def _is_any(x: Tensor, tests: Tensor) -> Tensor:
    result: Tensor = P.eq(x.unsqueeze(-1), tests).any(-1)
    return result


@with_out
def isin(
    elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False
) -> Tensor:
    """Whether each element is among the test elements."""
    P.require_one_tensor("isin", elements, test_elements)
    x, tests = as_tensor(elements), as_tensor(test_elements).reshape(-1)
    dtype = promote.result_type(x, tests)
    count = shape(tests)[0]
    if isinstance(count, int) and count > _FEW_TESTS and dtype is not dtypes.bool_ and (
        not dtype.is_complex
    ):
        ordered = sort(promote.cast(tests, dtype)).values
        x = promote.cast(x, dtype)
        found = P.eq(ordered[searchsorted(ordered, x).clamp(max=count - 1)], x)
    else:
        found = _is_any(x, tests)
    return P.logical_not(found) if invert else found
