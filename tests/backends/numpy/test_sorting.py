"""sort and topk, by whichever way they are found, give the order of a stable sort, NaN last."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from graphc.backends.numpy import sorting

KINDS = (
    "numbers", "special", "few", "wide", "bytes", "ints", "extremes", "doubles", "halves", "bools",
)


def drawn(rng, kind, shape):
    if kind == "few":
        return rng.integers(-5, 5, shape)
    if kind == "wide":  # more than 32 bits apart
        return rng.integers(-(1 << 40), 1 << 40, shape)
    if kind == "bytes":
        return rng.integers(0, 255, shape).astype(np.uint8)
    if kind == "ints":
        return rng.integers(-(1 << 29), 1 << 29, shape).astype(np.int32)
    if kind == "extremes":
        return rng.choice(np.array([-(1 << 31), -1, 0, (1 << 31) - 1], np.int32), shape)
    if kind == "bools":
        return rng.random(shape) < 0.5
    x = rng.standard_normal(shape).astype(np.float64 if kind == "doubles" else np.float32)
    if kind != "numbers":
        for value in (np.nan, -np.nan, np.inf, -np.inf, -0.0, 0.0):
            x[rng.random(shape) < 0.02] = value
    return x.astype(ml_dtypes.bfloat16) if kind == "halves" else x


def reference(x, dim, descending):
    """Where each of a row stands in order, by comparing all with all."""
    rows = np.moveaxis(x, dim, -1).astype(np.float64)
    order = np.empty(rows.shape, np.int64)
    for at in np.ndindex(rows.shape[:-1]):
        row = rows[at]
        sign = -1 if descending else 1
        missing = np.isnan(row)
        number = np.where(missing, 0, row)
        keys = np.arange(row.size), sign * number, sign * missing
        order[at] = np.lexsort(keys)
    return np.moveaxis(order, -1, dim)


def same_bits(found, wanted):
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    assert found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_sort_and_topk_are_a_stable_order(kind):
    rng = np.random.default_rng(KINDS.index(kind))
    for trial in range(24):
        shape = (*rng.integers(1, 4, trial % 3), int(rng.integers(1, 1500)))
        x = drawn(rng, kind, shape)
        dim = x.ndim - 1
        if trial % 5 == 0:
            x, dim = np.swapaxes(x, 0, -1), 0
        if trial % 7 == 0:
            x = np.flip(x, dim)
        descending = bool(trial % 2)
        wanted = reference(x, dim, descending)
        values, places = sorting._sort(x, dim=dim, descending=descending, stable=True)
        np.testing.assert_array_equal(places, wanted)
        same_bits(values, np.take_along_axis(x, wanted, dim))
        most = x.shape[dim]
        for k in {0, 1, most, int(rng.integers(0, most // 8 + 1)), int(rng.integers(0, most + 1))}:
            values, places = sorting._topk(x, k=k, dim=dim, largest=descending)
            first = np.take(wanted, range(k), dim)
            np.testing.assert_array_equal(places, first)
            same_bits(values, np.take_along_axis(x, first, dim))


def test_few_numbers_are_sorted(monkeypatch):
    """Finding the first of them by themselves takes NumPy ten times as long."""
    monkeypatch.setattr(sorting, "_selected", None)
    x = np.array([[3, np.nan, 1, 1, 7, np.nan, 2, 0] * 4] * 2, np.float32)
    values, places = sorting._topk(x, k=4, dim=1, largest=False)
    np.testing.assert_array_equal(places, [[7, 15, 23, 31]] * 2)
    np.testing.assert_array_equal(values, np.zeros((2, 4)))
