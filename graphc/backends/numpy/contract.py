"""Contractions (through BLAS by np.matmul) and windows (through strided views)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.lib import stride_tricks

from graphc.ir.tf32 import rounded

from .common import I64, Array, Function, as_array, is_float, through_f32, widen

Ints = Sequence[int]
_FEW_TERMS = 1 << 14
_ALL: tuple[Any, ...] = (slice(None), slice(None))

# --- dot_general ---------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _orders(
    rank_a: int, rank_b: int, batch_a: tuple[int, ...], batch_b: tuple[int, ...],
    contract_a: tuple[int, ...], contract_b: tuple[int, ...],
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Permutations to batch, free, contracted and batch, contracted, free; the free dims."""
    free_a = tuple(d for d in range(rank_a) if d not in batch_a + contract_a)
    free_b = tuple(d for d in range(rank_b) if d not in batch_b + contract_b)
    return batch_a + free_a + contract_a, batch_b + contract_b + free_b, free_a, free_b


def _dot_general(
    a: Array, b: Array, *, batch_a: Ints, batch_b: Ints, contract_a: Ints, contract_b: Ints
) -> Array:
    order_a, order_b, free_a, free_b = _orders(
        a.ndim, b.ndim, tuple(batch_a), tuple(batch_b), tuple(contract_a), tuple(contract_b)
    )
    shape_a, shape_b = a.shape, b.shape
    left, right = a.transpose(order_a), b.transpose(order_b)
    if len(free_a) == len(free_b) == len(contract_a) == 1:
        return as_array(_matmul(left, right))
    batch = [shape_a[d] for d in batch_a]
    inner = prod(shape_a[d] for d in contract_a)
    rows, columns = [shape_a[d] for d in free_a], [shape_b[d] for d in free_b]
    product = _matmul(
        left.reshape((*batch, prod(rows), inner)), right.reshape((*batch, inner, prod(columns)))
    )
    return as_array(product).reshape((*batch, *rows, *columns))


def _matmul(a: Array, b: Array) -> Array:
    """np.matmul; of integers through BLAS where no sum can leave what float64 has exactly (NumPy's
    own loops take a hundred times as long). Row-major, however batches lie."""
    terms = a.size * b.shape[-1]
    if a.dtype.kind not in "iu" or terms < _FEW_TERMS or not b.size:
        return as_array(np.matmul(a, b, order="C"))
    most = [max(int(x.max()), -int(x.min())) for x in (a, b)]
    if a.shape[-1] * most[0] * most[1] > 1 << 53:
        return as_array(np.matmul(a, b, order="C"))
    wide = np.matmul(a.astype(np.float64), b.astype(np.float64), order="C")
    return as_array(wide.astype(np.int64).astype(np.result_type(a, b)))


# --- windows -------------------------------------------------------------------------------


def _padded(x: Array, low: Ints, high: Ints, value: Any) -> Array:
    """x with its trailing len(low) dims padded (x itself where there is nothing to add)."""
    if not any(low) and not any(high):
        return x
    lead = x.ndim - len(low)
    shape = list(x.shape[:lead])
    where: list[slice] = [slice(None)] * lead
    for n, before, after in zip(x.shape[lead:], low, high, strict=True):
        shape.append(before + n + after)
        where.append(slice(before, before + n))
    result = np.full(shape, value, x.dtype)
    result[tuple(where)] = x
    return result


