"""Functions of the table with their attributes and types bound, where that saves work at each
call; not for half precision. They give the table's bits, and may give NumPy's scalars."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from graphc.backends.host import allocator
from graphc.ir.dtypes import DType, rounded
from graphc.ir.types import TensorType

from . import bound_attention, bound_losses, bound_windows
from .common import I64, Array, Function, plain
from .elementwise import TABLE as ELEMENTWISE
from .indexing import TABLE as INDEXING
from .sorting import TABLE as SORTING

Types = Sequence[TensorType]
# (array, axis, dtype, out, keepdims): by position, as the stubs do not know
_PEAK: Any = np.maximum.reduce
_TOTAL: Any = np.add.reduce
Make = Callable[..., Function | None]  # (types, **attrs): None: the table's function is as good


def _number(value: float, types: Types) -> Array:
    """A number as an operand: NumPy takes an array without dims faster than its own numbers."""
    return rounded(value, types[0].dtype)


# --- reductions ----------------------------------------------------------------------------------


def _reduction(ufunc: np.ufunc) -> Make:
    def make(types: Types, *, dims: Sequence[int], keepdim: bool) -> Function:
        reduce: Any = ufunc.reduce
        axes = tuple(dims)
        axis: Any = axes[0] if len(axes) == 1 else axes
        dtype = types[0].dtype.numpy
        if len(axes) == len(types[0].shape) and not keepdim:  # NumPy would make a scalar
            empty = np.empty  # and is told of all axes in less time than of each
            return lambda x: reduce(x, None, dtype, empty((), dtype))
        if keepdim:
            return lambda x: reduce(x, axis, dtype, None, True)
        return lambda x: reduce(x, axis, dtype)

    return make


def _extremum(ufunc: np.ufunc) -> Make:
    plain = _reduction(ufunc)

    def make(types: Types, *, dims: Sequence[int], keepdim: bool) -> Function | None:
        if any(types[0].shape[d] == 0 for d in dims):
            return None
        return plain(types, dims=dims, keepdim=keepdim)

    return make


def _argument(name: str) -> Make:
    def make(types: Types, *, dim: int, keepdim: bool) -> Function | None:
        if not types[0].shape or types[0].shape[dim] == 0 or types[0].dtype.is_complex:
            return None
        find = operator.methodcaller(name, dim, keepdims=True) if keepdim else (
            operator.methodcaller(name, dim)
        )
        return find if np.dtype(np.intp) == I64 else None

    return make


# --- one element at a time -----------------------------------------------------------------------


def _relu(types: Types) -> Function:
    maximum, zero = np.maximum, _number(0, types)
    if types[0].dtype.numpy.char in "fd":
        return lambda x: maximum(zero, x)
    return lambda x: maximum(x, zero)


def _sigmoid(types: Types) -> Function:
    one = _number(1, types)
    negative, exp, add, divide = np.negative, np.exp, np.add, np.true_divide

    def run(x: Array) -> Any:
        e = negative(x)
        if type(e) is not np.ndarray:
            return one / (one + exp(e))
        return divide(one, add(one, exp(e, e), e), e)

    return run


def _pow(types: Types) -> Function | None:
    """By one exponent: what elementwise.py does, which asks a float of Python's for less."""
    if types[0].dtype.numpy.char not in "fd" or types[1].shape:
        return None
    multiply, power, slow = np.multiply, np.power, plain(ELEMENTWISE["pow"])

    def run(x: Array, exponent: Array) -> Any:
        number = exponent.item()
        if number == 2:
            return multiply(x, x)
        if number == 0.5:
            return slow(x, exponent)
        if number != 3:
            return power(x, exponent)
        square = multiply(x, x)
        return multiply(square, x, square) if type(square) is np.ndarray else square * x

    return run


