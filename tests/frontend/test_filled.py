"""Tensors of one number, and of numbers in equal steps: what is quick has the bits of what is
not."""

import math
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc.frontend.functions import ranges

DTYPES = [torch.float32, torch.float64, torch.int64, torch.bool, torch.float16, torch.bfloat16]
NUMBERS = [2.0, 1, 3, -1.5, 0.1, 0.0, -0.0, 0, math.nan, math.inf, 1e30, True, 2**24 + 1]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_full_like_is_full(dtype: Any) -> None:
    x = torch.rand(3, 2)
    for number in [*NUMBERS, *reversed(NUMBERS)]:
        try:
            want = torch.full((3, 2), number, dtype=dtype)
        except RuntimeError:  # it does not fit
            with pytest.raises(RuntimeError):
                torch.full_like(x, number, dtype=dtype)
            continue
        found = torch.full_like(x, number, dtype=dtype)
        assert found.dtype is dtype and found.tolist().__repr__() == want.tolist().__repr__()
    assert torch.full_like(x, 2.0) is not torch.full_like(x, 2.0)


@pytest.mark.parametrize("count", [1 << 18, (1 << 18) + 1, (1 << 20) + 8191])
def test_many_numbers_are_filled_to_the_last(count: int) -> None:
    for dtype in (torch.float32, torch.float64, torch.int16, torch.uint8):
        found = torch.full((8 * count,) if dtype is torch.uint8 else (2, count), 3, dtype=dtype)
        assert bool((found == 3).all())


def _spaced(low: Any, high: Any, steps: int, kind: np.dtype) -> np.ndarray:
    """As torch makes them: from the first forwards, from the last backwards."""
    low, high = kind.type(low), kind.type(high)
    step = kind.type((high - low) / kind.type(max(steps - 1, 1)))
    half = steps // 2
    forth = low + step * np.arange(half, dtype=kind)
    back = high - step * np.arange(steps - half - 1, -1, -1, dtype=kind)
    return np.concatenate([forth, back])


@pytest.mark.parametrize("kind", [np.dtype(np.float32), np.dtype(np.float64)], ids=str)
def test_few_steps_have_the_bits_of_many(kind: np.dtype) -> None:
    ends = [0.0, -0.0, 1.0, -2.0, 0.1, 4.7, 1e-40, 3e30]
    for steps in range(2, 70):
        for low in ends:
            for high in ends:
                found = ranges._spaced(low, high, steps, kind)
                assert found.tobytes() == _spaced(low, high, steps, kind).tobytes()
                found += 1  # nobody else has its memory
