"""Order: sort and topk. Both are stable, and NaN is the largest value.

NumPy sorts 64-bit integers many times faster than it finds a stable order. So numbers of 32 bits go
into the upper half of one, and where they stand into the lower: no two are equal then.
"""

from __future__ import annotations

import sys

import numpy as np

from .common import F32, I64, Array, Function, as_array, is_float, widen

_MANY = 1 << 9  # elements that are worth keys
_FEW = 32  # of a row's, that are found one by one


def _keys(rows: Array, descending: bool) -> Array | None:
    """int64 that stand in the order of each row's numbers, with their places in the lower halves;
    None where these are of more than 32 bits, or few."""
    size = rows.shape[-1]
    if rows.size < _MANY or size >= 1 << 31:
        return None
    wide = widen(rows)
    if wide.dtype == F32:
        upper = _ordered_bits(wide)
    elif wide.dtype.kind in "iu" and wide.dtype.itemsize >= 4:
        least = int(wide.min())
        if int(wide.max()) - least >= 1 << 31:
            return None
        upper = (wide - wide.dtype.type(least)).astype(np.int32)
    else:
        return None
    if descending:
        np.invert(upper, upper)
    halves = np.empty((*rows.shape, 2), np.int32)
    little = sys.byteorder == "little"
    halves[..., 0 if little else 1] = np.arange(size, dtype=np.int32)
    halves[..., 1 if little else 0] = upper
    return halves.view(I64)[..., 0]


def _ordered_bits(x: Array) -> Array:
    """int32 in the order of float32: -0.0 is 0.0, and every NaN the largest."""
    bits = np.add(x, F32.type(0)).view(np.int32)
    missing = np.isnan(x)
    if missing.any():
        bits[missing] = 0x7FC00000
    flipped = np.right_shift(bits, 31)
    np.bitwise_and(flipped, 0x7FFFFFFF, flipped)
    return np.bitwise_xor(bits, flipped, bits)


def _places(keys: Array) -> Array:
    found: Array = np.bitwise_and(keys, 0xFFFFFFFF)
    return found


def _rows(x: Array, dim: int) -> Array:
    """With `dim` last, row-major."""
    return np.ascontiguousarray(np.moveaxis(x, dim, -1))


def _back(rows: Array, dim: int) -> Array:
    return np.ascontiguousarray(np.moveaxis(rows, -1, dim))


def _order(x: Array, dim: int, descending: bool) -> Array:
    """Stable argsort along dim."""
    keys = None if x.size < _MANY else _keys(_rows(x, dim), descending)
    if keys is not None:
        keys.sort(-1)
        return _back(_places(keys), dim)
    wide = widen(x)
    if not descending:
        return wide.argsort(dim, "stable")
    around = (*[slice(None)] * (dim % x.ndim), slice(None, None, -1))
    backwards = wide[around].argsort(dim, "stable")[around]
    return as_array(x.shape[dim] - 1 - backwards)


def _first(x: Array, k: int, dim: int, largest: bool) -> Array:
    """The first k of _order."""
    size = x.shape[dim]
    if x.size >= _MANY and 0 < 8 * k <= size and (
        k <= _FEW or 64 * k <= size or widen(x).dtype.itemsize == 8
    ):
        found = _selected(widen(x), k, dim, largest)
        if found is not None:
            return found
    keys = _keys(_rows(x, dim), largest) if 0 < 2 * k <= size and x.size >= _MANY else None
    if keys is None:
        head: list[slice] = [slice(None)] * x.ndim
        head[dim] = slice(0, k)
        return _order(x, dim, largest)[tuple(head)]
    return _back(_places(np.sort(np.partition(keys, k - 1, -1)[..., :k], -1)), dim)


def _taken(x: Array, order: Array, dim: int) -> Array:
    """np.take_along_axis, in one go where rows lie one after the other."""
    if dim % x.ndim != x.ndim - 1 or not x.flags.c_contiguous or 0 in x.shape:
        return np.take_along_axis(x, order, dim)
    size = x.shape[-1]
    firsts = np.arange(0, x.size, size).reshape((*x.shape[:-1], 1))
    found: Array = x.reshape(-1).take(order + firsts)
    return found


def _sort(x: Array, *, dim: int, descending: bool, stable: bool) -> tuple[Array, Array]:
    if x.ndim == 0:
        return x.copy(), np.zeros((), I64)
    order = _order(x, dim, descending)
    return _taken(x, order, dim), order.astype(I64, copy=False)


def _topk(x: Array, *, k: int, dim: int, largest: bool) -> tuple[Array, Array]:
    if x.ndim == 0:
        return x.copy(), np.zeros((), I64)
    order = np.ascontiguousarray(_first(x, k, dim, largest))
    return _taken(x, order, dim), order.astype(I64, copy=False)


def _selected(x: Array, k: int, dim: int, largest: bool) -> Array | None:
    """What _order has first, without sorting the rest; None where NaNs would have to be told
    apart."""
    if k == 1 and largest:
        return np.expand_dims(np.argmax(x, dim), dim)
    rows = np.ascontiguousarray(np.moveaxis(x, dim, -1))
    size = rows.shape[-1]
    bound = _bound(rows, k, largest)
    if bound is None:
        return None
    found = np.flatnonzero(rows >= bound if largest else rows <= bound)
    row, place = np.divmod(found, size)
    counts = np.bincount(row, minlength=rows.size // size)
    if counts.min() < k:
        return None
    values = rows.reshape(-1)[found]
    if largest:  # equals stay in their order
        values = -values if is_float(values) else ~values
    order = np.lexsort((values, row))
    first = np.cumsum(counts) - counts
    positions = place[order[first[:, None] + np.arange(k)]]
    placed: Array = np.moveaxis(positions.reshape(*rows.shape[:-1], k), -1, dim)
    return placed


def _bound(rows: Array, k: int, largest: bool) -> Array | None:
    """For each row a number that at least k of it reach, and few others: of the extremes of its
    parts, the k-th. None where there are NaNs that count as largest."""
    size = rows.shape[-1]
    parts = max(_PARTS, 8 * k)
    extremes = rows
    if size >= 4 * parts:
        whole = size // parts * parts
        stacked = rows[..., :whole].reshape(*rows.shape[:-1], -1, parts)
        extremes = (np.maximum if largest else np.minimum).reduce(stacked, axis=-2)
        if largest and is_float(rows) and np.isnan(rows[..., whole:]).any():
            return None
    if largest and is_float(rows) and np.isnan(extremes).any():
        return None
    at = extremes.shape[-1] - k if largest else k - 1
    bound: Array = np.partition(extremes, at, axis=-1)[..., at : at + 1]
    return bound


_PARTS = 128


TABLE: dict[str, Function] = {"sort": _sort, "topk": _topk}
