"""COCO's annotation files (cocodataset.org/#format-data), read without pycocotools."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from .folder import default_loader
from .vision import Transform, VisionDataset


class Annotations:
    """The tables of an annotation file, by id (the part of pycocotools' COCO that loaders use)."""

    def __init__(self, path: str | Path) -> None:
        with open(path, encoding="utf-8") as file:
            self.dataset: dict[str, Any] = json.load(file)
        if "images" not in self.dataset:
            raise ValueError(f"{path} is no COCO annotation file: it has no \"images\"")
        self.imgs = {image["id"]: image for image in self.dataset["images"]}
        self.anns = {a["id"]: a for a in self.dataset.get("annotations", ())}
        self.cats = {c["id"]: c for c in self.dataset.get("categories", ())}
        self.imgToAnns: dict[Any, list[Any]] = defaultdict(list)
        self.catToImgs: dict[Any, list[Any]] = defaultdict(list)
        for annotation in self.anns.values():
            self.imgToAnns[annotation["image_id"]].append(annotation)
            if "category_id" in annotation:
                self.catToImgs[annotation["category_id"]].append(annotation["image_id"])

    def getImgIds(self) -> list[Any]:
        """All image ids."""
        return list(self.imgs)

    def getCatIds(self) -> list[Any]:
        """All category ids."""
        return list(self.cats)

    def getAnnIds(self, imgIds: Any = ()) -> list[Any]:
        """The annotation ids of an image, of several, or all."""
        ids = list(imgIds) if isinstance(imgIds, (list, tuple)) else [imgIds]
        if not ids:
            return list(self.anns)
        return [a["id"] for i in ids for a in self.imgToAnns.get(i, ())]

    def loadAnns(self, ids: Any) -> list[Any]:
        """Annotations by id."""
        return [self.anns[i] for i in (ids if isinstance(ids, (list, tuple)) else [ids])]

    def loadCats(self, ids: Any) -> list[Any]:
        """Categories by id."""
        return [self.cats[i] for i in (ids if isinstance(ids, (list, tuple)) else [ids])]

    def loadImgs(self, ids: Any) -> list[Any]:
        """Image records by id."""
        return [self.imgs[i] for i in (ids if isinstance(ids, (list, tuple)) else [ids])]


class CocoDetection(VisionDataset):
    """(image, its annotations as dictionaries) in the order of image ids."""

    def __init__(
        self, root: str | Path, annFile: str, transform: Transform | None = None,
        target_transform: Transform | None = None, transforms: Transform | None = None,
    ) -> None:
        super().__init__(root, transforms, transform, target_transform)
        self.coco = Annotations(annFile)
        self.ids = sorted(self.coco.imgs)

    def _target(self, id: Any) -> list[Any]:
        return self.coco.loadAnns(self.coco.getAnnIds([id]))

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if not isinstance(index, int):
            raise ValueError(f"Index must be of type integer, got {type(index)} instead.")
        id = self.ids[index]
        image = default_loader(self.root / self.coco.loadImgs(id)[0]["file_name"])
        return self.prepared(image, self._target(id))

    def __len__(self) -> int:
        return len(self.ids)


class CocoCaptions(CocoDetection):
    """(image, its captions)."""

    def _target(self, id: Any) -> list[str]:
        return [annotation["caption"] for annotation in super()._target(id)]
