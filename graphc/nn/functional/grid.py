"""Sampling at positions of a grid."""

from __future__ import annotations

import functools
import itertools
import math
import warnings
from typing import Any, NamedTuple

from ...frontend import functions as T
from ...frontend.autocast import listed
from ...frontend.context import local
from ...frontend.functions.arguments import named, recorded_as
from ...frontend.functions.zero_gradient import flat_in
from ...frontend.replayed import replayed
from ...frontend.tensor import Tensor
from ..as_one import AsOne, may_be_one
from .resize import cubic_weights

MODES = ("bilinear", "nearest", "bicubic")
PADDING = ("zeros", "border", "reflection")


def _default_corners(name: str, align: bool | None) -> bool:
    if align is None:
        warnings.warn(
            f"Default {name} and align_corners=False behavior; specify align_corners explicitly "
            "if the behavior of releases before 1.3.0, align_corners=True, is desired.",
            stacklevel=5,
        )
    return bool(align)


@recorded_as("AffineGridGeneratorBackward0")
def affine_grid(theta: Tensor, size: Any, align_corners: bool | None = None) -> Tensor:
    """Positions [N, (D,) H, W, 2 or 3] that affine maps theta [N, 2, 3] or [N, 3, 4] give."""
    align = _default_corners("affine_grid", align_corners)
    if not theta.is_floating_point():
        raise ValueError(f"Expected theta to have floating point type, but got {theta.dtype}")
    spatial = len(size) - 2
    if spatial not in (2, 3):
        raise NotImplementedError(
            "affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, "
            f"respectively. Got size {size}"
        )
    if theta.dim() != 3 or tuple(theta.shape)[1:] != (spatial, spatial + 1):
        raise ValueError(
            f"Expected a batch of {spatial}D affine matrices of shape Nx{spatial}x{spatial + 1} "
            f"for size {size}. Got {theta.shape}."
        )
    if any(count <= 0 for count in size):  # which is smallest is no fact of a free size
        raise ValueError(f"Expected non-zero, positive output size. Got {size}")
    sizes = [int(s) for s in size[2:]]
    axes: list[Tensor] = []
    for dim, count in enumerate(sizes):
        line = T.linspace(-1, 1, count, dtype=theta.dtype) if count > 1 else (
            T.zeros(1, dtype=theta.dtype)
        )
        if not align:
            line = line * ((count - 1) / count)
        shape = [-1 if d == dim else 1 for d in range(spatial)]
        axes.append(line.reshape(shape).expand(sizes))
    base = T.stack([*reversed(axes), T.ones(sizes, dtype=theta.dtype)], -1)
    flat = base.reshape(1, -1, spatial + 1).expand(size[0], -1, -1)
    return T.bmm(flat, theta.transpose(1, 2)).reshape([size[0], *sizes, spatial])


