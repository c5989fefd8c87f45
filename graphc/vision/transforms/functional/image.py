"""What an image is, and its conversions."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import Enum
from typing import Any

import numpy as np

import graphc
from graphc import Tensor


class InterpolationMode(Enum):
    """How values between pixels are made."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"

    @classmethod
    def of(cls, value: Any) -> InterpolationMode:
        """The mode itself, or by Pillow's number."""
        numbers = (cls.NEAREST, cls.LANCZOS, cls.BILINEAR, cls.BICUBIC, cls.BOX, cls.HAMMING)
        return numbers[value] if isinstance(value, int) else cls(value)

    @property
    def pillow(self) -> int:
        """Pillow's number for it."""
        order = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
        return order.index(self.value.removesuffix("-exact"))


def is_pil(image: Any) -> bool:
    """Whether this is a PIL image (whose package is then loaded already)."""
    module = sys.modules.get("PIL.Image")
    return module is not None and isinstance(image, module.Image)


def check_image(image: Any, what: str) -> None:
    """Raise TypeError unless it is a Tensor [..., H, W] or a PIL image."""
    if not (is_pil(image) or (isinstance(image, Tensor) and image.ndim >= 2)):
        raise TypeError(
            f"{what} takes a Tensor [..., H, W] or a PIL image, got {type(image).__name__}"
        )


def pair(size: Any) -> list[int]:
    """One number or two as [height, width]."""
    sizes = [int(size)] if isinstance(size, (int, float)) else [int(s) for s in size]
    if len(sizes) not in (1, 2):
        raise ValueError(f"Please provide only two dimensions (h, w) for size, got {size}")
    return sizes * 2 if len(sizes) == 1 else sizes


def get_dimensions(img: Any) -> list[int]:
    """[channels, height, width]."""
    check_image(img, "get_dimensions()")
    if isinstance(img, Tensor):
        return [1 if img.ndim == 2 else img.shape[-3], img.shape[-2], img.shape[-1]]
    return [len(img.getbands()), img.size[1], img.size[0]]


def get_image_num_channels(img: Any) -> int:
    """The number of channels."""
    return get_dimensions(img)[0]


def get_image_size(img: Any) -> list[int]:
    """[width, height]."""
    return get_dimensions(img)[:0:-1]


def _pixels(pic: Any) -> np.ndarray:
    """A PIL image as an array [H, W, C]."""
    kinds = {"I": np.int32, "I;16": np.uint16, "F": np.float32}
    array = np.array(pic, kinds.get(pic.mode, np.uint8), copy=True)
    if pic.mode == "1":
        array = array * 255
    return array[:, :, None] if array.ndim == 2 else array


def pil_to_tensor(pic: Any) -> Tensor:
    """A PIL image to a Tensor [C, H, W] of the same dtype."""
    if not is_pil(pic):
        raise TypeError(f"pic should be PIL Image. Got {type(pic)}")
    return graphc.from_numpy(np.ascontiguousarray(_pixels(pic).transpose(2, 0, 1)))


def to_tensor(pic: Any) -> Tensor:
    """An image to a Tensor [C, H, W]; uint8 becomes the default dtype, in [0, 1]."""
    if is_pil(pic):
        array = _pixels(pic)
    elif isinstance(pic, np.ndarray):
        if pic.ndim not in (2, 3):
            raise ValueError(
                f"ToTensor takes an image [H, W] or [H, W, C], got shape {list(pic.shape)}"
            )
        array = pic[:, :, None] if pic.ndim == 2 else pic
    else:
        raise TypeError(f"pic should be PIL Image or ndarray. Got {type(pic)}")
    channels_first = np.ascontiguousarray(array.transpose(2, 0, 1))
    if array.dtype == np.uint8:
        return graphc.from_numpy(channels_first).to(graphc.get_default_dtype()).div_(255)
    if channels_first.base is not None:
        channels_first = channels_first.copy()  # the Tensor must not alias the data set
    return graphc.from_numpy(channels_first)


def to_pil_image(pic: Any, mode: str | None = None) -> Any:
    """A Tensor [C, H, W] or [H, W], or an array [H, W, C], to a PIL image."""
    from PIL import Image  # late: the optional package for images

    if isinstance(pic, Tensor):
        if pic.ndim not in (2, 3):
            raise ValueError(f"pic should be 2/3 dimensional. Got {pic.ndim} dimensions.")
        pic = pic.unsqueeze(0) if pic.ndim == 2 else pic
        if pic.is_floating_point() and mode != "F":
            pic = pic.mul(255).byte()
        pic = pic.permute(1, 2, 0).numpy()
    elif not isinstance(pic, np.ndarray):
        raise TypeError(f"pic should be Tensor or ndarray. Got {type(pic)}.")
    array = pic[:, :, None] if pic.ndim == 2 else pic
    channels = array.shape[2]
    if channels > 4 or (channels > 1 and array.dtype != np.uint8):
        raise TypeError(f"no PIL image has {channels} channels of {array.dtype}")
    if channels == 1:
        modes = {"uint8": "L", "int16": "I;16", "uint16": "I;16", "int32": "I", "float32": "F"}
        known = modes.get(str(array.dtype))
        array = array[:, :, 0]
    else:
        known = {2: "LA", 3: "RGB", 4: "RGBA"}[channels]
    if known is None:
        raise TypeError(f"Input type {array.dtype} is not supported")
    image = Image.fromarray(np.ascontiguousarray(array))
    return image if mode is None or mode == image.mode else image.convert(mode)


def convert_image_dtype(image: Tensor, dtype: Any = graphc.float32) -> Tensor:
    """Another dtype, scaled to its range: floats 0 to 1, integers 0 to their maximum."""
    if image.dtype == dtype:
        return image
    if image.is_floating_point():
        if dtype.is_floating_point:
            return image.to(dtype)
        most = graphc.iinfo(dtype).max
        return image.mul(most + 1 - 1e-3).to(dtype)
    most = graphc.iinfo(image.dtype).max
    if dtype.is_floating_point:
        return image.to(dtype) / most
    new = graphc.iinfo(dtype).max
    if most > new:
        return (image // ((most + 1) // (new + 1))).to(dtype)
    return image.to(dtype) * ((new + 1) // (most + 1))


def normalize(
    tensor: Tensor, mean: Sequence[float], std: Sequence[float], inplace: bool = False
) -> Tensor:
    """(tensor - mean) / std per channel of a float Tensor [..., C, H, W]."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"img should be Tensor Image. Got {type(tensor)}")
    if not tensor.is_floating_point():
        raise TypeError(
            f"Normalize takes a float Tensor, got {tensor.dtype}: ToTensor() first"
        )
    if tensor.ndim < 3:
        raise ValueError(f"Normalize takes [..., C, H, W], got shape {list(tensor.shape)}")
    means, deviations = (
        graphc.as_tensor(v, dtype=tensor.dtype, device=tensor.device) for v in (mean, std)
    )
    if (deviations == 0).any():
        raise ValueError(f"std {std} has a zero in {tensor.dtype}, which would divide by zero")
    if means.ndim == 1:
        means = means.view(-1, 1, 1)
    if deviations.ndim == 1:
        deviations = deviations.view(-1, 1, 1)
    result = tensor if inplace else tensor.clone()
    return result.sub_(means).div_(deviations)


def erase(
    img: Tensor, i: int, j: int, h: int, w: int, v: Tensor, inplace: bool = False
) -> Tensor:
    """The image with the rectangle at row i, column j overwritten by v."""
    result = img if inplace else img.clone()
    result[..., i : i + h, j : j + w] = v
    return result
