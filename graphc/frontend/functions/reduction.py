"""Reductions: sums, means, extremes, moments, norms and truth."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.ir import dtypes, ops
from graphc.ir.dim import Dim, product
from graphc.ir.dtypes import DType

from .. import promote
from ..context import local
from ..dispatch import apply, filled_beside
from ..errors import kind_name, located
from ..history import requires_grad
from ..ownership import own, owns_result
from ..replayed import replayed
from ..tensor import Tensor
from . import pointwise as P
from . import return_types
from .arguments import (
    check_dtype,
    named,
    numpy_names,
    recorded_as,
    shape,
    with_out,
    wrap_dim,
    wrap_dims,
)
from .counted import counts_truths

Dims = tuple[int, ...]


def reduce_dims(op: Any, x: Tensor, dims: Dims, keepdim: bool) -> Tensor:
    if type(keepdim) is not bool:
        keepdim = checked_keepdim(op.name, keepdim)
    result: Tensor = apply(op, x, dims=dims, keepdim=keepdim)
    return result


def checked_keepdim(name: str, keepdim: Any) -> bool:
    """A truth that is no Python bool. Raises TypeError for numbers: sum(0, 1) is no sum of two."""
    if not isinstance(keepdim, (bool, np.bool_)):
        raise TypeError(located(
            f"{name}(): argument 'keepdim' must be bool, not {kind_name(keepdim)}. Cure: several "
            "dims are a tuple, (0, 1)"
        ))
    return bool(keepdim)


def _integers_as_long(x: Tensor, dtype: Any) -> Tensor:
    dtype = check_dtype(dtype)
    if dtype is not None:
        return promote.cast(x, dtype)
    return x if x.dtype.differentiable else promote.cast(x, dtypes.i64)


def count_of(x: Tensor, dims: Dims) -> Any:
    """The number of elements along `dims`, an IR size."""
    sizes = shape(x)
    return product(sizes[d] for d in dims)


def size_operand(size: Any, dtype: DType) -> Tensor:
    """An IR size as a 0-d tensor."""
    if isinstance(size, Dim):
        result: Tensor = apply(ops.full, shape=(), value=size, dtype=dtype)
        return result
    return promote.operand(size, dtype)


# --- sums --------------------------------------------------------------------------------------


@counts_truths
@replayed
@with_out
@numpy_names
def sum(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The sum over `dim` (all without one); integers are summed in int64."""
    x = _integers_as_long(input, dtype)
    if x.dtype is dtypes.bool_:  # sums of truths are whether any is true
        return reduce_dims(ops.any, x, wrap_dims(dim, x.ndim), keepdim)
    result = reduce_dims(ops.sum, x, wrap_dims(dim, x.ndim), keepdim)
    return result if dim is None else named(result, "SumBackward1")


