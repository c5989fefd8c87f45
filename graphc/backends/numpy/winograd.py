"""Winograd's transforms, as products with the matrices of `ir/cook_toom.py`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.lib import stride_tricks

from graphc.ir.cook_toom import Matrix, transforms

from .common import Array, Function, through_f32

Ints = Sequence[int]


def _along_both(matrix: Matrix, planes: Array) -> Array:
    """matrix @ plane @ matrix^T of the last two dims."""
    numbers = np.array([[float(each) for each in row] for row in matrix], planes.dtype)
    found: Array = numbers @ planes @ numbers.T
    return found


def _places_first(planes: Array) -> Array:
    """[..., size, size] as [size * size, ...]."""
    *rest, size, _ = planes.shape
    return np.moveaxis(planes.reshape((*rest, size * size)), -1, 0)


def _input(x: Array, *, tile: int, window: int, pad_low: Ints, output: Ints) -> Array:
    size = tile + window - 1
    counts = [-(-each // tile) for each in output]
    ends = [(count - 1) * tile + size for count in counts]
    image = np.zeros((x.shape[0], *ends, x.shape[3]), x.dtype)
    kept = [min(n, end - low) for n, end, low in zip(x.shape[1:3], ends, pad_low, strict=True)]
    if min(kept) > 0:
        (rows, columns), (top, left) = kept, pad_low
        image[:, top : top + rows, left : left + columns] = x[:, :rows, :columns]
    tiles = stride_tricks.sliding_window_view(image, (size, size), (1, 2))[:, ::tile, ::tile]
    return _places_first(_along_both(transforms(tile, window).input, tiles))


def _filter(w: Array, *, tile: int, flip: bool, columns: int) -> Array:
    turned = w[:, :, ::-1, ::-1].swapaxes(0, 1) if flip else w
    found = _places_first(_along_both(transforms(tile, w.shape[-1]).filter, turned))
    places, wide, deep = found.shape
    panels = -(-wide // columns)
    whole = np.zeros((places, panels * columns, deep), w.dtype)
    whole[:, :wide] = found
    return whole.reshape((places, panels, columns, deep)).swapaxes(2, 3)


def _output(p: Array, *, tile: int, window: int, output: Ints) -> Array:
    size = tile + window - 1
    _, n, rows, columns, channels = p.shape
    planes = np.moveaxis(p, 0, -1).reshape((n, rows, columns, channels, size, size))
    tiles = _along_both(transforms(tile, window).output, planes)
    image = tiles.transpose((0, 1, 4, 2, 5, 3))
    whole = image.reshape((n, rows * tile, columns * tile, channels))
    return whole[:, : output[0], : output[1]]


TABLE: dict[str, Function] = {
    "winograd_input": through_f32(_input),
    "winograd_filter": through_f32(_filter),
    "winograd_output": through_f32(_output),
}
