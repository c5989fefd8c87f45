"""Data sets, named as in torchvision.datasets."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import graphc
from graphc.utils.data import Dataset
from graphc.vision import idx
from graphc.vision.embedded import load_digits

Transform = Callable[[Any], Any]


class MNIST(Dataset):
    """Handwritten digits, 28x28 grey: `dataset[i]` is (image, int label).

    Without `root`: the images embedded in graphc, 4,000 to train on and 1,000 held out (never
    part of the training split). With `root`: the full set (60,000 and 10,000), read from idx files
    in `root/MNIST/raw` as torchvision leaves them, fetched there first by `download=True`.

    The image is a uint8 NumPy array [28, 28] before `transform` (torchvision gives a PIL image).
    `.data` is the uint8 Tensor [N, 28, 28], `.targets` the int64 Tensor [N].

    Raises RuntimeError when the files are neither there nor to be downloaded.
    Source: LeCun, Cortes, Burges; pytorch.org/vision/stable/generated/torchvision.datasets.MNIST
    """

    classes = (
        "0 - zero",
        "1 - one",
        "2 - two",
        "3 - three",
        "4 - four",
        "5 - five",
        "6 - six",
        "7 - seven",
        "8 - eight",
        "9 - nine",
    )

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        train: bool = True,
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        download: bool = False,
    ) -> None:
        if root is None and download:
            raise ValueError(
                "MNIST(download=True) needs a folder to download into: MNIST(root='data', "
                "download=True); without root the images embedded in graphc are used"
            )
        self.root = None if root is None else Path(root)
        self.train = train
        self.transform = transform
        self.target_transform = target_transform
        images, labels = load_digits(train) if self.root is None else self._read(download)
        self.data = graphc.from_numpy(images)
        self.targets = graphc.from_numpy(labels)
        # Items are cut from NumPy: indexing a Tensor builds a Tensor each time.
        self._images, self._labels = images, labels

    @property
    def raw_folder(self) -> Path:
        """Where the idx files are: torchvision's place, so that both share one download."""
        if self.root is None:
            raise RuntimeError("the embedded MNIST has no folder; give root= to use files")
        return self.root / type(self).__name__ / "raw"

    def _read(self, download: bool) -> tuple[np.ndarray, np.ndarray]:
        folder, arrays = self.raw_folder, []
        for resource in idx.TRAIN if self.train else idx.TEST:
            path = idx.find(folder, resource)
            if path is None and not download:
                raise RuntimeError(
                    f"MNIST: {resource.name} is not in {folder}. Use download=True to download it, "
                    "or leave root out for the 5,000 images that come with graphc"
                )
            arrays.append(idx.read(path or idx.fetch(folder, resource)))
        images, labels = arrays
        if images.ndim != 3 or labels.shape != images.shape[:1]:
            raise ValueError(
                f"MNIST: {folder} holds images of shape {images.shape} and labels of shape "
                f"{labels.shape}, not [N, height, width] and [N]"
            )
        return images, labels.astype(np.int64)

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        image: Any = self._images[index]
        label: Any = int(self._labels[index])
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            label = self.target_transform(label)
        return image, label

    def __repr__(self) -> str:
        lines = (
            f"Number of datapoints: {len(self)}",
            f"Root location: {self.root or 'embedded in graphc'}",
            f"Split: {'Train' if self.train else 'Test'}",
        )
        return "\n    ".join((f"Dataset {type(self).__name__}", *lines))
