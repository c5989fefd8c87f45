"""Boxes of images: each is a small product of matrices, and the part of its image that it reads."""

from __future__ import annotations

from typing import Any

import numpy as np

from .common import Array, Function, widen
from .indexing import subscript


def _line(places: Array, weights: Array, low: int, size: int) -> Array:
    """The weights [P, I] of places as a matrix [P, size], of what begins at `low`."""
    bins = places.shape[0]
    flat = places - low + np.arange(bins)[:, None] * size
    dense = np.bincount(flat.ravel(), weights.ravel(), bins * size)
    return dense.reshape(bins, size).astype(weights.dtype)


class _Taps:
    """What the boxes read, checked: negative places count from the end, as in any index."""

    def __init__(
        self, shape: tuple[int, ...], batch: Array, rows: Array, row_weights: Array,
        columns: Array, column_weights: Array,
    ) -> None:
        image = np.broadcast_to(np.int8(0), shape)  # for its shape alone
        checked = (
            subscript(image, (index,), dim)[dim]
            for dim, index in ((0, batch), (2, rows), (3, columns))
        )
        self.batch, self.rows, self.columns = (
            np.where(index < 0, index + shape[dim], index)
            for dim, index in zip((0, 2, 3), checked, strict=True)
        )
        self.weights = widen(row_weights), widen(column_weights)
        self.nothing = 0 in (*rows.shape, *columns.shape)

    def box(self, k: int) -> tuple[slice, slice, Array, Array]:
        """The part of its image that box k reads, and the matrices of its rows and columns."""
        rows, columns = self.rows[k], self.columns[k]
        top, left = int(rows.min()), int(columns.min())
        bottom, right = int(rows.max()) + 1, int(columns.max()) + 1
        return (
            slice(top, bottom), slice(left, right),
            _line(rows, self.weights[0][k], top, bottom - top),
            _line(columns, self.weights[1][k], left, right - left),
        )


def _planes(images: Array, shape: tuple[int, ...], taps: _Taps, sensitive: bool) -> Array:
    """Images as [N, C, H, W], or [N, C, P, Q, H, W] where each bin has a plane of its own."""
    if not sensitive:
        return images
    bins = taps.rows.shape[1], taps.columns.shape[1]
    count, channels = shape[0], shape[1] // (bins[0] * bins[1])
    return images.reshape(count, channels, *bins, *shape[2:])


def _taken(image: Array, taps: _Taps, k: int, sensitive: bool) -> Array:
    """Every tap of box k [C, P, I, Q, J]; slow, and reads nothing else."""
    rows, columns = taps.rows[k], taps.columns[k]
    if not sensitive:
        taken = image[:, rows.ravel()][:, :, columns.ravel()]
        return taken.reshape(-1, *rows.shape, *columns.shape)
    at_rows, at_columns = rows[:, None, :, None], columns[None, :, None, :]
    p, q = np.arange(rows.shape[0]), np.arange(columns.shape[0])
    taken = image[:, p[:, None, None, None], q[None, :, None, None], at_rows, at_columns]
    return taken.swapaxes(2, 3)


def _box_pool(
    x: Array, batch: Array, rows: Array, row_weights: Array, columns: Array,
    column_weights: Array, *, sensitive: bool,
) -> Array:
    dtype, wide = x.dtype, widen(x)
    taps = _Taps(x.shape, batch, rows, row_weights, columns, column_weights)
    planes = _planes(wide, x.shape, taps, sensitive)
    result = np.zeros((len(batch), planes.shape[1], rows.shape[1], columns.shape[1]), wide.dtype)
    for k in range(0 if taps.nothing or not result.size else len(batch)):
        image = planes[taps.batch[k]]
        down, across, by_row, by_column = taps.box(k)
        if sensitive:
            lines = np.einsum("cpqhw,qw->cpqh", image[..., down, across], by_column)
            result[k] = np.einsum("cpqh,ph->cpq", lines, by_row)
        else:
            result[k] = by_row @ image[:, down, across] @ by_column.T
        # 0 * inf, of an element that this bin does not read
        if not np.isfinite(result[k]).all():
            taken = _taken(image, taps, k, sensitive)
            weights = taps.weights[0][k], taps.weights[1][k]
            result[k] = np.einsum("cpiqj,pi,qj->cpq", taken, *weights)
    return result.astype(dtype, copy=False)


def _add_taken(
    image: Array, g: Array, taps: _Taps, k: int, sensitive: bool
) -> None:
    """Add the gradient of box k to its image, tap by tap."""
    spread = np.einsum("cpq,pi,qj->cpiqj", g, taps.weights[0][k], taps.weights[1][k])
    rows, columns = taps.rows[k][:, :, None, None], taps.columns[k]
    if sensitive:
        p, q = np.arange(g.shape[1])[:, None, None, None], np.arange(g.shape[2])[:, None]
        where: Any = (slice(None), p, q, rows, columns)
    else:
        where = (slice(None), rows, columns)
    np.add.at(image, where, spread)


def _box_pool_grad(
    g: Array, batch: Array, rows: Array, row_weights: Array, columns: Array,
    column_weights: Array, *, shape: tuple[int, ...], sensitive: bool,
) -> Array:
    dtype, wide = g.dtype, widen(g)
    taps = _Taps(shape, batch, rows, row_weights, columns, column_weights)
    result = np.zeros(shape, wide.dtype)
    planes = _planes(result, shape, taps, sensitive)
    for k in range(0 if taps.nothing or not wide.size else len(batch)):
        image = planes[taps.batch[k]]
        down, across, by_row, by_column = taps.box(k)
        if sensitive:
            part = np.einsum("cpq,ph,qw->cpqhw", wide[k], by_row, by_column)
        else:
            part = by_row.T @ wide[k] @ by_column
        if np.isfinite(part).all():
            image[..., down, across] += part
        else:
            _add_taken(image, wide[k], taps, k, sensitive)
    return result.astype(dtype, copy=False)


def _box_argmax(
    x: Array, batch: Array, top: Array, bottom: Array, left: Array, right: Array
) -> Array:
    x = widen(x)
    (_, channels, height, width), (boxes, bins), columns = x.shape, top.shape, left.shape[1]
    subscript(x, (batch,), 0)
    result = np.full((boxes, channels, bins, columns), -1, np.int64)
    within = ((top, height), (bottom, height), (left, width), (right, width))
    edges: Any = zip(*(np.clip(edge, 0, size) for edge, size in within), strict=True)
    for k, (tops, bottoms, lefts, rights) in enumerate(edges):
        for p, (first, last) in enumerate(zip(tops.tolist(), bottoms.tolist(), strict=True)):
            lines = x[batch[k], :, first:last]
            for q, (start, stop) in enumerate(zip(lefts.tolist(), rights.tolist(), strict=True)):
                part = lines[:, :, start:stop]
                if part.size:
                    wide = part.shape[2]
                    where = part.reshape(channels, -1).argmax(1)
                    result[k, :, p, q] = (where // wide + first) * width + where % wide + start
    return result


TABLE: dict[str, Function] = {
    "box_pool": _box_pool, "box_pool_grad": _box_pool_grad, "box_argmax": _box_argmax,
}
