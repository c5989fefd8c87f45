"""Ranks and distinct values of many numbers in eager mode, found without a stable order of all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..context import local
from ..dispatch import constant
from ..eager import _wrap
from ..history import requires_grad
from ..near import is_near
from ..replayed import replayed
from ..tensor import Tensor
from ..values import Eager
from ..wrapped import wraps

_MANY = 1 << 10  # elements that are worth it
_FLOATS = {"e": np.float32, "E": np.float32, "f": None, "d": None}  # what they are compared as


def ranked(x: Tensor, dim: int, rank: int) -> Tensor | None:
    """Where in each row the number of this rank (from 0) is, of equals as a stable sort has them;
    `dim` is kept. None: by sorting, as of few numbers, with NaNs, or under a trace."""
    if local.trace is not None or local.counted is not None or x._graphc_trace is not None or (
        not is_near(x)
    ):
        return None
    array = x._graphc_array
    if type(array) is not np.ndarray or array.size < _MANY:
        return None
    kind = array.dtype.char
    if array.dtype.kind not in "iu" and kind not in _FLOATS:
        return None
    rows = np.moveaxis(array, dim, -1)
    wide = _FLOATS.get(kind)
    rows = np.ascontiguousarray(rows if wide is None else rows.astype(wide))
    if kind in _FLOATS and np.isnan(rows).any():
        return None
    places = _places(rows, rank)
    return constant(np.ascontiguousarray(np.moveaxis(places, -1, dim)))


def again_of_few(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is replayed where it does not look for a number of some rank, but sorts."""
    again = replayed(function)

    @wraps(function)
    def wrapper(input: Tensor, *args: Any, **kwargs: Any) -> Any:
        if local.trace is None and isinstance(input, Tensor) and input.numel() < _MANY:
            if not args and not kwargs and (found := _middle_of_few(input)) is not None:
                return found
            return again(input, *args, **kwargs)
        return function(input, *args, **kwargs)

    return wrapper


def _middle_of_few(x: Tensor) -> Tensor | None:
    """The lower middle of all numbers; None: not so plain, or one is NaN."""
    if type(x) is not Tensor or local.counted is not None or Eager.prepare is None or (
        Eager.elsewhere is not None or x._graphc_trace is not None
    ):
        return None
    array = x._graphc_array
    if array.dtype.char not in _SORTED or not array.size or (local.grad and requires_grad(x)):
        return None
    known = array.flatten()
    known.sort(kind="stable")  # of a zero and a negative one, the first
    if known[-1] != known[-1]:
        return None
    middle = (known.size - 1) // 2
    return _wrap(known[middle : middle + 1].reshape(()).copy())


_SORTED = frozenset("fdlihbB")


def _places(rows: np.ndarray, rank: int) -> np.ndarray:
    """[..., 1]: of those equal to the number of a rank, the one behind as many as lack to it."""
    size = rows.shape[-1]
    value = np.partition(rows, rank, -1)[..., rank : rank + 1]
    lacking = rank - np.count_nonzero(rows < value, -1).reshape(-1)
    equal = np.flatnonzero(rows == value)
    first = np.searchsorted(equal, np.arange(0, rows.size, size))
    places: np.ndarray = equal[first + lacking] % size
    return places.reshape(*rows.shape[:-1], 1)


def distinct(array: np.ndarray, axis: int | None, inverse: bool, counts: bool) -> tuple[Any, ...]:
    """np.unique() with those of its three results that are asked for."""
    if axis is None and inverse and array.dtype.char in "bBhHiIlq" and array.size >= _MANY:
        least = int(array.min())
        span = int(array.max()) - least + 1
        if span <= 4 * array.size:
            return _counted(array.reshape(-1), least, span)
    wide = _FLOATS.get(array.dtype.char)
    unique: Any = np.unique
    found = unique(
        array if wide is None else array.astype(wide), return_inverse=inverse,
        return_counts=counts, axis=axis, equal_nan=False,
    )
    parts = iter(found if inverse or counts else (found,))
    values = next(parts).astype(array.dtype, copy=False)
    places = next(parts) if inverse else None
    return values, places, next(parts) if counts else None


def _counted(flat: np.ndarray, least: int, span: int) -> tuple[Any, ...]:
    """Of integers that lie close to each other."""
    away = flat.astype(np.int64) - least
    counts = np.bincount(away, minlength=span)
    present = np.flatnonzero(counts)
    number = np.cumsum(counts > 0) - 1
    return (present + least).astype(flat.dtype), number[away], counts[present]
