"""Movement operators (views where NumPy can give one), creation, reductions and cumulatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib import stride_tricks

from graphc.ir.dtypes import DType
from graphc.ir.graph import Constant
from graphc.ir.memory import MANY, contiguous

from .common import I64, Array, Function, as_array, through_f32, widen
from .padding import padded, with_number

Ints = Sequence[int]

# --- views ---------------------------------------------------------------------------------


def _reshape(x: Array, *, shape: Ints) -> Array:
    return (contiguous(x) if x.nbytes >= MANY else x).reshape(shape)  # it is seldom a view


def _permute(x: Array, *, dims: Ints) -> Array:
    return x.transpose(dims)


def _expand(x: Array, *, shape: Ints) -> Array:
    view = np.broadcast_to(x, tuple(shape))
    if x.flags.writeable:
        view.flags.writeable = True  # as torch: writes reach x (the frontend refuses overlaps)
    return view


def _slices(starts: Ints, stops: Ints, steps: Ints) -> tuple[slice, ...]:
    return tuple(map(slice, starts, stops, steps))


def _slice(x: Array, *, starts: Ints, stops: Ints, steps: Ints) -> Array:
    return as_array(x[_slices(starts, stops, steps)])


def _strided_view(x: Array, size: Ints, stride: Ints, offset: int) -> Array:
    """A strided window on x's elements in row-major order; x must be contiguous."""
    flat = x.reshape(-1)
    if 0 in size:
        return np.empty(tuple(size), x.dtype)
    last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    if offset < 0 or min(stride, default=0) < 0 or last >= flat.size:
        raise RuntimeError(
            f"as_strided of size {tuple(size)}, stride {tuple(stride)}, offset {offset} "
            f"reaches element {last} of a storage of {flat.size}"
        )
    steps = tuple(s * x.itemsize for s in stride)
    return stride_tricks.as_strided(flat[offset:], tuple(size), steps)


def _as_strided(x: Array, *, size: Ints, stride: Ints, offset: int) -> Array:
    return _strided_view(np.ascontiguousarray(x).reshape(x.shape), size, stride, offset)


# --- copies --------------------------------------------------------------------------------


def _flip(x: Array, *, dims: Ints) -> Array:
    return np.flip(x, tuple(dims)).copy()


def _pad(x: Array, *, low: Ints, high: Ints, interior: Ints, value: Any) -> Array:
    if not any(low) and not any(high) and not any(interior):
        return x.copy()
    if not any(interior) and 0 not in x.shape:
        return padded(x, low, high, with_number(np.asarray(value).astype(x.dtype)))
    shape, where = [], []
    for n, before, after, gap in zip(x.shape, low, high, interior, strict=True):
        body = n + max(n - 1, 0) * gap
        shape.append(before + body + after)
        where.append(slice(before, before + body, gap + 1))
    is_zero = value == 0 and not np.signbit(value)
    result = np.zeros(shape, x.dtype) if is_zero else np.full(shape, value, x.dtype)
    result[tuple(where)] = x
    return result


def _concat(*xs: Array, dim: int) -> Array:
    found = np.concatenate(xs, axis=dim)
    return found if found.flags.c_contiguous else np.ascontiguousarray(found)


def _slice_update(x: Array, source: Array, *, starts: Ints, stops: Ints, steps: Ints) -> Array:
    result = x.copy(order="C")
    result[_slices(starts, stops, steps)] = source
    return result


def _as_strided_update(
    x: Array, source: Array, *, size: Ints, stride: Ints, offset: int
) -> Array:
    result = x.copy(order="C")
    if 0 not in size:
        _strided_view(result, size, stride, offset)[...] = source
    return result


# --- creation ------------------------------------------------------------------------------


def _full(*, shape: Ints, value: Any, dtype: DType) -> Array:
    return np.full(tuple(shape), value, dtype.numpy)


