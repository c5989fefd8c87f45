"""Transforms on Tensors and on PIL images give the same picture; draws are torchvision's."""

import io
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.vision import transforms as T
from graphc.vision import utils
from graphc.vision.transforms import functional as F

Image = pytest.importorskip("PIL.Image")


def picture(height: int = 12, width: int = 17) -> np.ndarray:
    smooth = np.add.outer(np.arange(height) * 7, np.arange(width) * 5)
    return np.stack([smooth, 255 - smooth, smooth // 2], -1).astype(np.uint8)


def both(function: Callable[[Any], Any], pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The function's result on the PIL image and on the Tensor, as arrays [H, W, C]."""
    image = function(Image.fromarray(pixels))
    tensor = function(graphc.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1))))
    return np.asarray(image).astype(int), tensor.permute(1, 2, 0).numpy().astype(int)


EXACT = {
    "hflip": F.hflip, "vflip": F.vflip, "crop": lambda x: F.crop(x, 2, 3, 5, 6),
    "crop outside": lambda x: F.crop(x, -2, 10, 9, 12),
    "center crop": lambda x: F.center_crop(x, [6, 7]),
    "center crop too large": lambda x: F.center_crop(x, 20),
    "pad": lambda x: F.pad(x, [1, 2, 3, 4], fill=9), "pad edge": lambda x: F.pad(x, 2, 0, "edge"),
    "pad reflect": lambda x: F.pad(x, [3, 1], 0, "reflect"),
    "pad symmetric": lambda x: F.pad(x, 2, 0, "symmetric"),
    "rotate 90": lambda x: F.rotate(F.crop(x, 0, 0, 12, 16), 90, expand=True),
    "rotate 180": lambda x: F.rotate(x, 180),
    "invert": F.invert, "shift": lambda x: F.affine(x, 0, (3, -2), 1.0, 0.0),
    "resize same": lambda x: F.resize(x, [12, 17]),
}
# largest difference in levels: the two round at different places
CLOSE = {
    "grey": (lambda x: F.rgb_to_grayscale(x, 3), 1),
    "brightness": (lambda x: F.adjust_brightness(x, 1.7), 1),
    "contrast": (lambda x: F.adjust_contrast(x, 0.4), 1),
    "saturation": (lambda x: F.adjust_saturation(x, 1.9), 2),
    "gamma": (lambda x: F.adjust_gamma(x, 2.2), 1), "hue": (lambda x: F.adjust_hue(x, 0.2), 9),
    "resize down": (lambda x: F.resize(x, 6), 1), "resize up": (lambda x: F.resize(x, [30, 21]), 1),
    "resize bicubic": (lambda x: F.resize(x, [7, 9], T.InterpolationMode.BICUBIC), 2),
    "blur": (lambda x: F.gaussian_blur(x, [3, 5], [0.7, 1.1]), 0),
}


@pytest.mark.parametrize("name", EXACT)
def test_exactly_as_pillow(name: str) -> None:
    image, tensor = both(EXACT[name], picture())
    np.testing.assert_array_equal(tensor, image)


@pytest.mark.parametrize("name", CLOSE)
def test_as_pillow_up_to_rounding(name: str) -> None:
    function, levels = CLOSE[name]
    image, tensor = both(function, picture())
    assert image.shape == tensor.shape
    assert np.abs(image - tensor).max() <= levels


@pytest.mark.parametrize("angle", [10.0, -33.0, 71.0])
def test_rotation_agrees_but_for_pixels_between_two(angle: float) -> None:
    image, tensor = both(lambda x: F.rotate(x, angle, expand=True), picture(40, 31))
    assert image.shape == tensor.shape
    assert (np.abs(image - tensor).max(-1) > 12).mean() < 0.02


