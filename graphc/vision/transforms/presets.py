"""The preparation of images that published weights were trained with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphc import Tensor

from . import functional as F


class ImageClassification:
    """Resize the shorter side, crop the middle, scale to 0..1, normalise by ImageNet's moments."""

    def __init__(
        self, *, crop_size: int, resize_size: int = 256,
        mean: Sequence[float] = (0.485, 0.456, 0.406),
        std: Sequence[float] = (0.229, 0.224, 0.225),
    ) -> None:
        self.crop_size, self.resize_size = [crop_size], [resize_size]
        self.mean, self.std = list(mean), list(std)

    def __call__(self, img: Any) -> Tensor:
        img = F.center_crop(F.resize(img, self.resize_size), self.crop_size)
        if not isinstance(img, Tensor):
            img = F.pil_to_tensor(img)
        return F.normalize(F.convert_image_dtype(img), self.mean, self.std)

    def __repr__(self) -> str:
        return f"ImageClassification(crop_size={self.crop_size}, resize_size={self.resize_size})"
