"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009) from their published Python archives."""

from __future__ import annotations

import hashlib
import pickle
import tarfile
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from graphc import hub

from .vision import Transform, VisionDataset, as_image

# what a NumPy array inside the files is made by; nothing else is ever called
_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"), ("numpy", "dtype"), ("_codecs", "encode"),
}


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"a CIFAR file does not contain {module}.{name}")
        if name == "_reconstruct":
            module = "numpy._core.multiarray"
        return super().find_class(module, name)


class CIFAR10(VisionDataset):
    """32x32 colour images of ten classes: `dataset[i]` is (image, int).

    Reads root/cifar-10-batches-py, or root/cifar-10-python.tar.gz beside it. `.data` is uint8
    [N, 32, 32, 3], `.targets` a list. Raises RuntimeError where files are missing or damaged.
    """

    base_folder = "cifar-10-batches-py"
    filename = "cifar-10-python.tar.gz"
    tgz_md5 = "c58f30108f718f92721af3b95e74349a"
    url = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
    train_list: ClassVar[tuple[str, ...]] = tuple(f"data_batch_{i}" for i in range(1, 6))
    test_list: ClassVar[tuple[str, ...]] = ("test_batch",)
    meta: ClassVar[tuple[str, str]] = ("batches.meta", "label_names")
    _label = "labels"

    def __init__(
        self, root: str | Path, train: bool = True, transform: Transform | None = None,
        target_transform: Transform | None = None, download: bool = False,
    ) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.train = train
        folder = self._folder(download)
        batches = [_read(folder / name) for name in (self.train_list if train else self.test_list)]
        self.data = np.concatenate([b["data"] for b in batches])
        self.data = np.ascontiguousarray(self.data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
        self.targets: list[int] = [int(t) for b in batches for t in b[self._label]]
        self.classes: list[str] = _read(folder / self.meta[0])[self.meta[1]]
        self.class_to_idx = {name: i for i, name in enumerate(self.classes)}

    def _folder(self, download: bool) -> Path:
        folder: Path = self.root / self.base_folder
        archive: Path = self.root / self.filename
        if folder.is_dir():
            return folder
        if not archive.exists():
            if not download:
                raise RuntimeError(
                    f"Dataset not found or corrupted: neither {folder} nor {archive}. "
                    "You can use download=True to download it"
                )
            self.root.mkdir(parents=True, exist_ok=True)
            hub.download_url_to_file(self.url, str(archive))
        digest = hashlib.md5(archive.read_bytes(), usedforsecurity=False).hexdigest()
        if digest != self.tgz_md5:
            raise RuntimeError(f"{archive} is damaged: its MD5 is {digest}, not {self.tgz_md5}")
        with tarfile.open(archive) as tar:
            tar.extractall(self.root, filter="data")
        return folder

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.prepared(as_image(self.data[index]), self.targets[index])

    def __len__(self) -> int:
        return len(self.data)

    def extra_repr(self) -> str:
        """The split."""
        return f"Split: {'Train' if self.train else 'Test'}"


class CIFAR100(CIFAR10):
    """As CIFAR10, with 100 classes; reads root/cifar-100-python."""

    base_folder = "cifar-100-python"
    filename = "cifar-100-python.tar.gz"
    tgz_md5 = "eb9058c3a382ffc7106e4002c42a8d85"
    url = "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz"
    train_list = ("train",)
    test_list = ("test",)
    meta = ("meta", "fine_label_names")
    _label = "fine_labels"


def _read(path: Path) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            found: dict[str, Any] = _ArraysOnly(file, encoding="latin1").load()
    except (OSError, EOFError, pickle.UnpicklingError, ValueError) as error:
        raise RuntimeError(f"Dataset not found or corrupted: {path}: {error}") from error
    return found
