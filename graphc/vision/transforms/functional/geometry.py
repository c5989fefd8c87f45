"""Resizing, cropping, flipping, rotating."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import graphc
from graphc import Tensor
from graphc.nn import functional as nnf

from .image import InterpolationMode, check_image, get_dimensions, is_pil, pair

_MODES = {
    InterpolationMode.NEAREST, InterpolationMode.NEAREST_EXACT, InterpolationMode.BILINEAR,
    InterpolationMode.BICUBIC,
}


def _target(img: Any, size: Any, max_size: int | None) -> tuple[int, int]:
    sizes = [size] if isinstance(size, int) else list(size)
    if len(sizes) == 2:
        return int(sizes[0]), int(sizes[1])
    _, height, width = get_dimensions(img)
    short, long = sorted((height, width))
    new_short, new_long = int(sizes[0]), int(sizes[0] * long / short)
    if max_size is not None and new_long > max_size:
        if max_size <= sizes[0]:
            raise ValueError(f"max_size = {max_size} must be strictly greater than {size}")
        new_short, new_long = int(max_size * new_short / new_long), max_size
    return (new_short, new_long) if height <= width else (new_long, new_short)


def as_batch(img: Tensor) -> tuple[Tensor, Any]:
    """A float Tensor [N, C, H, W], and what its result is brought back with."""
    batch = img.reshape((-1, 1, *img.shape[-2:])) if img.ndim < 4 else img
    leading, dtype = img.shape[:-2], img.dtype
    if not batch.is_floating_point():
        batch = batch.to(graphc.float32)

    def back(result: Tensor) -> Tensor:
        if not dtype.is_floating_point:
            if dtype in (graphc.uint8, graphc.int8):
                info = graphc.iinfo(dtype)
                result = result.clamp(info.min, info.max)
            result = result.round().to(dtype)
        return result.reshape((*leading, *result.shape[-2:]))

    return batch, back


def resize(
    img: Any, size: Any, interpolation: Any = InterpolationMode.BILINEAR,
    max_size: int | None = None, antialias: bool | None = True,
) -> Any:
    """To (height, width), or the shorter side to one number and the longer in proportion."""
    check_image(img, "resize()")
    mode = InterpolationMode.of(interpolation)
    height, width = _target(img, size, max_size)
    if is_pil(img):
        return img if img.size == (width, height) else img.resize((width, height), mode.pillow)
    if mode not in _MODES:
        raise ValueError(f"Interpolation mode {mode.value} is for PIL images only")
    if tuple(img.shape[-2:]) == (height, width):
        return img
    batch, back = as_batch(img)
    smooth = mode in (InterpolationMode.BILINEAR, InterpolationMode.BICUBIC)
    return back(nnf.interpolate(
        batch, size=[height, width], mode=mode.value,
        align_corners=False if smooth else None, antialias=bool(antialias) and smooth,
    ))


def crop(img: Any, top: int, left: int, height: int, width: int) -> Any:
    """The part from (top, left); zeros where it lies outside."""
    check_image(img, "crop()")
    if is_pil(img):
        return img.crop((left, top, left + width, top + height))
    _, rows, columns = get_dimensions(img)
    right, bottom = left + width, top + height
    inside = img[..., max(top, 0) : max(bottom, 0), max(left, 0) : max(right, 0)]
    if left < 0 or top < 0 or right > columns or bottom > rows:
        low_x, high_x = max(min(right, 0) - left, 0), max(right - max(columns, left), 0)
        low_y, high_y = max(min(bottom, 0) - top, 0), max(bottom - max(rows, top), 0)
        return nnf.pad(inside, [low_x, high_x, low_y, high_y])
    return inside


def _border(padding: Any) -> tuple[int, int, int, int]:
    """Left, top, right, bottom."""
    sides = [padding] if isinstance(padding, int) else [int(p) for p in padding]
    if len(sides) not in (1, 2, 4):
        raise ValueError(
            f"Padding must be an int or a 1, 2, or 4 element tuple, not a {len(sides)} element one"
        )
    left, top, right, bottom = (sides * (4 // len(sides)))[:4]
    return left, top, right, bottom


def pad(img: Any, padding: Any, fill: Any = 0, padding_mode: str = "constant") -> Any:
    """A border: `padding_mode` constant, edge, reflect or symmetric."""
    check_image(img, "pad()")
    if padding_mode not in ("constant", "edge", "reflect", "symmetric"):
        raise ValueError(
            "Padding mode should be either constant, edge, reflect or symmetric, "
            f"got {padding_mode}"
        )
    left, top, right, bottom = _border(padding)
    if is_pil(img):
        return _pad_pil(img, (left, top, right, bottom), fill, padding_mode)
    if padding_mode == "constant":
        value = fill[0] if isinstance(fill, (tuple, list)) else fill
        return nnf.pad(img, [left, right, top, bottom], value=float(value))
    rows = _places(img.shape[-2], top, bottom, padding_mode)
    columns = _places(img.shape[-1], left, right, padding_mode)
    return img[..., rows[:, None], columns]


def _places(size: int, low: int, high: int, mode: str) -> Tensor:
    return graphc.from_numpy(np.pad(np.arange(size), (low, high), mode=mode))  # type: ignore[call-overload]


def _pad_pil(img: Any, border: tuple[int, int, int, int], fill: Any, mode: str) -> Any:
    from PIL import Image, ImageOps  # late: the optional package for images

    if mode == "constant":
        if isinstance(fill, (int, float)) and len(img.getbands()) > 1:
            fill = (int(fill),) * len(img.getbands())
        return ImageOps.expand(img, border=border, fill=fill)
    left, top, right, bottom = border
    pixels = np.asarray(img)
    widths = [(top, bottom), (left, right), (0, 0)][: pixels.ndim]
    padded = np.pad(pixels, widths, mode=mode)  # type: ignore[call-overload]
    return Image.fromarray(padded, img.mode) if img.mode == "P" else Image.fromarray(padded)


def center_crop(img: Any, output_size: Any) -> Any:
    """The middle of that size, with zeros around an image that is too small."""
    height, width = pair(output_size)
    _, rows, columns = get_dimensions(img)
    if width > columns or height > rows:
        left, top = max(width - columns, 0) // 2, max(height - rows, 0) // 2
        right, bottom = (max(width - columns, 0) + 1) // 2, (max(height - rows, 0) + 1) // 2
        img = pad(img, [left, top, right, bottom])
        _, rows, columns = get_dimensions(img)
        if (width, height) == (columns, rows):
            return img
    top, left = round((rows - height) / 2.0), round((columns - width) / 2.0)
    return crop(img, top, left, height, width)


def resized_crop(
    img: Any, top: int, left: int, height: int, width: int, size: Any,
    interpolation: Any = InterpolationMode.BILINEAR, antialias: bool | None = True,
) -> Any:
    """A part, resized."""
    part = crop(img, top, left, height, width)
    return resize(part, size, interpolation, antialias=antialias)


def hflip(img: Any) -> Any:
    """Left and right swapped."""
    check_image(img, "hflip()")
    return img.flip(-1) if isinstance(img, Tensor) else img.transpose(0)


def vflip(img: Any) -> Any:
    """Top and bottom swapped."""
    check_image(img, "vflip()")
    return img.flip(-2) if isinstance(img, Tensor) else img.transpose(1)


def five_crop(img: Any, size: Any) -> tuple[Any, ...]:
    """Top left, top right, bottom left, bottom right, middle."""
    height, width = pair(size)
    _, rows, columns = get_dimensions(img)
    if width > columns or height > rows:
        raise ValueError(f"Requested crop size {size} is bigger than input size {(rows, columns)}")
    corners = [(t, l_) for t in (0, rows - height) for l_ in (0, columns - width)]
    parts = [crop(img, top, left, height, width) for top, left in corners]
    return (*parts, center_crop(img, [height, width]))


def ten_crop(img: Any, size: Any, vertical_flip: bool = False) -> tuple[Any, ...]:
    """five_crop of the image and of its mirror image."""
    mirrored = vflip(img) if vertical_flip else hflip(img)
    return five_crop(img, size) + five_crop(mirrored, size)


def _inverse(
    center: Sequence[float], angle: float, translate: Sequence[float], scale: float,
    shear: Sequence[float],
) -> list[float]:
    """The 2x3 matrix from output to input places: the inverse of T C R S H C^-1."""
    rotation, shear_x, shear_y = (math.radians(a) for a in (angle, *shear))
    turn = rotation - shear_y
    linear = np.array([
        [math.cos(turn) / math.cos(shear_y),
         -math.cos(turn) * math.tan(shear_x) / math.cos(shear_y) - math.sin(rotation)],
        [math.sin(turn) / math.cos(shear_y),
         -math.sin(turn) * math.tan(shear_x) / math.cos(shear_y) + math.cos(rotation)],
    ]) * scale
    inverse = np.linalg.inv(linear)
    middle = np.asarray(center, float)
    offset = middle - inverse @ (middle + np.asarray(translate, float))
    return [*inverse[0], offset[0], *inverse[1], offset[1]]


def _transform(
    img: Tensor, matrix: Sequence[float], mode: InterpolationMode, fill: Any,
    size: tuple[int, int] | None = None,
) -> Tensor:
    """Sample the image at matrix @ place, places measured from the middle in pixels."""
    if mode not in (InterpolationMode.NEAREST, InterpolationMode.BILINEAR):
        raise ValueError(f"Interpolation mode {mode.value} is not supported with Tensor input")
    batch, back = as_batch(img)
    rows, columns = batch.shape[-2:]
    height, width = size or (rows, columns)
    x = graphc.linspace(-width * 0.5 + 0.5, width * 0.5 - 0.5, width, dtype=batch.dtype)
    y = graphc.linspace(-height * 0.5 + 0.5, height * 0.5 - 0.5, height, dtype=batch.dtype)
    a, b, c, d, e, f = (float(v) for v in matrix)
    grid = graphc.stack([
        (a * x[None, :] + b * y[:, None] + c) / (0.5 * columns),
        (d * x[None, :] + e * y[:, None] + f) / (0.5 * rows),
    ], -1).expand(batch.shape[0], height, width, 2)
    options = {"mode": mode.value, "padding_mode": "zeros", "align_corners": False}
    result = nnf.grid_sample(batch, grid, **options)
    if fill:
        colour = graphc.as_tensor(fill, dtype=batch.dtype).reshape(-1)
        channels = colour.expand(get_dimensions(img)[0])
        every = channels.repeat(batch.shape[0] * batch.shape[1] // len(channels))
        every = every.view(batch.shape[0], batch.shape[1], 1, 1)
        seen = nnf.grid_sample(graphc.ones_like(batch), grid, **options)
        if mode is InterpolationMode.NEAREST:
            result = graphc.where(seen < 0.5, every, result)
        else:
            result = result * seen + (1.0 - seen) * every
    return back(result)


def rotate(
    img: Any, angle: float, interpolation: Any = InterpolationMode.NEAREST, expand: bool = False,
    center: Sequence[float] | None = None, fill: Any = None,
) -> Any:
    """Rotated counter-clockwise by `angle` degrees about `center` (x, y), the middle if None."""
    check_image(img, "rotate()")
    mode = InterpolationMode.of(interpolation)
    if is_pil(img):
        colour = _fill_colour(img, fill)
        return img.rotate(angle, mode.pillow, expand, center, fillcolor=colour)
    _, rows, columns = get_dimensions(img)
    middle = [0.0, 0.0] if center is None else [
        center[0] - columns * 0.5, center[1] - rows * 0.5
    ]
    matrix = _inverse(middle, -angle, [0.0, 0.0], 1.0, [0.0, 0.0])
    size = _expanded(matrix, columns, rows) if expand else None
    return _transform(img, matrix, mode, fill, size)


def _expanded(matrix: Sequence[float], columns: int, rows: int) -> tuple[int, int]:
    """The size that holds the whole rotated image."""
    corners = np.array([[x, y, 1.0] for x in (-0.5 * columns, 0.5 * columns)
                        for y in (-0.5 * rows, 0.5 * rows)])
    placed = corners @ np.asarray(matrix).reshape(2, 3).T
    halves = np.array([columns, rows]) * 0.5
    ends = np.array([placed.min(0) + halves, placed.max(0) + halves], np.float32)
    low, high = np.trunc(ends / np.float32(1e-4)) * np.float32(1e-4)
    spread = np.ceil(high) - np.floor(low)
    return int(spread[1]), int(spread[0])


def _fill_colour(img: Any, fill: Any) -> Any:
    bands = len(img.getbands())
    if fill is None:
        fill = 0
    return (fill,) * bands if isinstance(fill, (int, float)) and bands > 1 else fill


def affine(
    img: Any, angle: float, translate: Sequence[int], scale: float, shear: Any,
    interpolation: Any = InterpolationMode.NEAREST, fill: Any = None,
    center: Sequence[float] | None = None,
) -> Any:
    """Rotation (degrees, clockwise), shift in pixels, scale and shear (degrees) about a centre."""
    check_image(img, "affine()")
    if scale <= 0:
        raise ValueError(f"Argument scale should be positive, got {scale}")
    sheared = [float(shear), 0.0] if isinstance(shear, (int, float)) else [float(s) for s in shear]
    sheared = [*sheared, 0.0][:2]
    mode = InterpolationMode.of(interpolation)
    _, rows, columns = get_dimensions(img)
    if is_pil(img):
        middle = [columns * 0.5, rows * 0.5] if center is None else list(center)
        matrix = _inverse(middle, angle, translate, scale, sheared)
        return img.transform(
            (columns, rows), 0, matrix, mode.pillow, fillcolor=_fill_colour(img, fill)
        )
    middle = [0.0, 0.0] if center is None else [
        center[0] - columns * 0.5, center[1] - rows * 0.5
    ]
    return _transform(img, _inverse(middle, angle, translate, scale, sheared), mode, fill)
