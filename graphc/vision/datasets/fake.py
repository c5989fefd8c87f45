"""Random images, to try a program without data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import graphc

from ..transforms.functional import to_pil_image
from .vision import Transform, VisionDataset


class FakeData(VisionDataset):
    """`size` images of normal draws; the same index gives the same image and class."""

    def __init__(
        self, size: int = 1000, image_size: Sequence[int] = (3, 224, 224), num_classes: int = 10,
        transform: Transform | None = None, target_transform: Transform | None = None,
        random_offset: int = 0,
    ) -> None:
        super().__init__(None, transform=transform, target_transform=target_transform)
        self.size, self.image_size = size, tuple(image_size)
        self.num_classes, self.random_offset = num_classes, random_offset

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if index >= len(self):
            raise IndexError(f"{type(self).__name__} index out of range")
        state = graphc.random.get_rng_state()
        graphc.manual_seed(index + self.random_offset)
        image = graphc.randn(*self.image_size)
        target = graphc.randint(0, self.num_classes, size=(1,), dtype=graphc.long)[0]
        graphc.random.set_rng_state(state)
        return self.prepared(to_pil_image(image), int(target.item()))

    def __len__(self) -> int:
        return self.size
