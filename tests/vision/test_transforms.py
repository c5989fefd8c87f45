"""transforms: torchvision's semantics, on NumPy images and Tensors."""

import numpy as np
import pytest

import graphc
from graphc.vision import transforms


def test_to_tensor_scales_bytes_and_moves_channels_first() -> None:
    grey = np.arange(6, dtype=np.uint8).reshape(2, 3)
    result = transforms.ToTensor()(grey)
    assert result.dtype == graphc.float32
    np.testing.assert_array_equal(result.numpy(), grey[None].astype(np.float32) / np.float32(255))
    colour = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    assert tuple(transforms.ToTensor()(colour).shape) == (3, 2, 4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4), (2, 3, 1)])
def test_to_tensor_keeps_other_dtypes_and_never_aliases(dtype: type, shape: tuple) -> None:
    image = np.ones(shape, dtype)
    result = transforms.ToTensor()(image)
    image[:] = 5
    assert result.numpy().dtype == dtype
    assert (result.numpy() == 1).all()


@pytest.mark.parametrize("shape", [(3,), (1, 2, 3, 4)])
def test_to_tensor_refuses_what_is_no_image(shape: tuple) -> None:
    with pytest.raises(ValueError, match=r"\[H, W\] or \[H, W, C\]"):
        transforms.ToTensor()(np.zeros(shape, np.uint8))


def test_normalize_per_channel() -> None:
    image = graphc.ones(2, 3, 3)
    result = transforms.Normalize([0.5, 0.0], [0.5, 2.0])(image)
    assert result[:, 0, 0].tolist() == [1.0, 0.5]
    assert image[0, 0, 0].item() == 1.0
    same = transforms.Normalize([0.5, 0.0], [0.5, 2.0], inplace=True)(image)
    assert same is image
    assert image[:, 0, 0].tolist() == [1.0, 0.5]


def test_normalize_refuses_what_it_cannot_do() -> None:
    with pytest.raises(ValueError, match="zero"):
        transforms.Normalize([0.0], [0.0])(graphc.ones(1, 2, 2))
    with pytest.raises(TypeError, match="ToTensor"):
        transforms.Normalize([0.0], [1.0])(graphc.ones(1, 2, 2, dtype=graphc.uint8))
    with pytest.raises(ValueError, match="C, H, W"):
        transforms.Normalize([0.0], [1.0])(graphc.ones(2, 2))


def test_compose_runs_in_order_and_prints() -> None:
    both = transforms.Compose([transforms.ToTensor(), transforms.Normalize([0.5], [0.5])])
    assert both(np.full((2, 2), 255, np.uint8)).flatten().tolist() == [1.0] * 4
    assert repr(both) == "Compose(\n    ToTensor()\n    Normalize(mean=[0.5], std=[0.5])\n)"


def test_to_tensor_gives_the_default_dtype() -> None:
    before = graphc.get_default_dtype()
    graphc.set_default_dtype(graphc.float64)
    try:
        result = transforms.ToTensor()(np.full((1, 1), 51, np.uint8))
    finally:
        graphc.set_default_dtype(before)
    assert (result.dtype, result.item()) == (graphc.float64, 0.2)
