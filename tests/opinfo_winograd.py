"""Test records of Winograd's transforms; what the matrices mean, ir/test_cook_toom.py tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from graphc.ir.cook_toom import Matrix, transforms
from graphc.ir.dtypes import DType
from tests.opinfo_core import FLOATS, RNG, Sample, draw, record, torch

Shape = tuple[int, ...]

_GRADIENT = "made after the gradients are"
# tile, taps, images, channels, image, padding below and above
_CASES: tuple[tuple[int, int, int, int, Shape, Shape, Shape], ...] = (
    (2, 3, 2, 3, (6, 5), (1, 1), (1, 1)), (4, 3, 1, 17, (5, 4), (0, 2), (1, 0)),
    (4, 3, 2, 2, (1, 1), (1, 1), (1, 1)), (2, 5, 1, 1, (7, 4), (2, 3), (2, 0)),
    (4, 3, 0, 2, (4, 4), (1, 1), (1, 1)),
)


def _results(image: Shape, low: Shape, high: Shape, window: int) -> Shape:
    sizes = zip(image, low, high, strict=True)
    return tuple([n + before + after - window + 1 for n, before, after in sizes])


def _along_both(matrix: Matrix, planes: Any) -> Any:
    numbers = torch.tensor([[float(each) for each in row] for row in matrix], dtype=planes.dtype)
    return torch.einsum("ai,...ij,bj->ab...", numbers, planes, numbers).flatten(0, 1)


def input_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    for tile, window, n, channels, image, low, high in _CASES:
        output = _results(image, low, high, window)
        attrs = {"tile": tile, "window": window, "pad_low": low, "output": output}
        yield Sample((draw(rng, dtype, (n, *image, channels), -2, 2),), attrs)


def _input(x: Any, *, tile: int, window: int, pad_low: Shape, output: Shape) -> Any:
    size = tile + window - 1
    pads: list[int] = [0, 0]
    for have, low, count in zip(x.shape[2:0:-1], pad_low[::-1], output[::-1], strict=True):
        pads += [low, -(-count // tile) * tile + window - 1 - low - have]
    tiles = torch.nn.functional.pad(x, pads).unfold(1, size, tile).unfold(2, size, tile)
    return _along_both(transforms(tile, window).input, tiles)


def filter_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    for tile, window, _, channels, _, _, _ in _CASES:
        for outputs, columns, flip in ((1, 1, False), (6, 4, True), (4, 2, False)):
            weight = draw(rng, dtype, (outputs, channels, window, window), -2, 2)
            yield Sample((weight,), {"tile": tile, "flip": flip, "columns": columns})


def _filter(w: Any, *, tile: int, flip: bool, columns: int) -> Any:
    if flip:
        w = w.flip(2, 3).transpose(0, 1)
    places = _along_both(transforms(tile, w.shape[-1]).filter, w)
    wide = -(-w.shape[0] // columns) * columns
    whole = torch.nn.functional.pad(places, [0, 0, 0, wide - w.shape[0]])
    return whole.unflatten(1, (-1, columns)).transpose(2, 3)


def output_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    for tile, window, n, channels, image, low, high in _CASES:
        output = _results(image, low, high, window)
        tiles = [-(-count // tile) for count in output]
        places = draw(rng, dtype, ((tile + window - 1) ** 2, n, *tiles, channels), -2, 2)
        yield Sample((places,), {"tile": tile, "window": window, "output": output})


def _output(p: Any, *, tile: int, window: int, output: Shape) -> Any:
    size = tile + window - 1
    planes = p.unflatten(0, (size, size)).movedim((0, 1), (-2, -1))
    tiles = _along_both(transforms(tile, window).output, planes).unflatten(0, (tile, tile))
    image = tiles.permute(2, 3, 0, 4, 1, 5).flatten(3, 4).flatten(1, 2)
    return image[:, : output[0], : output[1]]


for _name, _samples, _reference in (
    ("winograd_input", input_samples, _input), ("winograd_filter", filter_samples, _filter),
    ("winograd_output", output_samples, _output),
):
    record(
        _name, _samples, _reference, FLOATS, tolerance=64.0, gradient=_GRADIENT, numeric="the same"
    )
