"""What all image data sets share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from graphc.utils.data import Dataset

Transform = Callable[..., Any]


def as_image(pixels: Any) -> Any:
    """An array [H, W] or [H, W, 3] as a PIL image, which torchvision's data sets give."""
    try:
        from PIL import Image  # late: the optional package for images
    except ImportError:
        raise ImportError(
            "images from files are PIL images: pip install pillow (or graphc-compiler[vision])"
        ) from None
    return Image.fromarray(pixels)


class VisionDataset(Dataset):
    """Images with targets. `transforms` takes and gives both; `transform` and `target_transform`
    one each."""

    def __init__(
        self, root: str | os.PathLike[str] | None = None, transforms: Transform | None = None,
        transform: Transform | None = None, target_transform: Transform | None = None,
    ) -> None:
        if transforms is not None and not (transform is None and target_transform is None):
            raise ValueError(
                "Only transforms or transform/target_transform can be passed as argument"
            )
        self.root: Any = None if root is None else Path(os.path.expanduser(root))
        self.transforms = transforms
        self.transform, self.target_transform = transform, target_transform

    def prepared(self, image: Any, target: Any) -> tuple[Any, Any]:
        """Both after their transforms."""
        if self.transforms is not None:
            image, target = self.transforms(image, target)
            return image, target
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return image, target

    def __len__(self) -> int:
        raise NotImplementedError

    def extra_repr(self) -> str:
        """A further line for repr()."""
        return ""

    def __repr__(self) -> str:
        lines = [f"Dataset {type(self).__name__}", f"Number of datapoints: {len(self)}"]
        if self.root is not None:
            lines.append(f"Root location: {self.root}")
        lines += self.extra_repr().splitlines()
        if self.transform is not None:
            lines.append(f"StandardTransform\nTransform: {self.transform!r}")
        return "\n    ".join(lines)