def _cast(types: Types, *, dtype: DType) -> Function | None:
    """A copy; or between real dtypes to a float that is not of half precision."""
    kind, source = dtype.numpy, types[0].dtype.numpy
    large = math.prod(types[0].static_shape) * kind.itemsize >= allocator.LARGE
    if source == kind:
        with_strides = partial(ELEMENTWISE["cast"], dtype=dtype)
        if large:
            return _kept_at_hand(types[0], dtype, with_strides)
        return lambda x: x.copy() if x.flags.c_contiguous else with_strides(x)
    if kind.char == "?" and not types[0].dtype.is_complex:
        differs, zero = np.not_equal, _number(0, types)
        return lambda x: differs(x, zero)
    counts = kind.kind in "iu" and source.kind in "iub"  # which wrap
    if not (kind.char in "fd" or (large and counts)) or types[0].dtype.is_complex:
        return None
    plain = operator.methodcaller("astype", kind)
    return _kept_at_hand(types[0], dtype, plain) if large else plain


def _kept_at_hand(given: TensorType, dtype: DType, otherwise: Function) -> Function:
    """A copy in `dtype` of what is row-major, in memory that the allocator keeps at hand, where
    registers lie in one line of the caches each; `otherwise` of what is not."""
    sizes, kind = given.static_shape, dtype.numpy

    def copied(x: Array) -> Any:
        if not x.flags.c_contiguous:
            return otherwise(x)
        found: Array = allocator.empty(sizes, kind)
        np.copyto(found, x, "unsafe")
        return found

    return copied


def _full(types: Types, *, shape: Sequence[int], value: Any, dtype: DType) -> Function | None:
    sizes, kind = tuple(shape), dtype.numpy
    if dtype.is_complex:
        return None
    large = math.prod(sizes) * kind.itemsize >= allocator.LARGE
    if value == 0 and not (dtype.is_float and math.copysign(1.0, value) < 0):
        return partial(allocator.zeros if large else np.zeros, sizes, kind)
    with np.errstate(all="ignore"):
        number = np.empty((), kind)
        number.fill(value)

    def run() -> Array:
        found = np.empty(sizes, kind)
        found.fill(number)
        return found

    def run_large() -> Array:
        found = allocator.empty(sizes, kind)
        flat = found.reshape(-1)
        width = _LINE // kind.itemsize
        rows = flat.size // width
        lines, rest = flat[: rows * width].reshape(rows, width), flat[rows * width :]
        lines[0].fill(number)
        np.copyto(lines[1:], lines[0])
        np.copyto(rest, lines[0, : rest.size])
        return found

    return run_large if large else run


_LINE = 1 << 13  # bytes that are copied to what is filled: in half the time of number by number


_FEW = 4096  # elements of which a copy is kept


def _iota(types: Types, *, shape: Sequence[int], dim: int, dtype: DType) -> Function | None:
    if len(shape) != 1:
        return None
    if shape[0] > _FEW:
        if dtype.numpy.char not in "lqfd":
            return None
        return partial(np.arange, shape[0], dtype=dtype.numpy)
    kept = np.arange(shape[0]).astype(dtype.numpy)
    return kept.copy


# --- rows ----------------------------------------------------------------------------------------


def _softmax(types: Types, *, dim: int) -> Function | None:
    if types[0].shape[dim] == 0 or len(types[0].shape) == 0:
        return None
    peak, total = _PEAK, _TOTAL
    subtract, exp, divide = np.subtract, np.exp, np.true_divide

    def run(x: Array) -> Any:
        e = subtract(x, peak(x, dim, None, None, True))
        exp(e, e)
        return divide(e, total(e, dim, None, None, True), e)

    return run


def _log_softmax(types: Types, *, dim: int) -> Function | None:
    if types[0].shape[dim] == 0 or len(types[0].shape) == 0:
        return None
    peak, total = _PEAK, _TOTAL
    subtract, exp, log = np.subtract, np.exp, np.log

    def run(x: Array) -> Any:
        away = subtract(x, peak(x, dim, None, None, True))
        sums = total(exp(away), dim, None, None, True)
        subtract(away, log(sums, sums), away)
        return away

    return run


