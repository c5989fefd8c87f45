"""Between images, arrays and Tensors; normalisation; erasing."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import graphc
from graphc import Tensor

from . import functional as F


class ToTensor:
    """A PIL image or array [H, W] or [H, W, C] to a Tensor [C, H, W]: uint8 becomes float32 in
    [0, 1]; other dtypes keep their type and values."""

    def __call__(self, pic: Any) -> Tensor:
        return F.to_tensor(pic)

    def __repr__(self) -> str:
        return "ToTensor()"


class PILToTensor:
    """A PIL image to a Tensor [C, H, W] of the same dtype."""

    def __call__(self, pic: Any) -> Tensor:
        return F.pil_to_tensor(pic)

    def __repr__(self) -> str:
        return "PILToTensor()"


class ToPILImage:
    """A Tensor [C, H, W] or array [H, W, C] to a PIL image; floats are taken as 0 to 1."""

    def __init__(self, mode: str | None = None) -> None:
        self.mode = mode

    def __call__(self, pic: Any) -> Any:
        return F.to_pil_image(pic, self.mode)

    def __repr__(self) -> str:
        return "ToPILImage()" if self.mode is None else f"ToPILImage(mode={self.mode})"


class ConvertImageDtype:
    """Another dtype, scaled to its range: floats 0 to 1, integers 0 to their maximum."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype

    def __call__(self, image: Tensor) -> Tensor:
        return F.convert_image_dtype(image, self.dtype)


class Normalize:
    """(image - mean) / std per channel of a float Tensor [..., C, H, W]."""

    def __init__(self, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> None:
        self.mean, self.std, self.inplace = mean, std, inplace

    def __call__(self, tensor: Tensor) -> Tensor:
        return F.normalize(tensor, self.mean, self.std, self.inplace)

    def __repr__(self) -> str:
        return f"Normalize(mean={self.mean}, std={self.std})"


class RandomErasing:
    """With probability p, one rectangle of a Tensor [..., C, H, W] is overwritten.

    `scale`: its share of the area; `ratio`: its height over its width; `value`: a number, one per
    channel, or "random" for normal draws."""

    def __init__(
        self, p: float = 0.5, scale: Sequence[float] = (0.02, 0.33),
        ratio: Sequence[float] = (0.3, 3.3), value: Any = 0, inplace: bool = False,
    ) -> None:
        if not 0 <= p <= 1:
            raise ValueError(f"Random erasing probability should be between 0 and 1, got {p}")
        if isinstance(value, str) and value != "random":
            raise ValueError(f"If value is str, it should be 'random', got {value!r}")
        if scale[0] > scale[1] or ratio[0] > ratio[1]:
            warnings.warn("Scale and ratio should be of kind (min, max)", stacklevel=2)
        self.p, self.scale, self.ratio = p, scale, ratio
        self.value, self.inplace = value, inplace

    @staticmethod
    def get_params(
        img: Tensor, scale: Sequence[float], ratio: Sequence[float], value: Any = None
    ) -> tuple[int, int, int, int, Tensor]:
        """Top, left, height, width and content; the whole image where none was found to fit."""
        channels, height, width = img.shape[-3], img.shape[-2], img.shape[-1]
        log_ratio = graphc.log(graphc.tensor(list(ratio)))
        for _ in range(10):
            area = height * width * graphc.empty(1).uniform_(scale[0], scale[1]).item()
            draw = graphc.empty(1).uniform_(float(log_ratio[0]), float(log_ratio[1]))
            aspect = graphc.exp(draw).item()
            h, w = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if not (h < height and w < width):
                continue
            if value is None:
                content = graphc.empty([channels, h, w], dtype=graphc.float32).normal_()
            else:
                content = graphc.tensor(value)[:, None, None]
            top = graphc.randint(0, height - h + 1, size=(1,)).item()
            left = graphc.randint(0, width - w + 1, size=(1,)).item()
            return int(top), int(left), h, w, content
        return 0, 0, height, width, img

    def __call__(self, img: Tensor) -> Tensor:
        if graphc.rand(1) >= self.p:
            return img
        value: Any = self.value
        if value == "random":
            value = None
        elif isinstance(value, (int, float)):
            value = [float(value)]
        else:
            value = [float(v) for v in value]
        if value is not None and len(value) not in (1, img.shape[-3]):
            raise ValueError(
                f"value should be one number or one per channel ({img.shape[-3]}), got {value}"
            )
        return F.erase(img, *self.get_params(img, self.scale, self.ratio, value), self.inplace)
