"""Colours: jitter, grey, blur, inversion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import graphc

from . import functional as F
from .functional import pair

Range = tuple[float, float] | None


class Grayscale:
    """ITU-R 601-2 luma, in 1 or 3 equal channels."""

    def __init__(self, num_output_channels: int = 1) -> None:
        self.num_output_channels = num_output_channels

    def __call__(self, img: Any) -> Any:
        return F.rgb_to_grayscale(img, self.num_output_channels)

    def __repr__(self) -> str:
        return f"Grayscale(num_output_channels={self.num_output_channels})"


class RandomGrayscale:
    """Grayscale with probability p, in as many channels as the image has."""

    def __init__(self, p: float = 0.1) -> None:
        self.p = p

    def __call__(self, img: Any) -> Any:
        channels = F.get_dimensions(img)[0]
        return F.rgb_to_grayscale(img, channels) if graphc.rand(1) < self.p else img


class RandomInvert:
    """Colours inverted with probability p."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def __call__(self, img: Any) -> Any:
        return F.invert(img) if graphc.rand(1).item() < self.p else img


def _limits(value: Any, name: str, center: float = 1.0, most: float = float("inf")) -> Range:
    if isinstance(value, (int, float)):
        if value < 0:
            raise ValueError(f"If {name} is a single number, it must be non negative, got {value}")
        low, high = center - float(value), center + float(value)
        low = max(low, 0.0) if center else low
    else:
        low, high = float(value[0]), float(value[1])
    least = 0.0 if center else -0.5
    if not least <= low <= high <= most:
        raise ValueError(f"{name} values should be between {least} and {most}, got {low}, {high}")
    return None if low == high == center else (low, high)


class ColorJitter:
    """Brightness, contrast, saturation and hue by random factors, in random order."""

    def __init__(
        self, brightness: Any = 0, contrast: Any = 0, saturation: Any = 0, hue: Any = 0
    ) -> None:
        self.brightness = _limits(brightness, "brightness")
        self.contrast = _limits(contrast, "contrast")
        self.saturation = _limits(saturation, "saturation")
        self.hue = _limits(hue, "hue", 0.0, 0.5)

    def __call__(self, img: Any) -> Any:
        order = graphc.randperm(4).tolist()
        ranges = (self.brightness, self.contrast, self.saturation, self.hue)
        factors = [
            None if r is None else float(graphc.empty(1).uniform_(r[0], r[1])) for r in ranges
        ]
        adjust = (F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue)
        for i in order:
            factor = factors[i]
            if factor is not None:
                img = adjust[i](img, factor)
        return img

    def __repr__(self) -> str:
        return (
            f"ColorJitter(brightness={self.brightness}, contrast={self.contrast}, "
            f"saturation={self.saturation}, hue={self.hue})"
        )


class GaussianBlur:
    """Blur by a Gauss kernel of odd size, sigma drawn from a range."""

    def __init__(self, kernel_size: Any, sigma: float | Sequence[float] = (0.1, 2.0)) -> None:
        self.kernel_size = pair(kernel_size)
        if any(k <= 0 or k % 2 == 0 for k in self.kernel_size):
            raise ValueError(f"Kernel size value should be an odd and positive number, "
                             f"got {self.kernel_size}")
        low, high = (sigma, sigma) if isinstance(sigma, (int, float)) else sigma
        if not 0 < low <= high:
            raise ValueError(f"sigma values should be positive and of the form (min, max), "
                             f"got {(low, high)}")
        self.sigma = (float(low), float(high))

    def __call__(self, img: Any) -> Any:
        sigma = graphc.empty(1).uniform_(*self.sigma).item()
        return F.gaussian_blur(img, self.kernel_size, [sigma, sigma])
