"""x[places] = y, x[mask] = y and x[mask] of few numbers: NumPy's own indexing of the array.

This is what the operators come to where nobody records or watches them. What is not so plain, or
wrong, is left to them, before anything is written.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphc.ir.numpy_calls import may_share_memory

from .context import local
from .eager import _wrap, is_plain
from .history import requires_grad
from .near import is_near
from .tensor import Parameter, Tensor
from .values import Eager

FEW = 1 << 16  # numbers; of as many or more, compiled code serves
FEW_ADDED = 1024  # which the operator, too, adds one by one (backends/numpy/indexing.py)
FITS = 6e4  # numbers below which every float dtype has
_NO_NUMBERS = (math.inf, -math.inf)
_PLAIN = frozenset({Tensor, Parameter})


def picked_by_mask(x: Tensor, mask: Any) -> Tensor | None:
    """x[mask], the mask being of x's leading dims; None: not so plain."""
    if (
        Eager.prepare is None or type(x) not in _PLAIN or type(mask) is not Tensor
        or local.trace is not None or local.counted is not None
        or x._graphc_trace is not None or mask._graphc_trace is not None
    ):
        return None
    array, truth = x._graphc_array, mask._graphc_array
    if (
        Eager.elsewhere is not None or truth.dtype.char != "?" or not truth.ndim
        or array.size >= FEW or array.shape[: truth.ndim] != truth.shape
        or not array.flags.c_contiguous or (local.grad and requires_grad(x))
    ):
        return None
    return _wrap(array[truth])


def picked_at(x: Tensor, index: Any) -> Tensor | None:
    """x[i, j] of leading dims and x[:, i], of positions; None: not so plain."""
    if (
        Eager.prepare is None or Eager.elsewhere is not None or type(x) not in _PLAIN
        or local.trace is not None or local.counted is not None or x._graphc_trace is not None
        or type(index) is not tuple or not 1 < len(index) <= 4
    ):
        return None
    array, places = x._graphc_array, []
    along = len(index) == 2 and type(index[0]) is slice and index[0] == _ALL
    for entry in index[1:] if along else index:
        if type(entry) is not Tensor or entry._graphc_trace is not None:
            return None
        part = entry._graphc_array
        if part.dtype.char != "l" or not part.ndim or not part.flags.c_contiguous:
            return None
        places.append(part)
    if len(index) > array.ndim or array.size >= FEW or not array.flags.c_contiguous or (
        local.grad and requires_grad(x)
    ):
        return None
    try:
        if along:
            return _wrap(array.take(places[0], 1))
        found = array[tuple(places)]
    except (IndexError, ValueError):  # the operator says what is wrong
        return None
    return _wrap(found) if found.flags.c_contiguous else None


def scattered_few(x: Tensor, mask: Any, source: Any) -> np.ndarray | None:
    """What masked_scatter() gives of a mask of x's shape; None: not so plain."""
    if Eager.prepare is None or Eager.elsewhere is not None or local.counted is not None or (
        local.trace is not None or type(x) not in _PLAIN or type(mask) is not Tensor
        or type(source) not in _PLAIN or x._graphc_trace is not None
        or mask._graphc_trace is not None or source._graphc_trace is not None
    ):
        return None
    mine, truth, new = x._graphc_array, mask._graphc_array, source._graphc_array
    if mine.size >= FEW or truth.dtype.char != "?" or truth.shape != mine.shape or (
        new.dtype != mine.dtype or not mine.flags.c_contiguous or not mine.ndim
        or (local.grad and (requires_grad(x) or requires_grad(source)))
    ):
        return None
    count = int(np.count_nonzero(truth))
    if count > new.size:
        return None  # the operators say what is wrong
    found = mine.copy()
    found[truth] = new.reshape(-1)[:count]
    return found


def scatter_few(x: Tensor, mask: Any, source: Any) -> bool:
    """x.masked_scatter_(mask, source), the mask being of x's shape; whether that was done."""
    if type(x) not in _PLAIN or x._graphc_trace is not None or not is_plain(x):
        return False
    found = scattered_few(x, mask, source)
    if found is None:
        return False
    np.copyto(x._graphc_array, found)
    x._graphc_storage.version += 1
    return True


_ALL = slice(None)


