"""Colours of RGB and grey images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import graphc
from graphc import Tensor
from graphc.nn import functional as nnf

from .geometry import as_batch
from .image import (
    check_image,
    convert_image_dtype,
    get_dimensions,
    is_pil,
    pil_to_tensor,
    to_pil_image,
)


def _most(img: Tensor) -> float:
    return 1.0 if img.is_floating_point() else float(graphc.iinfo(img.dtype).max)


def _blend(img: Tensor, other: Tensor, ratio: float) -> Tensor:
    blended = ratio * img + (1.0 - ratio) * other
    return blended.clamp(0, _most(img)).to(img.dtype)


def _check_channels(img: Tensor, name: str) -> int:
    channels = get_dimensions(img)[0]
    if channels not in (1, 3):
        raise TypeError(f"{name}: input image tensor permitted channel values are 1 or 3, "
                        f"but found {channels}")
    return channels


def _enhance(img: Any, kind: str, factor: float) -> Any:
    from PIL import ImageEnhance  # late: the optional package for images

    return getattr(ImageEnhance, kind)(img).enhance(factor)


def _check_factor(name: str, factor: float) -> None:
    if factor < 0:
        raise ValueError(f"{name} ({factor}) is not non-negative.")


def rgb_to_grayscale(img: Any, num_output_channels: int = 1) -> Any:
    """ITU-R 601-2 luma: 0.2989 R + 0.587 G + 0.114 B, in 1 or 3 channels."""
    check_image(img, "rgb_to_grayscale()")
    if num_output_channels not in (1, 3):
        raise ValueError(f"num_output_channels should be either 1 or 3, got {num_output_channels}")
    if is_pil(img):
        grey = img.convert("L")
        return grey if num_output_channels == 1 else grey.convert("RGB")
    if _check_channels(img, "rgb_to_grayscale") == 1:
        luma = img
    else:
        red, green, blue = img.unbind(dim=-3)
        luma = (0.2989 * red + 0.587 * green + 0.114 * blue).to(img.dtype).unsqueeze(-3)
    if num_output_channels == 3:
        return luma.expand((*luma.shape[:-3], 3, *luma.shape[-2:])).clone()
    return luma.clone() if luma is img else luma


to_grayscale = rgb_to_grayscale


def invert(img: Any) -> Any:
    """White minus the image."""
    check_image(img, "invert()")
    if is_pil(img):
        from PIL import ImageOps  # late: the optional package for images

        return ImageOps.invert(img)
    most = 1 if img.is_floating_point() else graphc.iinfo(img.dtype).max
    return most - img


def adjust_brightness(img: Any, brightness_factor: float) -> Any:
    """0 is black, 1 the image, 2 twice as bright."""
    check_image(img, "adjust_brightness()")
    _check_factor("brightness_factor", brightness_factor)
    if is_pil(img):
        return _enhance(img, "Brightness", brightness_factor)
    _check_channels(img, "adjust_brightness")
    return _blend(img, graphc.zeros_like(img), brightness_factor)


def adjust_contrast(img: Any, contrast_factor: float) -> Any:
    """0 is the mean grey, 1 the image."""
    check_image(img, "adjust_contrast()")
    _check_factor("contrast_factor", contrast_factor)
    if is_pil(img):
        return _enhance(img, "Contrast", contrast_factor)
    grey = rgb_to_grayscale(img) if _check_channels(img, "adjust_contrast") == 3 else img
    dtype = img.dtype if img.is_floating_point() else graphc.float32
    mean = grey.to(dtype).mean(dim=(-3, -2, -1), keepdim=True)
    return _blend(img, mean, contrast_factor)


def adjust_saturation(img: Any, saturation_factor: float) -> Any:
    """0 is grey, 1 the image."""
    check_image(img, "adjust_saturation()")
    _check_factor("saturation_factor", saturation_factor)
    if is_pil(img):
        return _enhance(img, "Color", saturation_factor)
    if _check_channels(img, "adjust_saturation") == 1:
        return img
    return _blend(img, rgb_to_grayscale(img), saturation_factor)


def adjust_gamma(img: Any, gamma: float, gain: float = 1) -> Any:
    """255 gain (I / 255) ** gamma."""
    check_image(img, "adjust_gamma()")
    _check_factor("gamma", gamma)
    if is_pil(img):
        levels = [int((255 + 1 - 1e-3) * gain * (level / 255.0) ** gamma) for level in range(256)]
        mode = img.mode
        table = [min(max(level, 0), 255) for level in levels]
        rgb = img if mode in ("L", "RGB") else img.convert("RGB")
        return rgb.point(table * len(rgb.getbands())).convert(mode)
    scaled = convert_image_dtype(img) if not img.is_floating_point() else img
    return convert_image_dtype((gain * scaled**gamma).clamp(0, 1), img.dtype)


def adjust_hue(img: Any, hue_factor: float) -> Any:
    """The hue turned by that part of the circle, -0.5 to 0.5."""
    check_image(img, "adjust_hue()")
    if not -0.5 <= hue_factor <= 0.5:
        raise ValueError(f"hue_factor ({hue_factor}) is not in [-0.5, 0.5].")
    if is_pil(img):
        return _turn_pil(img, hue_factor)
    if _check_channels(img, "adjust_hue") == 1:
        return img
    dtype = img.dtype
    rgb = img if img.is_floating_point() else img.to(graphc.float32) / 255.0
    hue, saturation, value = _to_hsv(rgb)
    turned = _to_rgb((hue + hue_factor).remainder(1.0), saturation, value)
    return turned if dtype.is_floating_point else (turned * (255.0 + 1.0 - 1e-3)).to(dtype)


def _turn_pil(img: Any, hue_factor: float) -> Any:
    from PIL import Image  # late: the optional package for images

    if img.mode in ("L", "1", "I", "F"):
        return img
    hue, saturation, value = img.convert("HSV").split()
    turned = (np.asarray(hue).astype(np.int32) + int(hue_factor * 255)) % 256
    bands = (Image.fromarray(turned.astype(np.uint8)), saturation, value)
    return Image.merge("HSV", bands).convert(img.mode)


def _to_hsv(rgb: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    red, green, blue = rgb.unbind(dim=-3)
    most, least = rgb.amax(dim=-3), rgb.amin(dim=-3)
    grey = most == least
    span = most - least
    one = graphc.ones_like(most)
    saturation = span / graphc.where(grey, one, most)
    divisor = graphc.where(grey, one, span)
    to_red, to_green, to_blue = ((most - c) / divisor for c in (red, green, blue))
    hue = graphc.where(
        most == red, to_blue - to_green,
        graphc.where(most == green, 2.0 + to_red - to_blue, 4.0 + to_green - to_red),
    )
    return (hue / 6.0 + 1.0).remainder(1.0), saturation, most


def _to_rgb(hue: Tensor, saturation: Tensor, value: Tensor) -> Tensor:
    sector = graphc.floor(hue * 6.0)
    rest = hue * 6.0 - sector
    number = sector.to(graphc.int32) % 6
    low = (value * (1.0 - saturation)).clamp(0.0, 1.0)
    falling = (value * (1.0 - saturation * rest)).clamp(0.0, 1.0)
    rising = (value * (1.0 - saturation * (1.0 - rest))).clamp(0.0, 1.0)
    orders = (
        (value, falling, low, low, rising, value),
        (rising, value, value, falling, low, low),
        (low, low, rising, value, value, falling),
    )
    channels = []
    for order in orders:
        channel = order[5]
        for k in range(4, -1, -1):
            channel = graphc.where(number == k, order[k], channel)
        channels.append(channel)
    return graphc.stack(channels, dim=-3)


def gaussian_blur(img: Any, kernel_size: Sequence[int], sigma: Any = None) -> Any:
    """Blur by a Gauss kernel [height, width] of odd sizes, borders reflected."""
    check_image(img, "gaussian_blur()")
    if is_pil(img):
        return to_pil_image(gaussian_blur(pil_to_tensor(img), kernel_size, sigma), img.mode)
    sizes = [kernel_size] * 2 if isinstance(kernel_size, int) else list(kernel_size)
    if sigma is None:
        sigma = [k * 0.15 + 0.35 for k in sizes]
    widths = [float(sigma)] * 2 if isinstance(sigma, (int, float)) else [float(s) for s in sigma]
    widths = widths * 2 if len(widths) == 1 else widths
    for size, width in zip(sizes, widths, strict=True):
        if size % 2 == 0 or size < 0 or width <= 0:
            raise ValueError(f"kernel_size should be odd and positive and sigma positive, "
                             f"got {kernel_size} and {sigma}")
    batch, back = as_batch(img)
    rows, columns = (_bell(k, s, batch) for k, s in zip(sizes, widths, strict=True))
    half = [size // 2 for size in sizes]
    padded = nnf.pad(batch, [half[1], half[1], half[0], half[0]], mode="reflect")
    channels = padded.shape[1]
    kernel = (rows[:, None] * columns[None, :]).expand(channels, 1, *sizes)
    return back(nnf.conv2d(padded, kernel, groups=channels))


def _bell(size: int, sigma: float, like: Tensor) -> Tensor:
    half = (size - 1) * 0.5
    x = graphc.linspace(-half, half, steps=size, dtype=like.dtype)
    bell = graphc.exp(-0.5 * (x / sigma).pow(2))
    return bell / bell.sum()