def test_conversions_are_inverse() -> None:
    pixels = picture()
    tensor = F.to_tensor(Image.fromarray(pixels))
    assert (tensor.dtype, tuple(tensor.shape)) == (graphc.float32, (3, 12, 17))
    np.testing.assert_array_equal(np.asarray(F.to_pil_image(tensor)), pixels)
    red = pixels[..., 0]
    np.testing.assert_array_equal(F.pil_to_tensor(Image.fromarray(red))[0], red)
    assert F.to_pil_image(graphc.zeros(4, 5)).mode == "L"
    assert F.to_pil_image(graphc.zeros(1, 4, 5, dtype=graphc.int32)).mode == "I"
    with pytest.raises(TypeError, match="5 channels"):
        F.to_pil_image(np.zeros((4, 4, 5), np.uint8))
    wide = F.convert_image_dtype(graphc.tensor([0, 128, 255], dtype=graphc.uint8), graphc.int16)
    assert wide.tolist() == [0, 16384, 32640]
    back = F.convert_image_dtype(graphc.tensor([0.0, 0.5, 1.0]), graphc.uint8)
    assert back.tolist() == [0, 127, 255]


def test_draws_are_as_documented() -> None:
    """The same draws by hand, in the order of torchvision's get_params."""
    tensor = graphc.arange(3 * 20 * 20).reshape(3, 20, 20)
    graphc.manual_seed(3)
    have = T.RandomCrop(8)(tensor)
    graphc.manual_seed(3)
    top = int(graphc.randint(0, 13, size=(1,)))
    left = int(graphc.randint(0, 13, size=(1,)))
    assert have.equal(tensor[:, top : top + 8, left : left + 8])
    graphc.manual_seed(0)
    flips = [T.RandomHorizontalFlip()(tensor).equal(tensor) for _ in range(20)]
    graphc.manual_seed(0)
    assert flips == [not bool(graphc.rand(1) < 0.5) for _ in range(20)]


@pytest.mark.parametrize("make", [
    lambda: T.RandomResizedCrop(8), lambda: T.ColorJitter(0.4, 0.4, 0.4, 0.1),
    lambda: T.RandomRotation(30), lambda: T.RandomAffine(20, (0.1, 0.2), (0.8, 1.2), 10),
    lambda: T.RandomGrayscale(0.5), lambda: T.GaussianBlur(3), lambda: T.RandomInvert(),
    lambda: T.RandomVerticalFlip(), lambda: T.RandomChoice([F.hflip, F.vflip]),
    lambda: T.RandomApply([F.hflip]), lambda: T.RandomOrder([F.hflip, F.vflip]),
    lambda: T.Resize(9), lambda: T.Pad(2), lambda: T.Lambda(F.hflip),
])
def test_random_transforms_take_both_kinds(make: Callable[[], Any]) -> None:
    """The same seed draws the same parameters for a Tensor and a PIL image: equal sizes."""
    transform, shapes = make(), []
    for image in (Image.fromarray(picture()), graphc.from_numpy(picture()).permute(2, 0, 1)):
        graphc.manual_seed(1)
        random.seed(1)
        shapes.append(F.get_dimensions(transform(image)))
    assert shapes[0] == shapes[1]
    assert repr(transform)


def test_random_erasing() -> None:
    graphc.manual_seed(0)
    image = graphc.ones(3, 32, 32)
    erased = T.RandomErasing(p=1.0, value=0.25)(image)
    assert 0 < (erased == 0.25).sum() < 3 * 32 * 32
    assert image.equal(graphc.ones(3, 32, 32))
    assert T.RandomErasing(p=0.0)(image) is image


def test_crops() -> None:
    tensor = graphc.arange(48).reshape(1, 6, 8)
    assert [tuple(t.shape) for t in T.FiveCrop(3)(tensor)] == [(1, 3, 3)] * 5
    assert len(T.TenCrop((2, 4))(tensor)) == 10
    with pytest.raises(ValueError, match="larger than input"):
        T.RandomCrop(9)(tensor)
    with pytest.raises(TypeError, match="list"):
        F.hflip([1, 2])


def test_make_grid_and_save_image() -> None:
    images = graphc.arange(5 * 2 * 2).reshape(5, 1, 2, 2) / 20
    grid = utils.make_grid(images, nrow=3, padding=1, pad_value=1.0)
    assert tuple(grid.shape) == (3, 7, 10)
    assert grid[0, 1:3, 4:6].equal(images[1, 0])
    assert grid[1, 4:6, 7:9].equal(graphc.ones(2, 2) * 1.0)
    scaled = utils.make_grid(images, normalize=True)
    assert (scaled.min().item(), scaled.max().item()) == (0.0, 1.0)
    file = io.BytesIO()
    utils.save_image(images, file, format="png")
    assert Image.open(file).size == (5 * 4 + 2, 4 + 2)
