"""datasets.MNIST: the embedded split, idx files on disk, and items as in torchvision."""

import gzip
import hashlib
from pathlib import Path

import numpy as np
import pytest

import graphc
from graphc.utils.data import DataLoader
from graphc.vision import datasets, idx, transforms
from graphc.vision.embedded import load_digits


def test_the_split_is_stratified_and_disjoint() -> None:
    (train, train_labels), (held, held_labels) = load_digits(True), load_digits(False)
    assert np.bincount(train_labels).tolist() == [400] * 10
    assert np.bincount(held_labels).tolist() == [100] * 10
    distinct = {image.tobytes() for image in np.concatenate([train, held])}
    assert len(distinct) == 5000  # no image is in both, or twice


def test_the_split_never_changes() -> None:
    digest = hashlib.sha256()
    for part in (True, False):
        for array in load_digits(part):
            digest.update(array.tobytes())
    assert digest.hexdigest() == "f8dc2db6139a6f4bc2bc5e66fcd703f92a61ac9551ce30ea37d4b3f44660c085"


def test_embedded_mnist_looks_like_torchvisions() -> None:
    dataset = datasets.MNIST(train=False)
    assert len(dataset) == 1000
    assert (tuple(dataset.data.shape), dataset.data.dtype) == ((1000, 28, 28), graphc.uint8)
    assert (tuple(dataset.targets.shape), dataset.targets.dtype) == ((1000,), graphc.int64)
    image, label = dataset[3]
    assert (image.shape, image.dtype, type(label)) == ((28, 28), np.uint8, int)
    np.testing.assert_array_equal(image, dataset.data[3].numpy())
    assert dataset.classes[label].startswith(str(label))


def test_transforms_apply_to_each_item_and_batch() -> None:
    dataset = datasets.MNIST(
        transform=transforms.ToTensor(), target_transform=lambda label: label % 2
    )
    images, labels = next(iter(DataLoader(dataset, batch_size=8)))
    assert tuple(images.shape) == (8, 1, 28, 28)
    assert labels.tolist() == [label % 2 for label in dataset.targets[:8].tolist()]


def write_raw(folder: Path, packed: bool) -> np.ndarray:
    folder.mkdir(parents=True)
    images = np.arange(3 * 28 * 28, dtype=np.uint8).reshape(3, 28, 28)
    contents = (
        b"\0\0\x08\x03" + np.array([3, 28, 28], ">u4").tobytes() + images.tobytes(),
        b"\0\0\x08\x01" + np.array([3], ">u4").tobytes() + bytes([7, 0, 9]),
    )
    for resource, content in zip(idx.TEST, contents, strict=True):
        name = f"{resource.name}.gz" if packed else resource.name
        (folder / name).write_bytes(gzip.compress(content) if packed else content)
    return images


@pytest.mark.parametrize("packed", [True, False])
def test_files_on_disk_are_read(tmp_path: Path, packed: bool) -> None:
    images = write_raw(tmp_path / "MNIST" / "raw", packed)
    # download=True does nothing where the files are there
    dataset = datasets.MNIST(tmp_path, train=False, download=True)
    assert dataset.targets.tolist() == [7, 0, 9]
    np.testing.assert_array_equal(dataset.data.numpy(), images)


def test_missing_files_name_the_cure(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"train-images-idx3-ubyte is not in .*download=True"):
        datasets.MNIST(tmp_path)


def test_download_needs_a_folder() -> None:
    with pytest.raises(ValueError, match="root="):
        datasets.MNIST(download=True)


def test_labels_that_do_not_fit_the_images_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "MNIST" / "raw"
    write_raw(folder, packed=False)
    labels = b"\0\0\x08\x01" + np.array([2], ">u4").tobytes() + bytes([7, 0])
    (folder / idx.TEST[1].name).write_bytes(labels)
    with pytest.raises(ValueError, match=r"\(3, 28, 28\) and labels of shape \(2,\)"):
        datasets.MNIST(tmp_path, train=False)


def test_data_that_a_script_puts_in_is_what_items_come_from() -> None:
    dataset = datasets.MNIST(train=False)
    dataset.data, dataset.targets = dataset.data[:10] // 2, dataset.targets[:10] + 1
    image, label = dataset[9]
    assert (len(dataset), label) == (10, int(dataset.targets[9]))
    np.testing.assert_array_equal(image, dataset.data[9].numpy())


@pytest.mark.parametrize("old", ["train_data", "test_data", "train_labels", "test_labels"])
def test_the_old_names_warn(old: str) -> None:
    dataset = datasets.MNIST(train=False)
    new = "data" if old.endswith("data") else "targets"
    with pytest.warns(UserWarning, match=rf"{old} has been renamed {new}"):
        assert getattr(dataset, old) is getattr(dataset, new)
