"""Image transforms, named as in torchvision.transforms, over NumPy arrays and Tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import graphc


class Compose:
    """Several transforms, one after the other."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = list(transforms)

    def __call__(self, image: Any) -> Any:
        for transform in self.transforms:
            image = transform(image)
        return image

    def __repr__(self) -> str:
        lines = [f"    {transform!r}" for transform in self.transforms]
        return "\n".join(["Compose(", *lines, ")"])


class ToTensor:
    """An image [H, W] or [H, W, C] to a Tensor [C, H, W]: uint8 becomes float32 in [0, 1].

    Other dtypes keep their type and values, as in torchvision.
    """

    def __call__(self, image: np.ndarray) -> graphc.Tensor:
        image = np.asarray(image)
        if image.ndim not in (2, 3):
            raise ValueError(
                f"ToTensor takes an image [H, W] or [H, W, C], got shape {list(image.shape)}"
            )
        channels_last = image[:, :, None] if image.ndim == 2 else image
        channels_first = np.ascontiguousarray(channels_last.transpose(2, 0, 1))
        if image.dtype == np.uint8:
            channels_first = channels_first.astype(np.float32) / np.float32(255)
        elif channels_first.base is not None:
            channels_first = channels_first.copy()  # the Tensor must not alias the data set
        return graphc.from_numpy(channels_first)

    def __repr__(self) -> str:
        return "ToTensor()"


class Normalize:
    """(image - mean) / std per channel of a float Tensor [..., C, H, W]."""

    def __init__(self, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> None:
        if not all(std):
            raise ValueError(f"Normalize: std {list(std)} has a zero, which would divide by zero")
        self.mean, self.std, self.inplace = mean, std, inplace

    def __call__(self, image: graphc.Tensor) -> graphc.Tensor:
        if not image.is_floating_point():
            raise TypeError(f"Normalize takes a float Tensor, got {image.dtype}: ToTensor() first")
        if image.ndim < 3:
            raise ValueError(f"Normalize takes [..., C, H, W], got shape {list(image.shape)}")
        mean, std = (
            graphc.tensor(list(values), dtype=image.dtype, device=image.device).view(-1, 1, 1)
            for values in (self.mean, self.std)
        )
        if self.inplace:
            return image.sub_(mean).div_(std)
        return (image - mean) / std

    def __repr__(self) -> str:
        return f"Normalize(mean={self.mean}, std={self.std})"
