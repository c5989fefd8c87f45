"""MNIST and the sets in its format."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import graphc
from graphc.vision import idx
from graphc.vision.embedded import load_digits

from .vision import Transform, VisionDataset, as_image


class MNIST(VisionDataset):
    """Handwritten digits, 28x28 grey: `dataset[i]` is (image, int label).

    Without `root`: the images embedded in graphc, 4,000 to train on and 1,000 held out (never
    part of the training split). With `root`: the full set (60,000 and 10,000), read from idx files
    in `root/MNIST/raw` as torchvision leaves them, fetched there first by `download=True`.

    The image before `transform` is a PIL image, of the embedded set a uint8 NumPy array [28, 28].
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

    mirrors: ClassVar[Sequence[str]] = ()  # idx.MIRRORS
    resources: ClassVar[Sequence[idx.Resource]] = (*idx.TRAIN, *idx.TEST)
    _alternative = ", or leave root out for the 5,000 images that come with graphc"

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
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.train = train
        images, labels = load_digits(train) if self.root is None else self._read(download)
        self.data: Any = graphc.from_numpy(images)
        self.targets: Any = graphc.from_numpy(labels)
        # Items are cut from NumPy: indexing a Tensor builds a Tensor each time.
        self._cut_from, self._arrays = (self.data, self.targets), (images, labels)

    @property
    def raw_folder(self) -> Path:
        """Where the idx files are: torchvision's place, so that both share one download."""
        if self.root is None:
            raise RuntimeError("the embedded MNIST has no folder; give root= to use files")
        return self.root / type(self).__name__ / "raw"

    def _read(self, download: bool) -> tuple[np.ndarray, np.ndarray]:
        folder, arrays = self.raw_folder, []
        for resource in self.resources[:2] if self.train else self.resources[2:]:
            path = idx.find(folder, resource)
            if path is None and not download:
                raise RuntimeError(
                    f"{type(self).__name__}: {resource.name} is not in {folder}. Use "
                    f"download=True to download it{self._alternative}"
                )
            arrays.append(idx.read(path or idx.fetch(folder, resource, self.mirrors)))
        images, labels = arrays
        if images.ndim != 3 or labels.shape != images.shape[:1]:
            raise ValueError(
                f"{type(self).__name__}: {folder} holds images of shape {images.shape} and "
                f"labels of shape {labels.shape}, not [N, height, width] and [N]"
            )
        return images, labels.astype(np.int64)

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        data, targets = self._cut_from
        if self.data is not data or self.targets is not targets:  # a script put in its own
            self._cut_from = self.data, self.targets
            self._arrays = np.asarray(self.data), np.asarray(self.targets)
        image: Any = self._arrays[0][index]
        label: Any = int(self._arrays[1][index])
        return self.prepared(image if self.root is None else as_image(image), label)

    def extra_repr(self) -> str:
        """The split."""
        return f"Split: {'Train' if self.train else 'Test'}"

    @property
    def train_data(self) -> Any:
        """The old name of `.data`."""
        return _renamed("train_data", "data", self.data)

    @property
    def test_data(self) -> Any:
        """The old name of `.data`."""
        return _renamed("test_data", "data", self.data)

    @property
    def train_labels(self) -> Any:
        """The old name of `.targets`."""
        return _renamed("train_labels", "targets", self.targets)

    @property
    def test_labels(self) -> Any:
        """The old name of `.targets`."""
        return _renamed("test_labels", "targets", self.targets)


def _renamed(old: str, new: str, value: Any) -> Any:
    warnings.warn(f"{old} has been renamed {new}", stacklevel=3)
    return value


def _named(*digests: str) -> tuple[idx.Resource, ...]:
    """The four files, which have the same names in every set of this format."""
    names = [resource.name for resource in (*idx.TRAIN, *idx.TEST)]
    return tuple(idx.Resource(*each) for each in zip(names, digests, strict=True))


class _FromFiles(MNIST):
    """A set in MNIST's format that is not embedded."""

    _alternative = ""

    def __init__(self, root: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(root, *args, **kwargs)


class FashionMNIST(_FromFiles):
    """Articles of clothing, 28x28 grey (github.com/zalandoresearch/fashion-mnist)."""

    mirrors = ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",)
    resources = _named(
        "8d4fb7e6c68d591d4c3dfef9ec88bf0d", "25c81989df183df01b3e8a0aad5dffbe",
        "bef4ecab320f06d8554ea6380940ec79", "bb300cfdad3c16e7a12a480ee83cd310",
    )
    classes = (
        "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker",
        "Bag", "Ankle boot",
    )


class KMNIST(_FromFiles):
    """Cursive Japanese characters, 28x28 grey (codh.rois.ac.jp/kmnist)."""

    mirrors = ("http://codh.rois.ac.jp/kmnist/dataset/kmnist/",)
    resources = _named(
        "bdb82020997e1d708af4cf47b453dcf7", "e144d726b3acfaa3e44228e80efcd344",
        "5c965bf0a639b31b8f53240b1b52f4d7", "7320c461ea6c1c855c0b718fb2a4b134",
    )
    classes = ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo")