def _layer_norm(types: Types, *, normalized_dims: Sequence[int], eps: float) -> Function | None:
    shape, axes = types[0].shape, tuple(normalized_dims)
    if len(axes) != 1 or not shape or any(t.dtype is not types[0].dtype for t in types):
        return None
    count, one = _number(shape[axes[0]], types), _number(1, types)  # type: ignore[arg-type]
    small, axis, total = _number(eps, types), axes[0], _TOTAL

    def run(x: Array, *parameters: Array) -> Array:
        mean = total(x, axis, None, None, True)
        np.true_divide(mean, count, mean)
        y = np.subtract(x, mean)
        left = total(y, axis, None, None, True)  # which rounding has kept out of the mean
        np.true_divide(left, count, left)
        np.subtract(y, left, y)
        variance = total(y * y, axis, None, None, True)
        np.true_divide(variance, count, variance)
        np.add(variance, small, variance)
        y *= np.true_divide(one, np.sqrt(variance, variance), variance)
        if parameters:
            y *= parameters[0]
        if len(parameters) > 1:
            y += parameters[1]
        found: Array = y
        return found

    return run


_DOT: Function = np.ndarray.dot


def _dot_turned(a: Array, b: Array) -> Any:
    return _DOT(a, b.T)


# products of two matrices, which are row-major
PRODUCTS = (_DOT, _dot_turned)


def _dot_general(
    types: Types, *, batch_a: Sequence[int], batch_b: Sequence[int], contract_a: Sequence[int],
    contract_b: Sequence[int], tf32: bool = False,
) -> Function | None:
    """Over one dim of each, the first's last: of vectors, of matrices (the second may be turned, as
    a layer's weight is), of rows in several dims with a matrix, of pairs of matrices."""
    ranks, batch = [len(t.shape) for t in types], tuple(range(len(batch_a)))
    summed: Any = tuple(contract_b)
    if tf32 or tuple(contract_a) != (ranks[0] - 1,) or not types[0].dtype.is_float:
        return None
    product: Function = np.matmul
    if batch:
        if (tuple(batch_a), tuple(batch_b)) != (batch, batch) or ranks != [len(batch) + 2] * 2:
            return None
        if len(batch) > 1:
            product = partial(np.matmul, order="C")  # or batches lie as the operands' do
        if summed == (ranks[1] - 1,):
            return lambda a, b: product(a, b.swapaxes(-1, -2))
        return product if summed == (ranks[1] - 2,) else None
    if batch_b or ranks[0] == 0 or ranks[1] not in (1, 2) or len(summed) != 1:
        return None
    *lead, inner = types[0].shape
    turned = summed == (1,)
    sizes: Any = (math.prod(lead), inner, *types[1].shape)
    if ranks[1] == 2 and min(sizes) > 1:
        product = _DOT  # which asks BLAS for the same at once
        if ranks[0] == 2:
            return _dot_turned if turned else _DOT
    if ranks == [2, 2]:
        return (lambda a, b: product(a, b.T)) if turned else product
    rows: Any = (math.prod(lead), inner)
    if ranks[1] == 1:
        column, left = (inner, 1), tuple(lead)
        return lambda a, b: product(a.reshape(rows), b.reshape(column)).reshape(left)
    every: Any = (*lead, types[1].shape[1 - summed[0]])
    return lambda a, b: product(a.reshape(rows), b.T if turned else b).reshape(every)


# --- lookups -------------------------------------------------------------------------------------


def _index(types: Types, *, dim: int, subject: str = "") -> Function | None:
    """By one tensor of positions: NumPy wraps the same ones, and refuses the same."""
    if len(types) != 2 or subject or not types[1].shape:
        return None
    slow = INDEXING["index"]

    def run(x: Array, positions: Array) -> Any:
        try:
            return x.take(positions, dim)
        except IndexError:  # to be said in torch's words
            return slow(x, positions, dim=dim)

    return run


_ASKED_ONE_BY_ONE = 64  # positions, of which a list's smallest is found before a ufunc has begun


def _within(count: int, size: Any) -> Callable[[Array], bool]:
    """Whether so many positions all lie in [0, size)."""
    if count <= _ASKED_ONE_BY_ONE:

        def few(positions: Array) -> bool:
            known = positions.ravel().tolist()
            return bool(min(known) >= 0 and max(known) < size)

        return few
    highest, most = _PEAK, np.uint64(size)
    return lambda positions: bool(highest(positions.view(np.uint64), None) < most)