def write_places(x: Tensor, index: Any, value: Any, add: bool = False) -> bool:
    """x[index] = value, or += with repeated places one by one, the index being positions or a mask
    of leading dims; whether that was done."""
    if Eager.prepare is None or type(x) not in _PLAIN or not is_plain(x):
        return False
    mine = x._graphc_array
    if mine.size >= FEW:
        return False
    entries = index if type(index) is tuple else (index,)
    arrays = []
    for entry in entries:
        if type(entry) is not Tensor or entry._graphc_trace is not None or not is_near(entry):
            return False
        array = entry._graphc_array
        if not array.ndim or may_share_memory(mine, array):
            return False
        arrays.append(array)
    shape = _written(mine, arrays)
    if shape is None:
        return False
    new: Any = value
    if type(value) in _PLAIN:
        new = value._graphc_array
        if (
            value._graphc_trace is not None or not is_near(value) or new.dtype != mine.dtype
            or (new.shape != shape and not spreads(new.shape, shape))
            or may_share_memory(mine, new) or (local.grad and requires_grad(value))
        ):
            return False
    elif mine.dtype.char not in "fd" or not _is_number(value):
        return False
    if add and (mine.dtype.char not in _ADDED or math.prod(shape) > FEW_ADDED):
        return False
    where = arrays[0] if len(arrays) == 1 else tuple(arrays)
    try:
        if add:
            with np.errstate(all="ignore"):
                np.add.at(mine, where, new)
        else:
            mine[where] = new
    except (IndexError, ValueError):  # the operator says what is wrong; nothing is written
        return False
    x._graphc_storage.version += 1
    return True


def fill_few(x: Tensor, mask: Any, value: Any) -> bool:
    """x.masked_fill_(mask, value) of floats and a number, the mask being of x's shape; whether that
    was done."""
    if (
        Eager.prepare is None or type(x) not in _PLAIN or type(mask) is not Tensor
        or mask._graphc_trace is not None or not is_plain(x) or not _is_number(value)
    ):
        return False
    mine, truth = x._graphc_array, mask._graphc_array
    if mine.size >= FEW or truth.dtype.char != "?" or truth.shape != mine.shape or (
        mine.dtype.char not in "fd" or not is_near(mask)
    ):
        return False
    mine[truth] = value
    x._graphc_storage.version += 1
    return True


def _is_number(value: Any) -> bool:
    """Whether it is one that every float dtype has."""
    return type(value) in (int, float) and (
        -FITS < value < FITS or value in _NO_NUMBERS or value != value
    )


_FEW_CLAMPED = 4096


def clamp_few(x: Tensor, min: Any = None, max: Any = None) -> bool:
    """x.clamp_(min, max) of floats between numbers; whether that was done."""
    if Eager.prepare is None or type(x) not in _PLAIN or not is_plain(x):
        return False
    mine = x._graphc_array
    if mine.size >= _FEW_CLAMPED or mine.dtype.char not in "fd" or (min is None and max is None):
        return False
    for bound in (min, max):
        if bound is not None and not _is_number(bound):
            return False
    with np.errstate(all="ignore"):  # as the operator does, from left to right
        if min is not None:
            np.maximum(np.asarray(min, mine.dtype), mine, out=mine)
        if max is not None:
            np.minimum(np.asarray(max, mine.dtype), mine, out=mine)
    x._graphc_storage.version += 1
    return True


_ADDED = frozenset("fdbBhil")  # which are added in their own dtype


def _written(mine: np.ndarray, arrays: list[np.ndarray]) -> tuple[int, ...] | None:
    """The shape of what goes to such places; None where these are none."""
    if not arrays:
        return None
    first = arrays[0]
    if first.dtype.char == "?":
        if len(arrays) > 1 or mine.shape[: first.ndim] != first.shape:
            return None
        return (int(np.count_nonzero(first)), *mine.shape[first.ndim :])
    if len(arrays) > mine.ndim or any(a.dtype.char != "l" for a in arrays):
        return None
    if len(arrays) == 1:
        return first.shape + mine.shape[1:]
    try:
        places = np.broadcast_shapes(*[a.shape for a in arrays])
    except ValueError:
        return None
    return places + mine.shape[len(arrays) :]


def spreads(shape: tuple[int, ...], over: tuple[int, ...]) -> bool:
    """Whether such an array is repeated along that shape."""
    behind = len(over) - len(shape)
    return behind >= 0 and all(
        n in (1, m) for n, m in zip(shape, over[behind:], strict=True)
    )
