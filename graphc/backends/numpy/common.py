"""What every NumPy operator shares: exact result dtypes, and half precision through float32."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]
Function: TypeAlias = Callable[..., Any]

HALF = "eE"  # dtype.char of float16 and of ml_dtypes' bfloat16
F32 = np.dtype(np.float32)
I64 = np.dtype(np.int64)


class Followed:
    """What stands for an array while it is noted what a function does (recorded.py)."""


def as_array(value: Any) -> Array:
    """NumPy turns 0-d results into scalars; operators return arrays."""
    if type(value) is np.ndarray:
        return value
    return value if isinstance(value, Followed) else np.asarray(value)  # type: ignore[return-value]


def as_double(x: Array) -> Array:
    """float64, where an array has that itself."""
    return as_array(x).astype(np.float64, copy=False)


def widen(x: Array) -> Array:
    """float16 and bfloat16 as float32; anything else as it is."""
    return x.astype(F32) if x.dtype.char in HALF else x


def is_float(x: Array) -> bool:
    """True for the four float dtypes (bfloat16's NumPy kind is 'V')."""
    return bool(x.dtype.kind == "f" or x.dtype.char == "E")


def through_f32(function: Function) -> Function:
    """Let a same-dtype function of arrays compute half precision in float32, rounded once."""

    def wrapped(x: Array, *others: Array, **attrs: Any) -> Any:
        if x.dtype.char in HALF:
            dtype = x.dtype
            result = function(x.astype(F32), *(y.astype(F32) for y in others), **attrs)
            return as_array(result).astype(dtype)
        result = function(x, *others, **attrs)
        return result if type(result) is np.ndarray else np.asarray(result)

    wrapped.__dict__["plain"] = function
    return wrapped


def plain(function: Function) -> Function:
    """What a table's function comes to where no operand is of half precision; it may give NumPy's
    scalars."""
    found: Function = function.__dict__.get("plain", function)
    return found


# --- NumPy's warnings ---------------------------------------------------------------------------


def _quietly() -> tuple[Callable[[], Any], Callable[[Any], object]]:
    """What begins, and ends, a stretch of this thread in which NumPy warns of nothing.

    It is what np.errstate(all="ignore") does, in a tenth of the time; that itself, where NumPy
    keeps such settings elsewhere.
    """
    umath = getattr(getattr(np, "_core", None), "umath", None)
    variable = getattr(umath, "_extobj_contextvar", None)
    make = getattr(umath, "_make_extobj", None)
    if variable is None or make is None:
        return _begin_slowly, _end_slowly
    begin, end = partial(variable.set, make(all="ignore")), variable.reset
    token = begin()
    ignored = set(np.geterr().values()) == {"ignore"}
    end(token)
    return (begin, end) if ignored else (_begin_slowly, _end_slowly)


def _begin_slowly() -> Any:
    setting = np.errstate(all="ignore")
    setting.__enter__()
    return setting


def _end_slowly(setting: Any) -> None:
    setting.__exit__()


be_quiet, be_as_before = _quietly()
