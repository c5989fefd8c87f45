"""Copies with something around them are np.pad's."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import graphc as torch
from graphc.backends.numpy.padding import AROUND, padded, with_number

MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}
DTYPES = (np.float32, np.float64, np.int64, np.uint8, ml_dtypes.bfloat16)


def drawn(rng, trial):
    shape = tuple(int(n) for n in rng.integers(2, 14, 1 + trial % 5))
    x = rng.integers(0, 200, shape).astype(DTYPES[trial % len(DTYPES)])
    low, high = (tuple(int(rng.integers(0, n)) for n in shape) for _ in range(2))
    kept = rng.random(len(shape)) < 0.4  # dims that nothing is around
    low, high = (
        tuple(0 if k else a for a, k in zip(each, kept, strict=True)) for each in (low, high)
    )
    views = (x, np.flip(x, -1), np.swapaxes(np.swapaxes(x, 0, -1).copy(), 0, -1))
    return views[trial % 3], low, high


@pytest.mark.parametrize("mode", MODES)
def test_what_lies_inside_again(mode):
    rng = np.random.default_rng(len(mode))
    for trial in range(90):
        x, low, high = drawn(rng, trial)
        wanted = np.pad(x, tuple(zip(low, high, strict=True)), mode=MODES[mode])
        np.testing.assert_array_equal(padded(x, low, high, AROUND[mode]), wanted)


def test_a_number():
    rng = np.random.default_rng(0)
    for trial in range(90):
        x, low, high = drawn(rng, trial)
        wanted = np.pad(x, tuple(zip(low, high, strict=True)), constant_values=x.dtype.type(7))
        np.testing.assert_array_equal(padded(x, low, high, with_number(7)), wanted)


@pytest.mark.parametrize("mode", MODES)
def test_with_and_without_a_history(mode):
    x = torch.randn(2, 3, 9, 10)
    for amounts in ((1, 2, 3, 0), (9, 9, 8, 8), (0, 0, 0, 1), (-1, 2, 0, 0), (0, 0, 0, 0)):
        plain = torch.nn.functional.pad(x, amounts, mode)
        kept = torch.nn.functional.pad(x.clone().requires_grad_(), amounts, mode)
        assert torch.equal(plain, kept.detach())
        assert plain.stride() == kept.stride() and not plain.requires_grad
        assert plain.data_ptr() != x.data_ptr()