@replayed
@with_out
@numpy_names
@recorded_as("NansumBackward0")
def nansum(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The sum with NaN taken as 0."""
    if input.dtype.is_float:
        input = P.where(P.isnan(input), 0.0, input)
    return sum(input, dim, keepdim, dtype=dtype)


@replayed
@with_out
@numpy_names
def mean(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The mean over `dim`. Raises RuntimeError for a dtype that is not a float."""
    x = input if dtype is None else promote.cast(input, checked_dtype(dtype))
    if not x.dtype.differentiable:
        which = "Input dtype" if dtype is None else "Optional dtype"
        raise RuntimeError(located(
            f"mean(): could not infer output dtype. {which} must be either a floating point or "
            f"complex dtype. Got: {promote._name(x.dtype)}"
        ))
    result = _mean(x, wrap_dims(dim, x.ndim), keepdim)
    return named(result, "MeanBackward0" if dim is None else "MeanBackward1")


def checked_dtype(dtype: Any) -> DType:
    found = check_dtype(dtype)
    assert found is not None
    return found


def _mean(x: Tensor, dims: Dims, keepdim: bool) -> Tensor:
    if x.dtype.bits < 32:
        return promote.cast(_mean(promote.cast(x, dtypes.f32), dims, keepdim), x.dtype)
    total = reduce_dims(ops.sum, x, dims, keepdim)
    count = size_operand(count_of(x, dims), x.dtype)
    result: Tensor = apply(ops.div, total, count)
    return result


@replayed
@with_out
@numpy_names
def nanmean(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The mean of what is not NaN."""
    if not input.dtype.differentiable:
        raise RuntimeError(located(f"nanmean(): expected a float or complex, got {input.dtype}"))
    there = P.logical_not(P.isnan(input))
    return P.div(nansum(input, dim, keepdim, dtype=dtype), sum(there, dim, keepdim))


@with_out
@numpy_names
def prod(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The product over `dim`; integers are multiplied in int64."""
    x = _integers_as_long(input, dtype)
    dims = wrap_dims(None, x.ndim) if dim is None else (wrap_dim(dim, x.ndim),)[: x.ndim]
    if x.dtype is dtypes.bool_:  # products of truths are whether all are true
        return reduce_dims(ops.all, x, dims, keepdim)
    result = reduce_dims(ops.prod, x, dims, keepdim)
    return result if dim is None else named(result, "ProdBackward1")


@replayed
@numpy_names
def count_nonzero(input: Tensor, dim: Any = None, *dims: Any) -> Tensor:
    """How many are not 0, int64, over `dim` (and others)."""
    dim = (dim, *dims) if dims else dim
    return sum(promote.cast(P.ne(input, 0), dtypes.i64), dim)


# --- truth -------------------------------------------------------------------------------------


def _truth(name: str, doc: str) -> Any:
    record = getattr(ops, name)

    def function(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
        truth = promote.cast(input, dtypes.bool_)
        # no dims at all are none here, where for sums and extremes they are every one
        dims = () if isinstance(dim, (tuple, list)) and not dim else wrap_dims(dim, input.ndim)
        result = reduce_dims(record, truth, dims, keepdim)
        # torch keeps uint8, the masks of old
        return promote.cast(result, dtypes.u8) if input.dtype is dtypes.u8 else result

    function.__name__ = name
    function.__doc__ = doc
    return replayed(with_out(numpy_names(function)))


any = _truth("any", "Whether any is true over `dim`.")
all = _truth("all", "Whether all are true over `dim`.")


# --- extremes ----------------------------------------------------------------------------------


def _extreme(name: str, doc: str) -> Any:
    record = getattr(ops, name)

    def function(input: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
        if input.dtype is dtypes.bool_:
            found = function(promote.cast(input, dtypes.u8), dim, keepdim)
            return promote.cast(found, dtypes.bool_)
        dims = wrap_dims(dim, input.ndim)
        _require_elements(name, input, dims, dim in ((), None))
        if len(dims) == input.ndim > 0 and input.dtype.is_floating_point and (
            not keepdim and local.grad and requires_grad(input)
        ):  # the gradient is not max()'s: NaN among NaNs
            rows: Tensor = apply(ops.reshape, input, shape=(1, *shape(input)))
            found = reduce_dims(record, rows, tuple([d + 1 for d in dims]), False)
            return named(apply(ops.reshape, found, shape=()), f"{name.capitalize()}Backward0")
        return reduce_dims(record, input, dims, keepdim)

    function.__name__ = name
    function.__doc__ = doc
    return replayed(with_out(numpy_names(function)))


def _require_elements(name: str, x: Tensor, dims: Dims, whole: bool) -> None:
    sizes = shape(x)
    for d in dims:
        if isinstance(sizes[d], int) and sizes[d] == 0:
            if whole:
                raise RuntimeError(located(
                    f"{name}(): Expected reduction dim to be specified for input.numel() == 0. "
                    "Specify the reduction dim with the 'dim' argument."
                ))
            raise IndexError(located(
                f"{name}(): Expected reduction dim {d} to have non-zero size."
            ))


amax = _extreme("amax", "The largest over `dim`; ties share the gradient.")
amin = _extreme("amin", "The smallest over `dim`; ties share the gradient.")


@with_out
@recorded_as("AminmaxBackward0")
def aminmax(input: Tensor, *, dim: Any = None, keepdim: bool = False) -> Any:
    """The smallest and the largest."""
    dim = () if dim is None else dim
    return return_types.aminmax(amin(input, dim, keepdim), amax(input, dim, keepdim))


def _arg(name: str, doc: str) -> Any:
    record = getattr(ops, name)

    def function(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
        if input.dtype is dtypes.bool_:
            raise RuntimeError(located(f"{name}(): does not support bool input"))
        rank = input.ndim
        if dim is None:
            if input._graphc_type.elements == 0:
                raise IndexError(located(
                    f"{name}(): Expected reduction dim to be specified for input.numel() == 0."
                ))
            flat = apply(ops.reshape, input, shape=(input._graphc_type.elements,))
            found: Tensor = apply(record, flat, dim=0, keepdim=False)
            return apply(ops.reshape, found, shape=(1,) * rank) if keepdim else found
        return _arg_along(record, input, wrap_dim(dim, rank), keepdim)

    function.__name__ = name
    function.__doc__ = doc
    return replayed(with_out(numpy_names(function)))


def _arg_along(record: Any, x: Tensor, dim: int, keepdim: bool) -> Tensor:
    if type(keepdim) is not bool:
        keepdim = checked_keepdim(record.name, keepdim)
    if x.ndim == 0:
        zero: Tensor = filled_beside(x, (), 0, dtypes.i64)
        return zero
    result: Tensor = apply(record, x, dim=dim, keepdim=keepdim)
    return result


argmax = _arg("argmax", "The index of the largest; the first of equals.")
argmin = _arg("argmin", "The index of the smallest; the first of equals.")


def pick(input: Tensor, index: Tensor, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    """The values at `index` (which keeps `dim`, of size 1), and the index; both as asked."""
    values = apply(ops.gather, input, index, dim=dim)
    if not keepdim:
        sizes = shape(index)
        rest = sizes[:dim] + sizes[dim + 1 :]
        values = apply(ops.reshape, values, shape=rest)
        index = apply(ops.reshape, index, shape=rest)
    return values, index


def _max_or_min(name: str, arg: Any, record: Any, pairwise: Any) -> Any:
    struct = getattr(return_types, name)
    title = name.capitalize()

    def function(
        input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Any = None
    ) -> Any:
        if other is not None or isinstance(dim, Tensor):
            return pairwise(input, dim if other is None else other)
        if dim is None:
            _require_elements(name, input, tuple(range(input.ndim)), True)
            x = promote.cast(input, dtypes.u8) if input.dtype is dtypes.bool_ else input
            found = reduce_dims(record, x, tuple(range(x.ndim)), False)
            return named(promote.cast(found, input.dtype), f"{title}Backward1")
        if input.ndim == 0:
            wrap_dim(dim, 0)
            return struct(input.clone(), _arg_along(None, input, 0, False))
        if type(keepdim) is not bool:
            keepdim = checked_keepdim(name, keepdim)
        dim = wrap_dim(dim, input.ndim)
        _require_elements(name, input, (dim,), False)
        x = promote.cast(input, dtypes.u8) if input.dtype is dtypes.bool_ else input
        index = apply(arg, x, dim=dim, keepdim=True)
        values, places = pick(input, index, dim, keepdim)
        return struct((named(values, f"{title}Backward0"), places))

    function.__name__ = name
    function.__doc__ = (
        f"{name}(x): over all. {name}(x, dim): (values, indices) along a dim. {name}(x, y): the "
        "elementwise one."
    )
    return replayed(with_out(numpy_names(owns_result(function))))


max = _max_or_min("max", ops.argmax, ops.amax, P.maximum)
min = _max_or_min("min", ops.argmin, ops.amin, P.minimum)


# --- moments -----------------------------------------------------------------------------------


def _moments(
    x: Tensor, dim: Any, unbiased: Any, correction: Any, keepdim: bool, with_mean: bool = False
) -> tuple[Tensor, Tensor]:
    """(variance, mean), with the reduced dims kept as asked: of the mean, if `with_mean`."""
    if isinstance(dim, bool):  # var(x, unbiased)
        dim, unbiased = None, dim
    if type(keepdim) is not bool:
        keepdim = checked_keepdim("var", keepdim)
    if unbiased is not None and not isinstance(unbiased, bool):
        raise TypeError(located(
            f"var(): argument 'unbiased' must be bool, not {kind_name(unbiased)}. Cure: several "
            "dims are a tuple, (0, 1); a number is correction="
        ))
    if not x.dtype.is_float:
        if not x.dtype.is_complex:
            raise RuntimeError(located(
                "std and var only support floating point and complex dtypes"
            ))
        across, along = (
            _moments(part, dim, unbiased, correction, keepdim)[0] for part in (x.real, x.imag)
        )
        return P.add(across, along), mean(x, dim, keepdim)
    if correction is None:
        correction = 1 if unbiased is None else int(unbiased)
    dims = wrap_dims(dim, x.ndim)
    wide = promote.cast(x, dtypes.f32) if x.dtype.bits < 32 else x
    # around a number near the mean, less the square of what that leaves (ops/composite_norm.py)
    near = _mean(wide, dims, True)
    around = P.sub(wide, near)
    left = reduce_dims(ops.sum, around, dims, keepdim)
    rest: Tensor = apply(ops.div, left, size_operand(count_of(x, dims), wide.dtype))
    squares = reduce_dims(ops.sum, P.square(around), dims, keepdim)
    spread = P.sub(squares, P.mul(left, rest))
    spread = P.where(P.lt(spread, P.mul(squares, _NOTHING)), 0.0, spread)
    variance: Tensor = apply(ops.div, spread, _degrees(count_of(x, dims), correction, wide.dtype))
    if with_mean:
        near = near if keepdim else apply(ops.reshape, near, shape=shape(rest))
        near = P.add(near, rest)
    variance = named(promote.cast(variance, x.dtype), "VarBackward0")
    return variance, promote.cast(near, x.dtype)


_NOTHING = 2.0**-20  # of a sum of squares: what rounding alone can leave of a difference


def _degrees(count: Any, correction: Any, dtype: DType) -> Tensor:
    if isinstance(count, int):
        return promote.operand(float(count - correction if count > correction else 0), dtype)
    if isinstance(correction, int) and correction in (0, 1):
        return size_operand(count - correction, dtype)
    return P.clamp(P.sub(size_operand(count, dtype), correction), min=0)


@replayed
@with_out
@numpy_names
def var(
    input: Tensor, dim: Any = None, unbiased: Any = None, keepdim: bool = False,
    *, correction: Any = None,
) -> Tensor:
    """The variance over `dim`, divided by n - correction (1 unless given)."""
    return _moments(input, dim, unbiased, correction, keepdim)[0]


@replayed
@with_out
@numpy_names
def std(
    input: Tensor, dim: Any = None, unbiased: Any = None, keepdim: bool = False,
    *, correction: Any = None,
) -> Tensor:
    """The standard deviation over `dim`."""
    return named(safe_root(_moments(input, dim, unbiased, correction, keepdim)[0]), "StdBackward0")


def safe_root(x: Tensor) -> Tensor:
    """sqrt whose gradient at 0 is 0, as torch's of std and norm."""
    if not (local.grad and requires_grad(x)):
        result: Tensor = P.sqrt(x)
        return result
    zero = P.eq(x, 0)
    result = P.where(zero, 0.0, P.sqrt(P.where(zero, 1.0, x)))
    return result


@replayed
@numpy_names
@owns_result
def var_mean(
    input: Tensor, dim: Any = None, unbiased: Any = None, keepdim: bool = False,
    *, correction: Any = None,
) -> tuple[Tensor, Tensor]:
    """(variance, mean) over `dim`."""
    variance, centre = _moments(input, dim, unbiased, correction, keepdim, True)
    return named(variance, "VarMeanBackward0"), named(centre, "VarMeanBackward0")


@replayed
@numpy_names
@owns_result
def std_mean(
    input: Tensor, dim: Any = None, unbiased: Any = None, keepdim: bool = False,
    *, correction: Any = None,
) -> tuple[Tensor, Tensor]:
    """(standard deviation, mean) over `dim`."""
    variance, centre = _moments(input, dim, unbiased, correction, keepdim, True)
    return named(safe_root(variance), "StdMeanBackward0"), named(centre, "StdMeanBackward0")


# --- exponentials ------------------------------------------------------------------------------


@replayed
@with_out
@numpy_names
@owns_result
def logsumexp(input: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """log(sum(exp(x))) over `dim`, stable."""
    if type(keepdim) is not bool:
        keepdim = checked_keepdim("logsumexp", keepdim)
    if input.dtype.is_complex:  # scaled by the largest real part
        top = amax(input.detach().real, dim, True)
        top = P.where(P.isfinite(top), top, 0.0)
        sums = sum(P.exp(P.sub(input, top)), dim, keepdim)
        return P.add(P.log(sums), top if keepdim else top.reshape(shape(sums)))
    x = input if input.dtype.is_float else promote.cast(input, promote.get_default_dtype())
    dims = wrap_dims(dim, x.ndim)
    if len(dims) == 1:
        result: Tensor = apply(ops.logsumexp, x, dim=dims[0], keepdim=bool(keepdim))
        return result
    if not dims:
        return x.clone()  # type: ignore[no-any-return]
    last = tuple(d for d in range(x.ndim) if d not in dims) + dims
    moved = apply(ops.permute, x, dims=last)
    sizes = shape(moved)
    outer = x.ndim - len(dims)
    rows = apply(ops.reshape, moved, shape=(*sizes[:outer], product(sizes[outer:])))
    result = apply(ops.logsumexp, rows, dim=outer, keepdim=False)
    if keepdim:
        kept = tuple(1 if i in dims else n for i, n in enumerate(shape(x)))
        result = apply(ops.reshape, result, shape=kept)
    return result


def _softmax(name: str) -> Any:
    record = getattr(ops, name)

    def function(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
        x = input if dtype is None else promote.cast(input, checked_dtype(dtype))
        if not x.dtype.is_float:
            raise NotImplementedError(located(
                f'"{name}_lastdim_kernel_impl" not implemented for '
                f"'{promote._name(x.dtype)}'"
            ))
        if x.ndim == 0:
            wrap_dim(dim, 0)
            flat: Tensor = apply(record, x.reshape(1), dim=0)
            return own(flat.reshape(()), ())
        result: Tensor = apply(record, x, dim=wrap_dim(dim, x.ndim))
        return result

    function.__name__ = name
    function.__doc__ = f"{name} along `dim`."
    return replayed(with_out(function))


softmax = _softmax("softmax")
log_softmax = _softmax("log_softmax")

FUNCTIONS = (
    "sum nansum mean nanmean prod count_nonzero any all amax amin aminmax argmax argmin max min "
    "var std var_mean std_mean logsumexp softmax log_softmax"
)
