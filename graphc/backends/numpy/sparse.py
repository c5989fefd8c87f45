"""A sparse matrix times a dense one: rows are sums of runs of rows that are taken."""

from __future__ import annotations

import numpy as np

from .common import Array, Function, be_as_before, be_quiet, widen
from .indexing import subscript

_MOST = 1 << 16  # numbers that are taken at a time


def _require_below(index: Array, size: int) -> None:
    """Raise IndexError for a position outside 0 .. size - 1."""
    if index.size and (index.min() < 0 or index.max() >= size):
        bad = index[(index < 0) | (index >= size)][0]
        raise IndexError(f"index {bad} is out of bounds for dimension 0 with size {size}")


def _walked(ends: Array, order: Array) -> tuple[Array, Array]:
    """How many entries each row has, and the entries, row by row."""
    lengths = np.diff(ends, prepend=0)
    bad = (lengths < 0) | (ends > order.size)
    if bad.any():
        raise IndexError(f"a row of a sparse matrix ends at {ends[bad][0]}")
    walked = order[: int(ends[-1])] if ends.size else order[:0]
    _require_below(walked, order.size)
    return lengths, walked


def _sparse_product(
    values: Array, dense: Array, rows: Array, columns: Array, ends: Array, order: Array,
    *others: Array,
) -> Array:
    if not (values.size and dense.size):  # nothing is looked up
        return np.zeros((ends.size, dense.shape[1]), dense.dtype)
    lengths, walked = _walked(ends, order)
    along = columns[walked]
    _require_below(along, dense.shape[0])
    dtype, width = dense.dtype, dense.shape[1]
    factors, wide = widen(values)[walked, None], widen(dense)
    result = np.zeros((ends.size, width), wide.dtype)
    filled = np.flatnonzero(lengths)
    if not filled.size:
        return result.astype(dtype, copy=False)
    begins = (ends - lengths)[filled]
    # runs of whole rows, so many that what is taken stays small
    step = max(1, _MOST // width)
    cuts = np.unique(np.searchsorted(begins, np.arange(0, along.size, step), "right") - 1)
    token = be_quiet()
    try:
        for first, last in zip(cuts, [*cuts[1:], filled.size], strict=True):
            low = begins[first]
            high = begins[last] if last < filled.size else along.size
            part = factors[low:high] * wide[along[low:high]]
            starts = begins[first:last] - low
            result[filled[first:last]] = np.add.reduceat(part, starts, 0, dtype=wide.dtype)
    finally:
        be_as_before(token)
    return result.astype(dtype, copy=False)


def _sparse_sampled(
    left: Array, right: Array, rows: Array, columns: Array, *walks: Array
) -> Array:
    subscript(left, (rows,), 0)  # negative positions count from the end, as in any index
    subscript(right, (columns,), 0)
    dtype, a, b = left.dtype, widen(left), widen(right)
    result = np.empty(rows.size, a.dtype)
    step = max(1, _MOST // max(left.shape[1], 1))
    token = be_quiet()
    try:
        for low in range(0, rows.size, step):
            part = slice(low, low + step)
            result[part] = (a[rows[part]] * b[columns[part]]).sum(1, dtype=a.dtype)
    finally:
        be_as_before(token)
    return result.astype(dtype, copy=False)


TABLE: dict[str, Function] = {
    "sparse_product": _sparse_product, "sparse_sampled": _sparse_sampled,
}