def _gather(types: Types, *, dim: int, subject: str = "") -> Function | None:
    shape: Any = types[1].shape
    if subject or not shape or len(types[0].shape) != len(shape) or (
        0 in shape or 0 in types[0].shape
    ):
        return None
    own: Any = types[0].shape
    fits, slow = _within(math.prod(shape), own[dim]), INDEXING["gather"]
    axes = range(len(shape))
    if dim == len(shape) - 1 and own[:dim] == shape[:dim]:
        # rows of the one, by rows of the other
        firsts = (np.arange(math.prod(shape[:dim])) * own[dim]).reshape((*shape[:dim], 1))

        def of_rows(x: Array, positions: Array) -> Any:
            if not fits(positions):
                return slow(x, positions, dim=dim)
            return x.reshape(-1).take(positions + firsts)

        return of_rows
    places: list[Any] = [
        np.arange(n).reshape([-1 if e == d else 1 for e in axes]) for d, n in enumerate(shape)
    ]

    def run(x: Array, positions: Array) -> Any:
        if not fits(positions):
            return slow(x, positions, dim=dim)
        return x[(*places[:dim], positions, *places[dim + 1 :])]

    return run


# --- order ---------------------------------------------------------------------------------------


SORTED_WHOLE = 512  # numbers of which the first are found by sorting all (sorting.py)


def _topk(types: Types, *, k: int, dim: int, largest: bool) -> Function | None:
    shape: Any = types[0].shape
    dtype, count = types[0].dtype, math.prod(shape)
    if not shape or dim != len(shape) - 1 or not 0 < count < SORTED_WHOLE or k == 0 or not (
        dtype.is_float or dtype.is_integer
    ):
        return None
    size = shape[-1]
    firsts = np.arange(0, count, size).reshape((*shape[:-1], 1))
    turned, floats = (np.negative if dtype.is_float else np.invert), dtype.is_float
    slow, peak = SORTING["topk"], _PEAK

    def run(x: Array) -> Any:
        if largest and floats:
            highest = peak(x, None)
            if highest != highest:  # NaN is the largest
                return slow(x, k=k, dim=dim, largest=largest)
        order = (turned(x) if largest else x).argsort(-1, "stable")[..., :k]
        return x.reshape(-1).take(order + firsts), order.copy()

    return run


# --- joining -------------------------------------------------------------------------------------


def _concat(types: Types, *, dim: int) -> Function | None:
    if len(types[0].shape) in (4, 5):  # which may be channels_last
        return None
    join, straight = np.concatenate, np.ascontiguousarray
    (sizes, *others), kind = [t.static_shape for t in types], types[0].dtype.numpy
    along = sizes[dim] + sum([other[dim] for other in others])
    if math.prod(sizes) // max(sizes[dim], 1) * along * kind.itemsize >= allocator.LARGE:
        whole = (*sizes[:dim], along, *sizes[dim + 1 :])
        return lambda *xs: join(xs, dim, allocator.empty(whole, kind))

    def run(*xs: Array) -> Array:
        found = join(xs, dim)
        return found if found.flags.c_contiguous else straight(found)

    return run


TABLE: dict[str, Make] = {
    "sum": _reduction(np.add), "prod": _reduction(np.multiply),
    "any": _reduction(np.logical_or), "all": _reduction(np.logical_and),
    "amax": _extremum(np.maximum), "amin": _extremum(np.minimum),
    "argmax": _argument("argmax"), "argmin": _argument("argmin"), "cast": _cast, "pow": _pow,
    "concat": _concat, "relu": _relu, "sigmoid": _sigmoid, "full": _full, "iota": _iota,
    "softmax": _softmax, "log_softmax": _log_softmax, "layer_norm": _layer_norm,
    "topk": _topk, "index": _index, "gather": _gather, "dot_general": _dot_general,
    "cross_entropy": bound_losses.cross_entropy, "nll_loss": bound_losses.nll_loss,
    "attention": bound_attention.attention,
    "max_pool": bound_windows.max_pool, "conv": bound_windows.conv,
    "window_sum": bound_windows.window_sum,
}
