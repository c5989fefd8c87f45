"""The largest of many, found without sorting the rest, are those that a stable sort has first."""

from __future__ import annotations

import numpy as np

from graphc.backends.numpy import movement


def drawn(rng, kind, shape):
    if kind == "few":
        return rng.integers(-5, 5, shape)
    if kind == "bytes":
        return rng.integers(0, 255, shape).astype(np.uint8)
    x = rng.standard_normal(shape).astype(np.float32)
    if kind == "special":
        for value in (np.nan, np.inf, -0.0, 0.0):
            x[rng.random(shape) < 0.01] = value
    return x


def test_topk_is_what_a_sort_has_first():
    rng = np.random.default_rng(0)
    for trial in range(120):
        kind = ("numbers", "special", "few", "bytes")[trial % 4]
        shape = (*rng.integers(1, 4, trial % 3), int(rng.integers(16, 2000)))
        x = drawn(rng, kind, shape)
        dim = x.ndim - 1
        if trial % 5 == 0:
            x, dim = np.swapaxes(x, 0, -1), 0
        k, largest = int(rng.integers(0, x.shape[dim] // 8 + 1)), bool(trial % 2)
        values, places = movement._topk(x, k=k, dim=dim, largest=largest)
        wanted = np.take(movement._order(x, dim, largest), range(k), dim)
        np.testing.assert_array_equal(places, wanted)
        np.testing.assert_array_equal(values, np.take_along_axis(x, wanted, dim))
