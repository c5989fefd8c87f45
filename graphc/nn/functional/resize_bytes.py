"""Bilinear and bicubic resizing of uint8 images, with torch's (and Pillow's) fixed-point weights.

Weights are rounded to as many bits as 16-bit integers take; columns come first, then rows, and
the result of each is rounded to 8 bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...frontend import functions as T
from ...frontend.dispatch import constant
from ...frontend.tensor import Tensor

_MOST_BITS = 22


def bilinear_weights(size: int, positions: np.ndarray) -> np.ndarray:
    """[count, size]: each position (not below 0) blends the two elements around it."""
    lower = np.minimum(positions.astype(np.int64), size - 1)
    blend = np.clip(positions - lower, 0.0, 1.0)
    return _at(size, [(lower, 1 - blend), (lower + 1, blend)])


def bicubic_weights(size: int, positions: np.ndarray, kernel: Any) -> np.ndarray:
    """[count, size]: four elements; those beyond the border are the ones on it."""
    base = np.minimum(np.floor(positions).astype(np.int64), size - 1)
    parts = kernel(np.clip(positions - base, 0.0, 1.0))
    return _at(size, [(base + k, w) for k, w in zip(range(-1, 3), parts, strict=True)])


def _at(size: int, terms: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    count = terms[0][0].shape[0]
    matrix = np.zeros((count, size))
    for index, weight in terms:
        np.add.at(matrix, (np.arange(count), np.clip(index, 0, size - 1)), weight)
    return matrix


def _fixed(matrix: np.ndarray) -> tuple[np.ndarray, int]:
    """The weights as integers, and how many bits of them are a fraction."""
    largest, bits = float(matrix.max(initial=0)), 0
    while bits < _MOST_BITS and int(0.5 + largest * (1 << (bits + 1))) < 1 << 15:
        bits += 1
    scaled = matrix * (1 << bits)
    return np.trunc(scaled + np.where(scaled < 0, -0.5, 0.5)), bits


def resize_bytes(input: Tensor, rows: np.ndarray, columns: np.ndarray) -> Tensor:
    """[*, H, W] by weights [h, H] of rows and [w, W] of columns; float64 holds it exactly."""
    x = _along(input.double(), columns)
    result: Tensor = _along(x.transpose(-2, -1), rows).transpose(-2, -1).to(T.uint8)
    return result.contiguous()


def _along(x: Tensor, matrix: np.ndarray) -> Tensor:
    weights, bits = _fixed(matrix)
    total = x @ constant(weights).T
    found: Tensor = ((total + (1 << bits >> 1)) / (1 << bits)).floor().clamp(0, 255)
    return found
