"""Data sets from folders and archives written by the test."""

import hashlib
import json
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.vision import datasets, transforms

Image = pytest.importorskip("PIL.Image")


def write_image(path: Path, level: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((4, 5, 3), level, np.uint8)).save(path)


def test_image_folder(tmp_path: Path) -> None:
    for level, name in enumerate(("dog/b.png", "cat/a.png", "dog/sub/a.png")):
        write_image(tmp_path / name, level * 10)
    (tmp_path / "cat" / "notes.txt").write_text("no image")
    dataset = datasets.ImageFolder(str(tmp_path), transform=transforms.ToTensor())
    assert dataset.classes == ["cat", "dog"]
    assert dataset.class_to_idx == {"cat": 0, "dog": 1}
    assert dataset.targets == [0, 1, 1]
    assert [round(dataset[i][0].max().item() * 255) for i in range(3)] == [10, 0, 20]
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="empty"):
        datasets.ImageFolder(tmp_path)
    assert len(datasets.ImageFolder(tmp_path, allow_empty=True)) == 3


def cifar(folder: Path, kind: type[datasets.CIFAR10]) -> np.ndarray:
    folder = folder / kind.base_folder
    folder.mkdir()
    pixels = np.arange(2 * 3072).reshape(2, 3072).astype(np.uint8)
    for i, name in enumerate((*kind.train_list, *kind.test_list)):
        content = {"data": pixels + i, kind._label: [i, i + 1]}
        (folder / name).write_bytes(pickle.dumps(content, protocol=2))
    names = {kind.meta[1]: ["plane", "car"]}
    (folder / kind.meta[0]).write_bytes(pickle.dumps(names, protocol=2))
    return pixels


@pytest.mark.parametrize("kind", [datasets.CIFAR10, datasets.CIFAR100])
def test_cifar(kind: type[datasets.CIFAR10], tmp_path: Path) -> None:
    pixels = cifar(tmp_path, kind)
    train, test = kind(tmp_path), kind(tmp_path, train=False)
    count = len(kind.train_list)
    assert (len(train), len(test), train.classes) == (2 * count, 2, ["plane", "car"])
    assert test.targets == [count, count + 1]
    image, label = train[1]
    assert (label, image.size) == (1, (32, 32))
    expected = pixels[1].reshape(3, 32, 32).transpose(1, 2, 0)
    np.testing.assert_array_equal(np.asarray(image), expected)


def test_cifar_from_its_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cifar(tmp_path, datasets.CIFAR10)
    root, name = tmp_path / "root", datasets.CIFAR10.filename
    root.mkdir()
    with tarfile.open(root / name, "w:gz") as tar:
        tar.add(tmp_path / datasets.CIFAR10.base_folder, datasets.CIFAR10.base_folder)
    with pytest.raises(RuntimeError, match="damaged"):
        datasets.CIFAR10(root)
    digest = hashlib.md5((root / name).read_bytes()).hexdigest()
    monkeypatch.setattr(datasets.CIFAR10, "tgz_md5", digest)
    assert len(datasets.CIFAR10(root)) == 10
    with pytest.raises(RuntimeError, match="download=True"):
        datasets.CIFAR10(tmp_path / "elsewhere")


class _Evil:
    def __reduce__(self) -> Any:
        return exec, ("raise SystemExit('ran code from a data file')",)


def test_a_malicious_cifar_file_only_fails(tmp_path: Path) -> None:
    cifar(tmp_path, datasets.CIFAR10)
    path = tmp_path / datasets.CIFAR10.base_folder / "test_batch"
    path.write_bytes(pickle.dumps({"data": _Evil()}))
    with pytest.raises(RuntimeError, match="exec"):
        datasets.CIFAR10(tmp_path, train=False)
    path.write_bytes(path.read_bytes()[:10])
    with pytest.raises(RuntimeError, match="corrupted"):
        datasets.CIFAR10(tmp_path, train=False)


def test_coco(tmp_path: Path) -> None:
    for i in (7, 3):
        write_image(tmp_path / f"{i}.png", i)
    annotations = {
        "images": [{"id": 7, "file_name": "7.png"}, {"id": 3, "file_name": "3.png"}],
        "annotations": [
            {"id": 1, "image_id": 7, "caption": "a", "bbox": [0, 0, 1, 1], "category_id": 5},
            {"id": 2, "image_id": 3, "caption": "b", "bbox": [1, 1, 1, 1], "category_id": 5},
            {"id": 4, "image_id": 7, "caption": "c", "bbox": [2, 2, 1, 1], "category_id": 6},
        ],
        "categories": [{"id": 5, "name": "cat"}],
    }
    path = tmp_path / "annotations.json"
    path.write_text(json.dumps(annotations))
    captions = datasets.CocoCaptions(tmp_path, str(path))
    assert [captions[i][1] for i in range(2)] == [["b"], ["a", "c"]]
    boxes = datasets.CocoDetection(tmp_path, str(path), transforms=lambda x, y: (x, len(y)))
    assert [boxes[i][1] for i in range(2)] == [1, 2]
    assert boxes.coco.getCatIds() == [5]
    path.write_text("{}")
    with pytest.raises(ValueError, match="images"):
        datasets.CocoDetection(tmp_path, str(path))


def test_fake_data_draws_nothing_from_the_users_generator() -> None:
    dataset = datasets.FakeData(4, (3, 8, 8), transform=transforms.ToTensor())
    graphc.manual_seed(0)
    first = dataset[1]
    assert first[0].equal(dataset[1][0])
    drawn = graphc.rand(1)
    graphc.manual_seed(0)
    assert drawn.equal(graphc.rand(1))
