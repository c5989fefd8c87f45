"""Filters as wide as what one output covers, for resizing with antialias=True."""

from __future__ import annotations

from typing import Any

import numpy as np

# how far each kernel reaches, in inputs (outputs where those are fewer)
_REACH = {"bilinear": 1.0, "bicubic": 2.0, "lanczos": 3.0}


def smooth_weights(size: int, count: int, scale: Any, mode: str, real: Any) -> np.ndarray:
    """Weights [count, size], each row's sum 1."""
    reach = _REACH[mode] * max(float(scale), 1.0)
    shrink = 1.0 / scale if scale >= 1.0 else 1.0
    matrix = np.zeros((count, size), real)
    for i in range(count):
        centre = scale * (i + 0.5)
        first = max(int(centre - reach + 0.5), 0)
        last = min(int(centre + reach + 0.5), size)
        x = np.abs((np.arange(first, last) - centre + 0.5) * shrink).astype(real)
        weights = _KERNELS[mode](x)
        total = weights.sum()
        matrix[i, first:last] = weights / total if total else weights
    return matrix


def _linear(x: np.ndarray) -> np.ndarray:
    return np.maximum(1 - x, 0)


def _cubic(x: np.ndarray, a: float = -0.5) -> np.ndarray:
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((x - 5) * x + 8) * x * a - 4 * a
    return np.where(x < 1, near, np.where(x < 2, far, 0))


def _lanczos(x: np.ndarray) -> np.ndarray:
    """sinc(x) sinc(x / 3) within 3."""
    return np.where(x < 3, np.sinc(x) * np.sinc(x / 3), 0)


_KERNELS = {"bilinear": _linear, "bicubic": _cubic, "lanczos": _lanczos}