def _windows(x: Array, window: Ints, stride: Ints, dilation: Ints) -> Array:
    """A view [*lead, *out, *window] of the trailing len(window) dims of x."""
    k = len(window)
    lead, space = x.shape[: x.ndim - k], x.shape[x.ndim - k :]
    steps = x.strides[x.ndim - k :]
    out = tuple(
        max((n - (w - 1) * d - 1) // s + 1, 0)
        for n, w, s, d in zip(space, window, stride, dilation, strict=True)
    )
    return stride_tricks.as_strided(
        x,
        (*lead, *out, *window),
        (
            *x.strides[: x.ndim - k],
            *(t * s for t, s in zip(steps, stride, strict=True)),
            *(t * d for t, d in zip(steps, dilation, strict=True)),
        ),
        writeable=False,
    )


def _columns(
    x: Array, kernel: Ints, stride: Ints, low: Ints, high: Ints, dilation: Ints, groups: int
) -> tuple[Array, tuple[int, ...]]:
    """im2col: [N, g, C/g * K, out] and the output's spatial shape."""
    k = len(kernel)
    view = _windows(_padded(x, low, high, 0), kernel, stride, dilation)
    n, channels, out = view.shape[0], view.shape[1], view.shape[2 : 2 + k]
    order = (0, 1, *range(2 + k, 2 + 2 * k), *range(2, 2 + k))
    depth = channels // groups * prod(kernel)
    return view.transpose(order).reshape((n, groups, depth, prod(out))), out


def _conv(
    x: Array, w: Array, *, stride: Ints, pad_low: Ints, pad_high: Ints, dilation: Ints, groups: int
) -> Array:
    columns, out = _columns(x, w.shape[2:], stride, pad_low, pad_high, dilation, groups)
    kernel = w.reshape((groups, w.shape[0] // groups, columns.shape[2]))
    return as_array(np.matmul(kernel, columns)).reshape((x.shape[0], w.shape[0], *out))


def _conv_input_grad(
    g: Array, w: Array, *, input_shape: Ints, stride: Ints, pad_low: Ints, pad_high: Ints,
    dilation: Ints, groups: int,
) -> Array:
    n, outputs, out = g.shape[0], w.shape[0], g.shape[2:]
    kernel = w.reshape((groups, outputs // groups, -1)).transpose(0, 2, 1)
    columns = as_array(np.matmul(kernel, g.reshape((n, groups, outputs // groups, prod(out)))))
    columns = columns.reshape((n, input_shape[1], *w.shape[2:], *out))
    space = input_shape[2:]
    whole = np.zeros(
        (n, input_shape[1],
         *(a + b + c for a, b, c in zip(pad_low, space, pad_high, strict=True))), g.dtype
    )
    for at in itertools.product(*(range(k) for k in w.shape[2:])):
        where = tuple(
            slice(p * d, p * d + (o - 1) * s + 1, s) if o else slice(0, 0)
            for p, d, o, s in zip(at, dilation, out, stride, strict=True)
        )
        whole[(*_ALL, *where)] += columns[(*_ALL, *at)]
    keep = tuple(slice(a, a + b) for a, b in zip(pad_low, space, strict=True))
    return np.ascontiguousarray(whole[(*_ALL, *keep)])


def _conv_weight_grad(
    x: Array, g: Array, *, weight_shape: Ints, stride: Ints, pad_low: Ints, pad_high: Ints,
    dilation: Ints, groups: int,
) -> Array:
    columns, out = _columns(x, weight_shape[2:], stride, pad_low, pad_high, dilation, groups)
    n, outputs = g.shape[0], weight_shape[0]
    pixels = g.reshape((n, groups, outputs // groups, prod(out)))
    left = pixels.transpose(1, 2, 0, 3).reshape((groups, outputs // groups, -1))
    right = columns.transpose(1, 0, 3, 2).reshape((groups, left.shape[2], columns.shape[2]))
    return as_array(np.matmul(left, right)).reshape(tuple(weight_shape))


def _lowest(dtype: np.dtype[Any]) -> Any:
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


def _max_pool(
    x: Array, *, window: Ints, stride: Ints, pad_low: Ints, pad_high: Ints, dilation: Ints
) -> tuple[Array, Array]:
    k = len(window)
    plane = x.shape[x.ndim - k :]
    wide = widen(x)
    view = _windows(
        _padded(wide, pad_low, pad_high, _lowest(wide.dtype)), window, stride, dilation
    )
    flat = view.reshape((*view.shape[: view.ndim - k], prod(window)))
    choice = flat.argmax(axis=-1)
    if wide.dtype.kind == "f" and (nan := np.isnan(flat)).any():  # the last wins, as torch's does
        last = flat.shape[-1] - 1 - nan[..., ::-1].argmax(axis=-1)
        choice = np.where(nan.any(axis=-1), last, choice)
    values = np.take_along_axis(flat, choice[..., None], -1)[..., 0]
    positions = np.arange(prod(plane), dtype=I64).reshape(plane)
    where = _windows(_padded(positions, pad_low, pad_high, -1), window, stride, dilation)
    where = where.reshape((*where.shape[:k], prod(window)))
    grid = np.ogrid[tuple(slice(0, n) for n in where.shape[:k])]
    indices = where[(*grid, choice)]
    if (indices < 0).any():  # a window of lowest values found the padding: take its first cell
        first = where[(*grid, (where >= 0).argmax(axis=-1))]
        indices = np.where(indices < 0, first, indices)
    return values.astype(x.dtype, copy=False), indices


def _max_pool_grad(g: Array, indices: Array, *, plane_shape: Ints) -> Array:
    lead = g.shape[: g.ndim - len(plane_shape)]
    planes, plane = prod(lead), prod(plane_shape)
    shape = (*lead, *plane_shape)
    if planes * plane == 0:
        return np.zeros(shape, g.dtype)
    if indices.size and (indices.min() < 0 or indices.max() >= plane):
        raise RuntimeError(f"max_pool_grad: an index is outside its plane of {plane} elements")
    at = indices.reshape((planes, -1)) + np.arange(planes, dtype=I64)[:, None] * plane
    if is_float(g):
        weights = widen(g).reshape(-1)
        total = np.bincount(at.reshape(-1), weights=weights, minlength=planes * plane)
    else:
        total = np.zeros(planes * plane, g.dtype)
        np.add.at(total, at.reshape(-1), g.reshape(-1))
    return total.astype(g.dtype).reshape(shape)


def _window_sum(
    x: Array, *, window: Ints, stride: Ints, pad_low: Ints, pad_high: Ints, dilation: Ints
) -> Array:
    total = _padded(x, pad_low, pad_high, 0)
    lead = total.ndim - len(window)
    for axis, (w, s, d) in enumerate(zip(window, stride, dilation, strict=True), lead):
        n = max((total.shape[axis] - (w - 1) * d - 1) // s + 1, 0)
        before = (slice(None),) * axis
        parts = [total[(*before, slice(i * d, i * d + max(n - 1, 0) * s + (n > 0), s))]
                 for i in range(w)]
        result = parts[0].copy()
        for part in parts[1:]:
            result += part
        total = result
    return total


def _conv_last(x: Array, w: Array, *, outputs: int, group: int, **attrs: Any) -> Array:
    panels, *window, words, width = w.shape
    split = w.reshape((panels, *window, words, width // group, group))
    filters = np.moveaxis(split, (-2, -3, -1), (1, 2, 3))
    filters = filters.reshape((panels * (width // group), words * group, *window))
    return np.moveaxis(_conv(np.moveaxis(x, -1, 1), filters[:outputs], **attrs), 1, -1)


def _contraction(function: Function) -> Function:
    """In float32, where halves are rounded once, and float32 to TF32 before if it is to be."""
    whole = through_f32(function)

    def contracted(x: Array, y: Array, *, tf32: bool = False, **attrs: Any) -> Array:
        if tf32:
            x, y = rounded(x), rounded(y)
        return as_array(whole(x, y, **attrs))

    return contracted


TABLE: dict[str, Function] = {
    "dot_general": _contraction(_dot_general),
    "conv": _contraction(_conv),
    "conv_input_grad": _contraction(_conv_input_grad),
    "conv_weight_grad": _contraction(_conv_weight_grad),
    "conv_last": _contraction(_conv_last),
    "max_pool": _max_pool,
    "max_pool_grad": _max_pool_grad,
    "window_sum": through_f32(_window_sum),
}
