"""Test records of products of sparse matrices; what users write: tests/sparse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from graphc.ir.dtypes import DType
from tests.opinfo_core import NUMBERS, RNG, Sample, draw, record, torch

# entries, rows, columns, width, whether somebody has said how columns are walked
_CASES = (
    (12, 5, 4, 3, True), (7, 3, 6, 1, False), (1, 1, 1, 2, True), (0, 3, 2, 4, True),
    (9, 2, 3, 70, True), (30, 1, 4, 5, True), (6, 4, 1, 17, False),
)


def _walk(lines: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    return np.cumsum(np.bincount(lines, minlength=count)), np.argsort(lines, kind="stable")


def _places(rng: RNG, case: tuple[int, int, int, int, bool]) -> Iterator[np.ndarray]:
    entries, rows, columns, _, both = case
    lines = rng.integers(0, rows, entries), rng.integers(0, columns, entries)
    yield from lines
    yield from _walk(lines[0], rows)
    if both:
        yield from _walk(lines[1], columns)


def product_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    for case in _CASES:
        entries, _, columns, width, _ = case
        operands = draw(rng, dtype, (entries,), -2, 2), draw(rng, dtype, (columns, width), -2, 2)
        yield Sample((*operands, *_places(rng, case)))


def sampled_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    for case in _CASES:
        _, rows, columns, width, _ = case
        operands = draw(rng, dtype, (rows, width), -2, 2), draw(rng, dtype, (columns, width), -2, 2)
        yield Sample((*operands, *_places(rng, case)))


def _product(values: Any, dense: Any, rows: Any, columns: Any, ends: Any, *walks: Any) -> Any:
    matrix = torch.zeros(len(ends), len(dense), dtype=dense.dtype)
    return matrix.index_put((rows, columns), values, accumulate=True) @ dense


def _sampled(left: Any, right: Any, rows: Any, columns: Any, *walks: Any) -> Any:
    return (left @ right.T)[rows, columns]


record("sparse_product", product_samples, _product, NUMBERS, tolerance=32.0)
record("sparse_sampled", sampled_samples, _sampled, NUMBERS, tolerance=32.0)
