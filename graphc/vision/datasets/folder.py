"""One folder per class."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .vision import Transform, VisionDataset

IMG_EXTENSIONS = (
    ".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp",
)


def default_loader(path: Any) -> Any:
    """The file as an RGB PIL image."""
    from PIL import Image  # late: the optional package for images

    with open(path, "rb") as file:
        return Image.open(file).convert("RGB")


def find_classes(directory: Any) -> tuple[list[str], dict[str, int]]:
    """The names of the folders, sorted, and their numbers."""
    classes = sorted(entry.name for entry in os.scandir(directory) if entry.is_dir())
    if not classes:
        raise FileNotFoundError(f"Couldn't find any class folder in {directory}.")
    return classes, {name: i for i, name in enumerate(classes)}


def make_dataset(
    directory: Any, class_to_idx: dict[str, int], extensions: Sequence[str] | None = None,
    is_valid_file: Callable[[str], bool] | None = None, allow_empty: bool = False,
) -> list[tuple[str, int]]:
    """(path, class number) of every file, sorted by class, then by path."""
    if (extensions is None) == (is_valid_file is None):
        raise ValueError(
            "Both extensions and is_valid_file cannot be None or not None at the same time"
        )
    found: list[tuple[str, int]] = []
    empty = set(class_to_idx)
    for name in sorted(class_to_idx):
        for folder, _, files in sorted(os.walk(os.path.join(directory, name), followlinks=True)):
            for file in sorted(files):
                path = os.path.join(folder, file)
                if is_valid_file is not None:
                    valid = is_valid_file(path)
                else:
                    valid = file.lower().endswith(tuple(extensions or ()))
                if valid:
                    found.append((path, class_to_idx[name]))
                    empty.discard(name)
    if empty and not allow_empty:
        message = f"Found no valid file for the classes {', '.join(sorted(empty))}."
        if extensions is not None:
            message += f" Supported extensions are: {', '.join(extensions)}"
        raise FileNotFoundError(message)
    return found


class DatasetFolder(VisionDataset):
    """Files root/class/**/name.ext as (loader(path), class number)."""

    def __init__(
        self, root: str | Path, loader: Callable[[str], Any],
        extensions: Sequence[str] | None = None, transform: Transform | None = None,
        target_transform: Transform | None = None,
        is_valid_file: Callable[[str], bool] | None = None, allow_empty: bool = False,
    ) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.loader, self.extensions = loader, extensions
        self.classes, self.class_to_idx = self.find_classes(self.root)
        self.samples = make_dataset(
            self.root, self.class_to_idx, extensions, is_valid_file, allow_empty
        )
        self.targets = [target for _, target in self.samples]

    def find_classes(self, directory: Any) -> tuple[list[str], dict[str, int]]:
        """The classes; for subclasses to change."""
        return find_classes(directory)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        path, target = self.samples[index]
        return self.prepared(self.loader(path), target)

    def __len__(self) -> int:
        return len(self.samples)


class ImageFolder(DatasetFolder):
    """Images root/class/**/name.png as (image, class number)."""

    def __init__(
        self, root: str | Path, transform: Transform | None = None,
        target_transform: Transform | None = None, loader: Callable[[str], Any] = default_loader,
        is_valid_file: Callable[[str], bool] | None = None, allow_empty: bool = False,
    ) -> None:
        extensions = IMG_EXTENSIONS if is_valid_file is None else None
        super().__init__(
            root, loader, extensions, transform, target_transform, is_valid_file, allow_empty
        )
        self.imgs = self.samples
