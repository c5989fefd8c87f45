"""Windows and convolutions of known sizes; see bound.py."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from graphc.ir.types import TensorType

from .common import I64, Array, Function

Ints = Sequence[int]
Types = Sequence[TensorType]


def _out(space: Ints, window: Ints, stride: Ints, dilation: Ints) -> tuple[int, ...]:
    return tuple([
        max((n - (w - 1) * d - 1) // s + 1, 0)
        for n, w, s, d in zip(space, window, stride, dilation, strict=True)
    ])


def max_pool(
    types: Types, *, window: Ints, stride: Ints, pad_low: Ints, pad_high: Ints, dilation: Ints
) -> Function | None:
    """Without padding: the cells of all windows in turn, each against the largest so far."""
    shape: Any = types[0].shape
    plane = shape[len(shape) - len(window) :]
    out = _out(plane, window, stride, dilation)
    if any(pad_low) or any(pad_high) or 0 in shape or 0 in out or prod(window) > 16:
        return None
    first = np.arange(prod(plane), dtype=I64).reshape(plane)
    cells: list[tuple[tuple[Any, ...], Array]] = []
    for at in itertools.product(*map(range, window)):
        where = tuple([
            slice(i * d, i * d + (n - 1) * s + 1, s)
            for i, d, n, s in zip(at, dilation, out, stride, strict=True)
        ])
        cells.append(((Ellipsis, *where), np.ascontiguousarray(first[where])))
    result = (*shape[: len(shape) - len(window)], *out)
    floats = types[0].dtype.is_float
    (begin, places), *rest = cells

    def run(x: Array) -> tuple[Array, Array]:
        best = np.array(x[begin], order="C")
        indices = np.empty(result, I64)
        indices[...] = places
        for where, place in rest:
            cell = x[where]
            if floats:  # the last NaN stays
                larger = np.greater(cell, best)
                np.logical_or(larger, np.not_equal(cell, cell), larger)
            else:
                larger = np.greater(cell, best)
            np.copyto(best, cell, where=larger)
            np.copyto(indices, place, where=larger)
        return best, indices

    return run


def window_sum(
    types: Types, *, window: Ints, stride: Ints, pad_low: Ints, pad_high: Ints, dilation: Ints
) -> Function | None:
    """The table's sums, dim by dim, of cells whose place is known."""
    shape: Any = types[0].shape
    dtype = types[0].dtype.numpy
    if types[0].dtype.bits == 16 or prod(window) > 64:
        return None
    lead = len(shape) - len(window)
    whole = tuple([a + n + b for a, n, b in zip(pad_low, shape[lead:], pad_high, strict=True)])
    out = _out(whole, window, stride, dilation)
    if 0 in shape or 0 in out:
        return None
    sums = [
        [
            (*[slice(None)] * axis, slice(i * d, i * d + (n - 1) * s + 1, s)) for i in range(w)
        ]
        for axis, (w, d, n, s) in enumerate(zip(window, dilation, out, stride, strict=True), lead)
    ]
    padded = (*shape[:lead], *whole) if any(pad_low) or any(pad_high) else None
    inside: Any = (Ellipsis, *[
        slice(a, a + n) for a, n in zip(pad_low, shape[lead:], strict=True)
    ])

    def run(x: Array) -> Array:
        if padded is not None:
            wide = np.zeros(padded, dtype)
            wide[inside] = x
            x = wide
        for first, *rest in sums:
            if not rest:
                x = x[first].copy()
                continue
            total = np.add(x[first], x[rest[0]], order="C")
            for where in rest[1:]:
                np.add(total, x[where], total)
            x = total
        return x

    return run


CACHED = 1 << 14  # elements of an image's columns


def _one_by_one(parts: Array, weight: Array, shape: tuple[int, ...]) -> Array:
    """The products of a weight with the columns of each image, [N, 1, C, *kernel, *out]."""
    buffer = np.empty(parts.shape[2:], parts.dtype)
    flat = buffer.reshape(shape)
    found = np.empty((parts.shape[0], weight.shape[0], shape[1]), parts.dtype)
    for image, out in zip(parts, found, strict=True):
        np.copyto(buffer, image[0])
        np.matmul(weight, flat, out)
    return found


def conv(
    types: Types, *, stride: Ints, pad_low: Ints, pad_high: Ints, dilation: Ints, groups: int,
    tf32: bool = False,
) -> Function | None:
    """The table's sums, of columns whose place in memory is known."""
    shape: Any = types[0].shape
    weight: Any = types[1].shape
    kernel, space = weight[2:], shape[2:]
    whole = tuple([a + n + b for a, n, b in zip(pad_low, space, pad_high, strict=True)])
    out = _out(whole, kernel, stride, dilation)
    if tf32 or 0 in (*shape, *weight, *out) or types[0].dtype is not types[1].dtype:
        return None
    dtype, count, channels = types[0].dtype.numpy, shape[0], shape[1] // groups
    steps = [dtype.itemsize]
    for n in reversed((shape[1], *whole)):
        steps.insert(0, steps[0] * n)
    per, over = steps[2:], [
        t * d for t, d in zip(steps[2:], dilation, strict=True)
    ]
    # [N, g, C/g, *kernel, *out]
    view = (count, groups, channels, *kernel, *out)
    strides = (
        steps[0], steps[1] * channels, steps[1], *over,
        *[t * s for t, s in zip(per, stride, strict=True)],
    )
    columns = (count, groups, channels * prod(kernel), prod(out))
    rows = (groups, weight[0] // groups, columns[2])
    result = (count, weight[0], *out)
    padded = (count, shape[1], *whole) if any(pad_low) or any(pad_high) else None
    inside: Any = (Ellipsis, *[slice(a, a + n) for a, n in zip(pad_low, space, strict=True)])

    # columns of one image at a time stay in the cache; they are the same products
    alone = count > 1 and groups == 1 and columns[2] * columns[3] > CACHED

    def run(x: Array, w: Array) -> Any:
        if padded is not None:
            wide = np.zeros(padded, dtype)
            wide[inside] = x
            x = wide
        elif not x.flags.c_contiguous:
            x = np.ascontiguousarray(x)
        parts = np.ndarray(view, dtype, x, 0, strides)
        if alone:
            return _one_by_one(parts, w.reshape(rows[1:]), columns[2:]).reshape(result)
        return np.matmul(w.reshape(rows), parts.reshape(columns)).reshape(result)

    return run