def _iota(*, shape: Ints, dim: int, dtype: DType) -> Array:
    line = np.arange(shape[dim]).astype(dtype.numpy)
    found = np.empty(tuple(shape), dtype.numpy)
    found[...] = line.reshape([-1 if d == dim else 1 for d in range(len(shape))])
    return found


def _const(*, value: Constant) -> Array:
    return value.array


# --- reductions ----------------------------------------------------------------------------


def _reduction(function: np.ufunc) -> Function:
    def wrapped(x: Array, *, dims: Ints, keepdim: bool) -> Array:
        return as_array(
            function.reduce(x, axis=tuple(dims), dtype=x.dtype, keepdims=keepdim)
        )

    return through_f32(wrapped)


def _extremum(function: np.ufunc) -> Function:
    def wrapped(x: Array, *, dims: Ints, keepdim: bool) -> Array:
        if any(x.shape[d] == 0 for d in dims):
            raise IndexError(f"reduction over an empty dimension of shape {x.shape} has no result")
        return as_array(function.reduce(x, axis=tuple(dims), keepdims=keepdim))

    return through_f32(wrapped)


def _arg_extremum(function: Function) -> Function:
    def wrapped(x: Array, *, dim: int, keepdim: bool) -> Array:
        if x.ndim == 0:
            return np.zeros((), I64)
        if x.shape[dim] == 0:
            raise IndexError(f"reduction over the empty dimension {dim} of shape {x.shape}")
        return as_array(function(widen(x), axis=dim, keepdims=keepdim)).astype(I64, copy=False)

    return wrapped


# --- cumulative ----------------------------------------------------------------------------


def _cumulative(function: np.ufunc) -> Function:
    """f32 is carried in f64, halves in f32: roundings add up."""
    wider = {"f": np.float64, "F": np.complex128}

    def accumulated(x: Array, *, dim: int) -> Array:
        if x.ndim == 0:
            return x.copy()
        return as_array(function.accumulate(x, axis=dim, dtype=x.dtype))

    narrow = through_f32(accumulated)

    def wrapped(x: Array, *, dim: int) -> Array:
        held = wider.get(x.dtype.char)
        if held is None or x.ndim == 0:
            return as_array(narrow(x, dim=dim))
        with np.errstate(over="ignore"):
            return as_array(function.accumulate(x, axis=dim, dtype=held).astype(x.dtype))

    return wrapped


def _running_extremum(function: np.ufunc) -> Function:
    def wrapped(x: Array, *, dim: int) -> tuple[Array, Array]:
        """The running extremum and the index of its latest holder (NaN wins from then on)."""
        if x.ndim == 0:
            return x.copy(), np.zeros((), I64)
        wide = widen(x)
        values = function.accumulate(wide, axis=dim)
        line = np.arange(x.shape[dim], dtype=I64)
        line = line.reshape([-1 if d == dim % x.ndim else 1 for d in range(x.ndim)])
        held = wide == values
        if wide.dtype.kind == "f":
            held |= np.isnan(wide)
        indices = np.maximum.accumulate(np.where(held, line, 0), axis=dim)
        return values.astype(x.dtype, copy=False), indices

    return wrapped


TABLE: dict[str, Function] = {
    "reshape": _reshape, "permute": _permute, "expand": _expand, "slice": _slice,
    "as_strided": _as_strided, "flip": _flip, "pad": _pad, "concat": _concat,
    "slice_update": _slice_update, "as_strided_update": _as_strided_update,
    "full": _full, "iota": _iota, "const": _const,
    "sum": _reduction(np.add), "prod": _reduction(np.multiply),
    "amax": _extremum(np.maximum), "amin": _extremum(np.minimum),
    "any": _reduction(np.logical_or), "all": _reduction(np.logical_and),
    "argmax": _arg_extremum(np.argmax), "argmin": _arg_extremum(np.argmin),
    "cumsum": _cumulative(np.add), "cumprod": _cumulative(np.multiply),
    "cummax": _running_extremum(np.maximum), "cummin": _running_extremum(np.minimum),
}

