"""Test records of boxes of images; what torchvision calls of them: vision/test_operators.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from graphc.ir.dtypes import DType
from tests.opinfo_core import FLOATS, NUMBERS, RNG, Sample, distinct, draw, record, torch

Shape = tuple[int, ...]

# images, boxes, rows and columns of bins, samples of each, whether each bin has its own channels
_CASES: tuple[tuple[Shape, int, Shape, Shape, bool], ...] = (
    ((2, 3, 5, 4), 4, (2, 3), (2, 4), False), ((1, 1, 1, 1), 1, (1, 1), (1, 1), False),
    ((2, 12, 4, 5), 3, (2, 3), (2, 2), True), ((3, 4, 2, 6), 2, (2, 2), (1, 3), True),
    ((2, 3, 5, 4), 0, (2, 2), (2, 2), False), ((1, 2, 3, 3), 2, (3, 1), (6, 1), False),
)


def _taps(dtype: DType, rng: RNG, case: Any) -> Iterator[np.ndarray]:
    (count, _, *plane), boxes, bins, samples, _ = case
    yield rng.integers(-count, count, boxes)
    for size, each, taps in zip(plane, bins, samples, strict=True):
        yield rng.integers(-size, size, (boxes, each, taps))
        yield draw(rng, dtype, (boxes, each, taps), -1, 1)


def pool_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    for case in _CASES:
        taps = tuple(_taps(dtype, rng, case))
        yield Sample((draw(rng, dtype, case[0], -2, 2), *taps), {"sensitive": case[4]})


def grad_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    for case in _CASES:
        shape, boxes, bins, _, sensitive = case
        channels = shape[1] // (bins[0] * bins[1]) if sensitive else shape[1]
        g = draw(rng, dtype, (boxes, channels, *bins), -2, 2)
        yield Sample(
            (g, *_taps(dtype, rng, case)), {"shape": shape, "sensitive": sensitive}
        )


def _where(shape: Shape, batch: Any, rows: Any, columns: Any, sensitive: bool) -> tuple[Any, ...]:
    """Positions in images of that shape, for boxes, channels, bins and samples."""
    (_, height, _), width = rows.shape, columns.shape[1]
    channel = torch.arange(shape[1])
    if sensitive:
        channel = channel.reshape(1, -1, height, width, 1, 1)
    else:
        channel = channel.reshape(1, -1, 1, 1, 1, 1)
    return (
        batch.reshape(-1, 1, 1, 1, 1, 1), channel, rows[:, None, :, None, :, None],
        columns[:, None, None, :, None, :],
    )


def _pool(
    x: Any, batch: Any, rows: Any, row_weights: Any, columns: Any, column_weights: Any, *,
    sensitive: bool,
) -> Any:
    taken = x[_where(x.shape, batch, rows, columns, sensitive)]
    return torch.einsum("kcpqij,kpi,kqj->kcpq", taken, row_weights, column_weights)


def _pool_grad(
    g: Any, batch: Any, rows: Any, row_weights: Any, columns: Any, column_weights: Any, *,
    shape: Shape, sensitive: bool,
) -> Any:
    spread = torch.einsum("kcpq,kpi,kqj->kcpqij", g, row_weights, column_weights)
    where = _where(shape, batch, rows, columns, sensitive)
    zeros = torch.zeros(shape, dtype=g.dtype)
    return zeros.index_put(where, spread, accumulate=True)


def argmax_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    for shape, boxes, bins in (((2, 3, 5, 4), 3, (2, 3)), ((1, 1, 1, 1), 1, (1, 1))):
        edges = []
        for size, each in zip(shape[2:], bins, strict=True):
            first = rng.integers(-1, size, (boxes, each))
            edges += [first, first + rng.integers(0, size + 2, (boxes, each))]
        batch = rng.integers(0, shape[0], boxes)
        yield Sample((distinct(rng, dtype, shape), batch, *edges))
    equal = np.ones((1, 1, 3, 3), dtype.numpy)
    whole = [np.array([[0]]), np.array([[3]])] * 2
    yield Sample((equal, np.zeros(1, np.int64), *whole))
    if dtype.is_float:
        equal[0, 0, 2, 1] = np.nan
        yield Sample((equal, np.zeros(1, np.int64), *whole))


def _argmax(x: Any, batch: Any, top: Any, bottom: Any, left: Any, right: Any) -> Any:
    width = x.shape[3]
    result = torch.full((len(batch), x.shape[1], top.shape[1], left.shape[1]), -1)
    for k, c, p, q in np.ndindex(*result.shape):
        first, start = max(int(top[k, p]), 0), max(int(left[k, q]), 0)
        last, stop = max(int(bottom[k, p]), 0), max(int(right[k, q]), 0)
        part = x[batch[k], c, first:last, start:stop]
        if part.numel():
            row, column = divmod(int(part.reshape(-1).argmax()), part.shape[1])
            result[k, c, p, q] = (row + first) * width + column + start
    return result


record("box_pool", pool_samples, _pool, FLOATS, tolerance=16.0)
record("box_pool_grad", grad_samples, _pool_grad, FLOATS, tolerance=16.0)
record("box_argmax", argmax_samples, _argmax, NUMBERS, gradient="integer result")
