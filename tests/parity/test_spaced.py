"""linspace() has PyTorch's values to the last bit: where a range crosses 0, and where its values
are cut to integers, one bit is a visible difference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import graphc

ENDS = [(-2, 3), (0, 1), (-1, 1), (0.1, 0.7), (5, -5), (1e-4, 0.02), (-7, 13), (0, 99)]
COUNTS = [1, 2, 3, 7, 8, 12, 31, 64, 65, 100, 1000]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int32", "int64"])
def test_every_bit_is_torchs(dtype: str) -> None:
    def made(t: Any, low: float, high: float, count: int) -> np.ndarray:
        values: np.ndarray = t.linspace(low, high, count, dtype=getattr(t, dtype)).double().numpy()
        return values

    for low, high in ENDS:
        for count in COUNTS:
            expected = made(torch, low, high, count)
            np.testing.assert_array_equal(made(graphc, low, high, count), expected)


def test_what_is_too_large_is_infinite_as_in_torch() -> None:
    for low, high in [(-1e308, 1e308), (0, 1.7e308), (-1.7e308, 1.7e308)]:
        expected = torch.linspace(low, high, 5, dtype=torch.float64).numpy()
        found = graphc.linspace(low, high, 5, dtype=graphc.float64).numpy()
        np.testing.assert_array_equal(found, expected)
