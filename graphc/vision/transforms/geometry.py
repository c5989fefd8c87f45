"""Sizes and places: resizing, cropping, flipping, rotating."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import graphc

from . import functional as F
from .functional import InterpolationMode, pair

Numbers = float | Sequence[float]


def _uniform(low: float, high: float) -> float:
    return float(graphc.empty(1).uniform_(low, high).item())


def _integer(low: int, high: int) -> int:
    return int(graphc.randint(low, high, size=(1,)).item())


class Resize:
    """To (height, width), or the shorter side to one number and the longer in proportion."""

    def __init__(
        self, size: Any, interpolation: Any = InterpolationMode.BILINEAR,
        max_size: int | None = None, antialias: bool | None = True,
    ) -> None:
        self.size, self.interpolation = size, interpolation
        self.max_size, self.antialias = max_size, antialias

    def __call__(self, img: Any) -> Any:
        return F.resize(img, self.size, self.interpolation, self.max_size, self.antialias)

    def __repr__(self) -> str:
        return f"Resize(size={self.size}, interpolation={self.interpolation.value})"


class CenterCrop:
    """The middle of that size, with zeros around an image that is too small."""

    def __init__(self, size: Any) -> None:
        self.size = pair(size)

    def __call__(self, img: Any) -> Any:
        return F.center_crop(img, self.size)

    def __repr__(self) -> str:
        return f"CenterCrop(size={self.size})"


class Pad:
    """A border: one number, (left and right, top and bottom) or (left, top, right, bottom)."""

    def __init__(self, padding: Any, fill: Any = 0, padding_mode: str = "constant") -> None:
        self.padding, self.fill, self.padding_mode = padding, fill, padding_mode

    def __call__(self, img: Any) -> Any:
        return F.pad(img, self.padding, self.fill, self.padding_mode)

    def __repr__(self) -> str:
        return f"Pad(padding={self.padding}, fill={self.fill}, padding_mode={self.padding_mode})"


class RandomCrop:
    """A part of that size from anywhere."""

    def __init__(
        self, size: Any, padding: Any = None, pad_if_needed: bool = False, fill: Any = 0,
        padding_mode: str = "constant",
    ) -> None:
        self.size = tuple(pair(size))
        self.padding, self.pad_if_needed = padding, pad_if_needed
        self.fill, self.padding_mode = fill, padding_mode

    @staticmethod
    def get_params(img: Any, output_size: tuple[int, ...]) -> tuple[int, int, int, int]:
        """Top, left, height, width."""
        _, height, width = F.get_dimensions(img)
        h, w = output_size
        if height < h or width < w:
            raise ValueError(
                f"Required crop size {(h, w)} is larger than input image size {(height, width)}"
            )
        if (height, width) == (h, w):
            return 0, 0, h, w
        top = _integer(0, height - h + 1)
        return top, _integer(0, width - w + 1), h, w

    def __call__(self, img: Any) -> Any:
        if self.padding is not None:
            img = F.pad(img, self.padding, self.fill, self.padding_mode)
        _, height, width = F.get_dimensions(img)
        if self.pad_if_needed and width < self.size[1]:
            img = F.pad(img, [self.size[1] - width, 0], self.fill, self.padding_mode)
        if self.pad_if_needed and height < self.size[0]:
            img = F.pad(img, [0, self.size[0] - height], self.fill, self.padding_mode)
        return F.crop(img, *self.get_params(img, self.size))

    def __repr__(self) -> str:
        return f"RandomCrop(size={self.size}, padding={self.padding})"


class _RandomFlip:
    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def __repr__(self) -> str:
        return f"{type(self).__name__}(p={self.p})"


class RandomHorizontalFlip(_RandomFlip):
    """Left and right swapped with probability p."""

    def __call__(self, img: Any) -> Any:
        return F.hflip(img) if graphc.rand(1) < self.p else img


class RandomVerticalFlip(_RandomFlip):
    """Top and bottom swapped with probability p."""

    def __call__(self, img: Any) -> Any:
        return F.vflip(img) if graphc.rand(1) < self.p else img


class RandomResizedCrop:
    """A part of random area and aspect, resized to `size`."""

    def __init__(
        self, size: Any, scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3.0 / 4.0, 4.0 / 3.0),
        interpolation: Any = InterpolationMode.BILINEAR, antialias: bool | None = True,
    ) -> None:
        self.size = pair(size)
        self.scale, self.ratio = scale, ratio
        self.interpolation, self.antialias = interpolation, antialias

    @staticmethod
    def get_params(
        img: Any, scale: Sequence[float], ratio: Sequence[float]
    ) -> tuple[int, int, int, int]:
        """Top, left, height, width; after ten misses the middle, as large as `ratio` allows."""
        _, height, width = F.get_dimensions(img)
        bounds = graphc.log(graphc.tensor(list(ratio)))
        for _ in range(10):
            area = height * width * _uniform(scale[0], scale[1])
            draw = graphc.empty(1).uniform_(float(bounds[0]), float(bounds[1]))
            aspect = graphc.exp(draw).item()
            w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if 0 < w <= width and 0 < h <= height:
                top = _integer(0, height - h + 1)
                return top, _integer(0, width - w + 1), h, w
        if width / height < min(ratio):
            w, h = width, round(width / min(ratio))
        elif width / height > max(ratio):
            w, h = round(height * max(ratio)), height
        else:
            w, h = width, height
        return (height - h) // 2, (width - w) // 2, h, w

    def __call__(self, img: Any) -> Any:
        part = self.get_params(img, self.scale, self.ratio)
        return F.resized_crop(img, *part, self.size, self.interpolation, self.antialias)

    def __repr__(self) -> str:
        return f"RandomResizedCrop(size={self.size}, scale={self.scale}, ratio={self.ratio})"


class FiveCrop:
    """The four corners and the middle, as a tuple."""

    def __init__(self, size: Any) -> None:
        self.size = pair(size)

    def __call__(self, img: Any) -> tuple[Any, ...]:
        return F.five_crop(img, self.size)


class TenCrop:
    """FiveCrop of the image and of its mirror image."""

    def __init__(self, size: Any, vertical_flip: bool = False) -> None:
        self.size, self.vertical_flip = pair(size), vertical_flip

    def __call__(self, img: Any) -> tuple[Any, ...]:
        return F.ten_crop(img, self.size, self.vertical_flip)


def _range(value: Numbers, name: str) -> tuple[float, float]:
    if isinstance(value, (int, float)):
        if value < 0:
            raise ValueError(f"If {name} is a single number, it must be positive, got {value}")
        return -float(value), float(value)
    if len(value) != 2:
        raise ValueError(f"{name} should be a number or a sequence of length 2, got {value}")
    return float(value[0]), float(value[1])


class RandomRotation:
    """Rotation by an angle in degrees, counter-clockwise, drawn from a range."""

    def __init__(
        self, degrees: Numbers, interpolation: Any = InterpolationMode.NEAREST,
        expand: bool = False, center: Sequence[float] | None = None, fill: Any = 0,
    ) -> None:
        self.degrees = _range(degrees, "degrees")
        self.interpolation, self.expand = interpolation, expand
        self.center, self.fill = center, fill

    def __call__(self, img: Any) -> Any:
        angle = _uniform(*self.degrees)
        return F.rotate(img, angle, self.interpolation, self.expand, self.center, self.fill)

    def __repr__(self) -> str:
        return f"RandomRotation(degrees={list(self.degrees)})"


class RandomAffine:
    """Rotation, shift (shares of the size), scale and shear (degrees), each from its range."""

    def __init__(
        self, degrees: Numbers, translate: Sequence[float] | None = None,
        scale: Sequence[float] | None = None, shear: Any = None,
        interpolation: Any = InterpolationMode.NEAREST, fill: Any = 0,
        center: Sequence[float] | None = None,
    ) -> None:
        self.degrees, self.translate, self.scale = _range(degrees, "degrees"), translate, scale
        if isinstance(shear, (int, float)):
            shear = _range(shear, "shear")
        self.shear, self.interpolation = shear, interpolation
        self.fill, self.center = fill, center

    def __call__(self, img: Any) -> Any:
        _, height, width = F.get_dimensions(img)
        angle = _uniform(*self.degrees)
        shift = (0, 0)
        if self.translate is not None:
            most_x, most_y = self.translate[0] * width, self.translate[1] * height
            shift = round(_uniform(-most_x, most_x)), round(_uniform(-most_y, most_y))
        scale = 1.0 if self.scale is None else _uniform(self.scale[0], self.scale[1])
        shear = [0.0, 0.0]
        if self.shear is not None:
            shear[0] = _uniform(self.shear[0], self.shear[1])
            if len(self.shear) == 4:
                shear[1] = _uniform(self.shear[2], self.shear[3])
        return F.affine(
            img, angle, shift, scale, shear, self.interpolation, self.fill, self.center
        )
