"""The transforms as functions (torchvision.transforms.functional)."""

from .colour import (
    adjust_brightness,
    adjust_contrast,
    adjust_gamma,
    adjust_hue,
    adjust_saturation,
    gaussian_blur,
    invert,
    rgb_to_grayscale,
    to_grayscale,
)
from .geometry import (
    affine,
    center_crop,
    crop,
    five_crop,
    hflip,
    pad,
    resize,
    resized_crop,
    rotate,
    ten_crop,
    vflip,
)
from .image import (
    InterpolationMode,
    convert_image_dtype,
    erase,
    get_dimensions,
    get_image_num_channels,
    get_image_size,
    normalize,
    pair,
    pil_to_tensor,
    to_pil_image,
    to_tensor,
)

__all__ = [
    "InterpolationMode", "adjust_brightness", "adjust_contrast", "adjust_gamma", "adjust_hue",
    "adjust_saturation", "affine", "center_crop", "convert_image_dtype", "crop", "erase",
    "five_crop", "gaussian_blur", "get_dimensions", "get_image_num_channels", "get_image_size",
    "hflip", "invert", "normalize", "pad", "pair", "pil_to_tensor", "resize", "resized_crop",
    "rgb_to_grayscale", "rotate", "ten_crop", "to_grayscale", "to_pil_image", "to_tensor", "vflip",
]
