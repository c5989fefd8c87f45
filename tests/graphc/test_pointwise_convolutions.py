"""Convolutions of single positions: products image by image, where an image fills registers."""

import numpy as np
import pytest

import graphc as torch
from graphc import Tensor
from graphc.ir.kernel.plan_convolution import by_images

F = torch.nn.functional


def kernels(function, *inputs: Tensor) -> str:
    return str(torch.explain(torch.compile(function), *inputs).kernels_text)


def wanted(x: Tensor, w: Tensor) -> np.ndarray:
    x, w = x.detach().numpy().astype(np.float64), w.detach().numpy().astype(np.float64)
    channels = np.tensordot(w.reshape(w.shape[:2]), x, (1, 1))
    return np.moveaxis(channels, 1, 0)


@pytest.mark.parametrize(
    ("images", "rows", "positions", "yes"),
    [
        (8, 128, 784, True), (8, 64, 196, True), (8, 1024, 196, False), (8, 64, 49, False),
        (1, 1024, 49, True), (8, 4, 1, False), (8, 16, 16, True), (3, 8, 0, True),
    ],
)
def test_images_that_fill_registers_are_multiplied_one_by_one(
    images: int, rows: int, positions: int, yes: bool
) -> None:
    assert by_images(images, rows, positions, 16) is yes


def test_a_product_takes_its_place() -> None:
    x, w = torch.randn(4, 8, 12, 12), torch.randn(16, 8, 1, 1)
    assert "gemm batch [4] m [16] n [144] k [8]" in kernels(F.conv2d, x, w)
    for other in (
        lambda x, w: F.conv2d(x, w, padding=1), lambda x, w: F.conv2d(x, w, stride=2),
        lambda x, w: F.conv2d(x, w[:, :4], groups=2),
        lambda x, w: F.conv2d(x[:, :, :1, :3], w),
    ):
        assert "gemm " not in kernels(other, x, w)


@pytest.mark.parametrize(
    "shape", [(4, 8, 12, 12), (1, 5, 7, 9), (3, 7, 16), (2, 3, 4, 4, 3), (2, 6, 1, 48)]
)
def test_values_and_gradients(shape: tuple[int, ...]) -> None:
    convolve = (F.conv1d, F.conv2d, F.conv3d)[len(shape) - 3]
    bias = torch.randn(11)

    def function(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = convolve(x, w, bias)
        weights = torch.arange(y.numel()).reshape(y.shape).sin()
        return F.relu(y), *torch.autograd.grad((y * weights).sum(), (x, w))

    x = torch.randn(*shape, requires_grad=True)
    w = torch.randn(11, shape[1], *(1,) * (len(shape) - 2), requires_grad=True)
    y, dx, dw = torch.compile(function)(x, w)
    each = bias.numpy().reshape(11, *(1,) * (len(shape) - 2))
    np.testing.assert_allclose(y.detach().numpy(), np.maximum(wanted(x, w) + each, 0), atol=1e-5)
    slope = np.sin(np.arange(y.numel())).reshape(y.shape)
    back = wanted(torch.tensor(slope), w.detach().transpose(0, 1).contiguous())
    np.testing.assert_allclose(dx.numpy(), back, atol=1e-5)
    planes = slope.reshape(y.shape[0], 11, -1), x.detach().numpy().reshape(*shape[:2], -1)
    np.testing.assert_allclose(
        dw.numpy().reshape(11, -1), np.einsum("nop,ncp->oc", *planes), atol=1e-4)


def test_operands_that_are_views_and_results_that_are_permuted() -> None:
    x, w = torch.randn(3, 12, 12, 8), torch.randn(8, 16, 1, 1)

    def last(x: Tensor, w: Tensor) -> Tensor:
        return F.conv2d(x.permute(0, 3, 1, 2), w.transpose(0, 1)).permute(0, 2, 3, 1).contiguous()

    want = wanted(x.permute(0, 3, 1, 2), w.transpose(0, 1)).transpose(0, 2, 3, 1)
    np.testing.assert_allclose(torch.compile(last)(x, w).numpy(), want, atol=1e-5)
    part = torch.compile(lambda x, w: F.conv2d(x[1:, ::2, 2:, 1:], w[:4]))
    x, w = torch.randn(3, 32, 14, 13), torch.randn(8, 16, 1, 1)
    np.testing.assert_allclose(part(x, w).numpy(), wanted(x[1:, ::2, 2:, 1:], w[:4]), atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtypes(dtype: torch.dtype) -> None:
    x, w = torch.randn(2, 6, 8, 8).to(dtype), torch.randn(10, 6, 1, 1).to(dtype)
    near = {torch.float64: 1e-13, torch.float16: 1e-2, torch.bfloat16: 1e-1}[dtype]
    found = torch.compile(F.conv2d)(x, w)
    assert found.dtype is dtype
    np.testing.assert_allclose(
        found.double().numpy(), wanted(x.double(), w.double()), atol=near, rtol=near)


def test_batches_and_sizes_that_change() -> None:
    compiled, w = torch.compile(F.conv2d), torch.randn(9, 4, 1, 1)
    for images, height, width in ((2, 8, 8), (5, 8, 8), (1, 8, 8), (0, 8, 8), (3, 5, 7), (3, 1, 1)):
        x = torch.randn(images, 4, height, width)
        np.testing.assert_allclose(compiled(x, w).numpy(), wanted(x, w), atol=1e-5)


def test_an_infinite_pixel_reaches_its_own_position_alone() -> None:
    x, w = torch.zeros(2, 3, 4, 4), torch.ones(5, 3, 1, 1)
    x[1, 2, 3, 0] = float("inf")
    found = torch.compile(F.conv2d)(x, w).numpy()
    want = np.zeros((2, 5, 4, 4))
    want[1, :, 3, 0] = np.inf
    np.testing.assert_array_equal(found, want)