@listed
def grid_sample(
    input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """Values of [N, C, (D,) H, W] at positions [N, *, 2 or 3] in [-1, 1], x first."""
    align = _default_corners("grid_sample", align_corners)
    if not _are_few(input, grid):
        _check(input, grid, mode, padding_mode)
        if _gains(input, grid):
            space = tuple(input.shape)[2:]
            result = _whole(mode, padding_mode, align, space, input.dtype)(input, grid)
            return named(result, f"GridSampler{len(space)}DBackward0")
    return _sampled(input, grid, mode, padding_mode, align)


def _are_few(input: Tensor, grid: Tensor) -> bool:
    """Whether no graph is asked for: nobody records, and there are so few numbers."""
    return local.trace is None and type(input) is type(grid) is Tensor and (
        input._graphc_trace is None and grid._graphc_trace is None
        and input._graphc_array.size < _LEAST and grid._graphc_array.size < _LEAST
        and (input._graphc_array.shape[1:2] or (1,))[0] * grid._graphc_array.size < _LEAST
    )


_LEAST = 1 << 12  # numbers of a result that are worth a graph
_KEPT = 64  # graphs


def _gains(input: Tensor, grid: Tensor) -> bool:
    """Whether it is done as one graph: types alone say."""
    return input.dtype is grid.dtype and input.dtype in (T.float32, T.float64) and (
        may_be_one(input, grid)
        and math.prod(grid._graphc_array.shape[:-1]) * input._graphc_array.shape[1] >= _LEAST
    )


@functools.lru_cache(maxsize=_KEPT)
def _whole(
    mode: str, padding_mode: str, align: bool, space: tuple[int, ...], dtype: Any
) -> AsOne:
    def sampled(input: Tensor, grid: Tensor) -> Tensor:
        return _values_at(input, grid, mode, padding_mode, align)

    places = {1 + i: f"P{i}" for i in range(len(space))}
    return AsOne(sampled, {0: {0: "N", 1: "C"}, 1: {0: "N", **places}}, 7)


@replayed
def _sampled(input: Tensor, grid: Tensor, mode: str, padding_mode: str, align: bool) -> Tensor:
    _check(input, grid, mode, padding_mode)
    result = _values_at(input, grid, mode, padding_mode, align)
    return named(result, f"GridSampler{input.dim() - 2}DBackward0")


def _values_at(input: Tensor, grid: Tensor, mode: str, padding_mode: str, align: bool) -> Tensor:
    sizes = [int(s) for s in tuple(input.shape)[2:]]
    # positions in elements, in the order of the input's dims
    places = [
        _unnormalized(grid[..., i], size, align)
        for i, size in zip(reversed(range(len(sizes))), sizes, strict=True)
    ]
    if mode == "bicubic":
        return _bicubic(input, places, sizes, padding_mode, align)
    places = [
        _padded(place, size, padding_mode, align, len(sizes) == 3)
        for place, size in zip(places, sizes, strict=True)
    ]
    if mode == "nearest":
        return flat_in(grid, _take(input, [
            _chosen(place.round(), size) for place, size in zip(places, sizes, strict=True)
        ]))
    return between_pixels(input, places, sizes)


def between_pixels(input: Tensor, places: list[Tensor], sizes: list[int]) -> Tensor:
    """Linear interpolation of [N, C, *sizes] at places [N, *], one tensor per axis, in elements; 0
    outside."""
    floors = [place.floor() for place in places]
    # of each axis: what is chosen below and above, and the share of it
    axes = [
        [(_chosen(floor, size), floor + 1 - place), (_chosen(floor + 1, size), place - floor)]
        for place, floor, size in zip(places, floors, sizes, strict=True)
    ]
    result: Any = None
    for corner in itertools.product(*axes):
        weight: Any = None
        for _, share in corner:
            weight = share if weight is None else weight * share
        term = _take(input, [chosen for chosen, _ in corner]) * weight.unsqueeze(1)
        result = term if result is None else result + term
    return result


def _check(input: Tensor, grid: Tensor, mode: str, padding_mode: str) -> None:
    if mode not in MODES:
        raise ValueError(
            "nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or "
            f"'bicubic', but got: '{mode}'"
        )
    if padding_mode not in PADDING:
        raise ValueError(
            "nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or "
            f"'reflection', but got: '{padding_mode}'"
        )
    spatial = input.dim() - 2
    if spatial not in (2, 3) or grid.dim() != input.dim():
        raise RuntimeError(
            "grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, "
            f"but got input with sizes {list(input.shape)} and grid with sizes "
            f"{list(grid.shape)}"
        )
    if input.shape[0] != grid.shape[0]:
        raise RuntimeError(
            "grid_sampler(): expected grid and input to have same batch size, but got input "
            f"with sizes {list(input.shape)} and grid with sizes {list(grid.shape)}"
        )
    if grid.shape[-1] != spatial:
        raise RuntimeError(
            f"grid_sampler(): expected grid to have size {spatial} in last dimension, but got "
            f"grid with sizes {list(grid.shape)}"
        )
    if any(size <= 0 for size in tuple(input.shape)[2:]):
        raise RuntimeError(
            "grid_sampler(): expected input to have non-empty spatial dimensions, but input has "
            f"sizes {list(input.shape)}"
        )
    if mode == "bicubic" and spatial != 2:
        raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")


def _unnormalized(place: Tensor, size: int, align: bool) -> Tensor:
    return (place + 1) / 2 * (size - 1) if align else ((place + 1) * size - 1) / 2


def _padded(place: Tensor, size: int, mode: str, align: bool, solid: bool) -> Tensor:
    """The position, moved inside where the padding says so. What is none (NaN) is at the low end
    of a plane and at the high end of a solid then, as in torch, and else, of a solid, outside."""
    if mode == "zeros":
        return T.where(T.isfinite(place), place, -2.0) if solid else place
    if mode == "reflection":
        low, high = (0, 2 * (size - 1)) if align else (-1, 2 * size - 1)
        place = _reflected(place, low, high, solid)
    # the outermost elements count as outside: no slope there, as in torch
    held = place.detach().clamp(0, size - 1)
    held = T.where(T.isnan(held), float(size - 1 if solid else 0), held)
    return T.where((place > 0) & (place < size - 1), place, held)


def _reflected(place: Tensor, twice_low: int, twice_high: int, solid: bool) -> Tensor:
    if twice_low == twice_high:
        return flat_in(place, T.zeros_like(place))
    least, round_trip = twice_low / 2, twice_high - twice_low
    away = (place - least).abs()
    if solid:
        span = round_trip / 2
        extra, turns = T.fmod(away, span), T.floor(away / span)
        return T.where(T.fmod(turns, 2) == 0, extra + least, span - extra + least)
    # of planes torch rounds the quotient and nothing behind it: what is 1e20 away is at the low end
    turns = (away / round_trip).trunc()
    extra = (away.double() - turns.double() * round_trip).to(away.dtype)
    return T.where(extra > round_trip - extra, round_trip - extra, extra) + least


class _Chosen(NamedTuple):
    """Whole positions along an axis."""

    size: int
    inside: Tensor
    place: Tensor  # one of the axis; any outside


def _chosen(place: Tensor, size: int) -> _Chosen:
    inside = (place >= 0) & (place <= size - 1)
    return _Chosen(size, inside, place.detach().to(_integers(size, _NARROW)).clamp(0, size - 1))


_NARROW = 1 << 24  # whole numbers that float32 has, too


def _integers(size: int, below: int) -> Any:
    """The dtype of so many positions: compiled code goes through twice as many of 32 bits at a
    time. Eager mode's own loops are of 64."""
    return T.int32 if local.trace is not None and size < below else T.int64


def _take(input: Tensor, axes: list[_Chosen]) -> Tensor:
    """Elements at such positions; 0 outside."""
    batch, channels = input.shape[0], input.shape[1]
    plane = math.prod([axis.size for axis in axes])
    narrow = _integers(plane, 1 << 31)
    inside: Any = None
    flat: Any = None
    for axis in axes:
        place = axis.place.to(narrow)
        inside = axis.inside if inside is None else inside & axis.inside
        flat = place if flat is None else flat * axis.size + place
    shape = tuple(flat.shape)
    count = math.prod(shape[1:])
    index = flat.long().reshape(batch, 1, count).expand(batch, channels, count)
    values = input.reshape(batch, channels, plane).gather(2, index)
    values = values.reshape([batch, channels, *shape[1:]])
    return T.where(inside.unsqueeze(1), values, T.zeros((), dtype=input.dtype))


def _bicubic(
    input: Tensor, places: list[Tensor], sizes: list[int], mode: str, align: bool
) -> Tensor:
    floors = [place.floor() for place in places]
    rows, columns = (
        cubic_weights(place - floor) for place, floor in zip(places, floors, strict=True)
    )
    below, beside = (
        [
            _chosen(_padded(floor + (step - 1), size, mode, align, False), size)
            for step in range(4)
        ]
        for floor, size in zip(floors, sizes, strict=True)
    )
    result: Any = None
    for down, row in zip(below, rows, strict=True):
        line: Any = None
        for across, column in zip(beside, columns, strict=True):
            term = _take(input, [down, across]) * column.unsqueeze(1)
            line = term if line is None else line + term
        line = line * row.unsqueeze(1)
        result = line if result is None else result + line
    return result
