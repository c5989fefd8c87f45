"""Elementwise operators: unary, binary, compare, ternary, cast."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from graphc.ir import dtypes
from graphc.ir.dtypes import DType

from . import special
from .common import F32, HALF, Array, Function, as_array, is_float, through_f32, widen


def _keep_integers(function: Function) -> Function:
    """Rounding functions leave integers and bool as they are (as a new array)."""

    def wrapped(x: Array) -> Array:
        return as_array(function(x)) if is_float(x) else x.copy()

    return through_f32(wrapped)


def _to_bool(function: Function) -> Function:
    def wrapped(x: Array) -> Array:
        return as_array(function(widen(x)))

    wrapped.__dict__["plain"] = function
    return wrapped


def _compare(function: Function) -> Function:
    def wrapped(a: Array, b: Array) -> Array:
        if a.dtype.char in HALF:
            a, b = a.astype(F32), b.astype(F32)
        result = function(a, b)
        return result if type(result) is np.ndarray else np.asarray(result)

    wrapped.__dict__["plain"] = function
    return wrapped


def _relu(x: Array) -> Any:
    zero = x.dtype.type(0)
    # -0.0 stays, as in torch: of equals NumPy's vector code gives the second, its other the first
    return np.maximum(zero, x) if x.dtype.char in "fd" else np.maximum(x, zero)


def _sigmoid(x: Array) -> Any:
    one = x.dtype.type(1)
    return one / (one + np.exp(-x))


def _rsqrt(x: Array) -> Any:
    return x.dtype.type(1) / np.sqrt(x)


def _reciprocal(x: Array) -> Any:
    return x.dtype.type(1) / x


def _sign(x: Array) -> Any:
    if x.dtype.kind == "b":
        return x.copy(order="K")
    if x.dtype.kind == "f":  # NaN gives 0, as in torch
        return np.subtract(x > 0, x < 0, dtype=x.dtype)
    return np.sign(x)


def _neg(x: Array) -> Any:
    return np.negative(x)


# --- division ------------------------------------------------------------------------------


def _check_divisor(a: Array, b: Array) -> None:
    if b.dtype.kind in "iu" and a.size and not b.all():
        raise RuntimeError("ZeroDivisionError")


def _floor_divide(a: Array, b: Array) -> Any:
    _check_divisor(a, b)
    return np.floor_divide(a, b)


def _remainder(a: Array, b: Array) -> Any:
    _check_divisor(a, b)
    found = np.remainder(a, b)
    if not is_float(found):
        return found
    # NumPy gives a zero the divisor's sign, C's fmod (and torch) that of the dividend
    return np.where(found == 0, np.copysign(found, a), found)


def _fmod(a: Array, b: Array) -> Any:
    _check_divisor(a, b)
    return np.fmod(a, b)


def _trunc_divide(a: Array, b: Array) -> Any:
    if a.dtype.kind == "f":
        return np.trunc(a / b)
    _check_divisor(a, b)
    quotient = np.floor_divide(a, b)
    if a.dtype.kind == "u":
        return quotient
    inexact = (quotient * b != a) & ((a < 0) != (b < 0))
    return quotient + inexact.astype(a.dtype)


def _pow(a: Array, b: Array) -> Any:
    if a.dtype.kind == "b":
        return np.logical_or(a, np.logical_not(b))
    if a.dtype.kind == "f":
        return _float_pow(a, b)
    if a.dtype.kind == "c" or b.dtype.kind == "u" or not np.any(b < 0):
        return np.power(a, b)
    # a negative integer power is 0 but for the bases 1 and -1
    positive = np.power(a, np.where(b < 0, 0, b).astype(a.dtype))
    inverse = np.where(a == 1, 1, np.where(a == -1, np.where(b % 2 == 0, 1, -1), 0))
    return np.where(b < 0, inverse.astype(a.dtype), positive)


def _float_pow(a: Array, b: Array) -> Any:
    """C's pow. np.power takes the root where the exponent is one 0.5, which differs from it at
    -inf and -0.0. Of one 2 or 3, products, as torch."""
    if b.ndim == 0 and b in (2, 3):
        return a * a if b == 2 else a * a * a
    result = np.power(a, b)
    half = b == 0.5
    if not half.any():
        return result
    result = np.where(half & (a == 0), a.dtype.type(0), result)
    return np.where(half & np.isneginf(a), a.dtype.type(np.inf), result)


# --- ternary -------------------------------------------------------------------------------


def _where(condition: Array, a: Array, b: Array) -> Array:
    return np.where(condition, a, b)


def _clamp(x: Array, low: Array, high: Array) -> Any:
    return np.minimum(high, np.maximum(low, x))  # -0.0 stays: see _relu


# --- cast ----------------------------------------------------------------------------------


def cast_array(x: Array, dtype: np.dtype[Any]) -> Array:
    """x in another dtype, by the rules of operator `cast` (always a new array)."""
    source = x.dtype
    if source == dtype:
        return x.copy(order="K")  # as torch.clone: a dense layout is kept
    if dtype.kind == "b":
        return as_array(x != 0)
    if source.kind == "c" and dtype.kind != "c":  # the real part, as torch
        return x.real.astype(dtype)
    if dtype.char in HALF and source.char not in HALF and source != F32 and source.kind != "b":
        x = x.astype(F32)  # torch rounds through float32 as well
    if dtype.kind in "iu" and is_float(x):
        wide = widen(x)
        through = dtypes.converted_through(dtypes.from_numpy(dtype))
        if _gives_least(wide.dtype, through.numpy):
            return wide.astype(through.numpy).astype(dtype, copy=False)
        limit = 2.0 ** (through.bits - 1)
        outside = ~(np.abs(wide) < limit)
        if outside.any():
            wide = np.where(outside, -limit, wide)
        return wide.astype(through.numpy).astype(dtype, copy=False)
    return x.astype(dtype)


@functools.cache
def _gives_least(source: np.dtype[Any], to: np.dtype[Any]) -> bool:
    """Whether NumPy's own conversion makes the least integer of what none holds, as x86 does: tried
    on as many numbers as its loops take at a time, and on single ones."""
    wrong = [np.nan, -np.nan, np.inf, -np.inf, 2.0**63, -(2.0**70), 1e30, -1e30]
    least = np.iinfo(to).min
    with np.errstate(all="ignore"):
        tried = [np.array(wrong * 17, source)[first:] for first in range(17)]
        tried += [np.array(value, source) for value in wrong]
        return all(bool((each.astype(to) == least).all()) for each in tried)


def _cast(x: Array, *, dtype: DType) -> Array:
    if 0 in x.strides:  # row-major, where NumPy would go by the strides
        if x.dtype == dtype.numpy:
            return np.array(x, order="C")
        x = np.ascontiguousarray(x)
    return cast_array(x, dtype.numpy)


_UNARY: dict[str, Function] = {
    "neg": _neg, "abs": np.abs, "sign": _sign, "square": np.square, "relu": _relu,
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2,
    "log10": np.log10, "log1p": np.log1p, "sqrt": np.sqrt, "rsqrt": _rsqrt,
    "reciprocal": _reciprocal, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh,
    "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "erf": special.erf, "erfc": special.erfc, "erfinv": special.erfinv,
    "lgamma": special.lgamma, "digamma": special.digamma, "sigmoid": _sigmoid,
    "bitwise_not": np.invert,
}
_ROUNDING: dict[str, Function] = {
    "floor": np.floor, "ceil": np.ceil, "round": np.rint, "trunc": np.trunc,
}
_TO_BOOL: dict[str, Function] = {
    "isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite, "logical_not": np.logical_not,
}
_BINARY: dict[str, Function] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.true_divide,
    "floor_divide": _floor_divide, "remainder": _remainder, "trunc_divide": _trunc_divide,
    "fmod": _fmod, "pow": _pow, "maximum": np.maximum, "minimum": np.minimum, "fmax": np.fmax,
    "fmin": np.fmin, "atan2": np.arctan2, "copysign": np.copysign, "hypot": np.hypot,
    "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor,
    "shift_left": np.left_shift, "shift_right": np.right_shift,
    "logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor,
}
_COMPARE: dict[str, Function] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal,
}

TABLE: dict[str, Function] = {
    **{name: through_f32(f) for name, f in (_UNARY | _BINARY).items()},
    **{name: _keep_integers(f) for name, f in _ROUNDING.items()},
    **{name: _to_bool(f) for name, f in _TO_BOOL.items()},
    **{name: _compare(f) for name, f in _COMPARE.items()},
    "where": _where,
    "clamp": through_f32(_clamp),
    "cast": _cast,
}
