"""Means and variances of numbers that are large beside their spread, eagerly and compiled, held
against float64; of equal numbers nothing is left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc.nn import functional as F

Function = Callable[..., Any]
BOTH = pytest.mark.parametrize(
    "mode", [lambda f: f, torch.compile], ids=["eager", "compiled"]
)
SHAPES = [
    ((8, 64), 1), ((64, 8), 0), ((5, 7, 33), (0, 2)), ((300, 768), 1), ((768, 300), 0),
    ((3, 9000), 1), ((900, 3), 0), ((4, 100, 7), (1,)), ((17, 1), 0),
]


def numbers(shape: tuple[int, ...], mean: float, dtype: Any = np.float32) -> Any:
    return (np.random.default_rng(7).standard_normal(shape) + mean).astype(dtype)


@BOTH
@pytest.mark.parametrize("mean", [0.0, 1e3, 1e6])
@pytest.mark.parametrize(("shape", "dim"), SHAPES)
def test_variances(shape: tuple[int, ...], dim: Any, mean: float, mode: Function) -> None:
    x = numbers(shape, mean)
    wide = x.astype(np.float64)
    dims = dim if isinstance(dim, tuple) else (dim,)
    for correction in (0, 1):
        found = mode(lambda v, c=correction: torch.var(v, dim, correction=c))(torch.from_numpy(x))
        np.testing.assert_allclose(found.numpy(), wide.var(axis=dims, ddof=correction), rtol=3e-6)
    spread, centre = mode(lambda v: torch.std_mean(v, dim, keepdim=True))(torch.from_numpy(x))
    np.testing.assert_allclose(
        spread.numpy(), wide.std(axis=dims, ddof=1, keepdims=True), rtol=3e-6
    )
    np.testing.assert_allclose(
        centre.numpy(), wide.mean(axis=dims, keepdims=True), rtol=1e-7, atol=3e-6
    )


@BOTH
@pytest.mark.parametrize("value", [0.1, 1e3 + 0.3, 1e6 + 0.3, -3e7 / 7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("shape", "dim"), SHAPES)
def test_equal_numbers_have_no_spread(
    shape: tuple[int, ...], dim: Any, dtype: Any, value: float, mode: Function
) -> None:
    if dtype is torch.float16:
        value %= 1000.0
    x = torch.full(shape, value, dtype=dtype)
    found = mode(lambda v: (torch.var(v, dim), torch.std(v, dim, correction=0)))(x)
    for each in found:
        assert not each.any()


def norms(shape: tuple[int, ...]) -> list[Function]:
    width = shape[-1]
    return [
        lambda x: F.layer_norm(x, (width,)), lambda x: F.layer_norm(x, tuple(shape[1:])),
        lambda x: F.batch_norm(x, None, None, training=True), lambda x: F.group_norm(x, 2),
        F.instance_norm,
    ]


@BOTH
@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("shape", [(4, 6, 50), (3, 4, 9, 11), (2, 64, 640)])
def test_norms_of_equal_numbers_are_nothing(
    shape: tuple[int, ...], number: int, mode: Function
) -> None:
    norm = mode(norms(shape)[number])
    for value in (0.7, 1e6 + 0.3, -12345.67):
        x = torch.full(shape, value, requires_grad=True)
        y = norm(x)
        assert not y.any()
        y.backward(torch.from_numpy(numbers(shape, 0.0)))
        x64 = x.detach().double().requires_grad_()
        norms(shape)[number](x64).backward(torch.from_numpy(numbers(shape, 0.0)).double())
        np.testing.assert_allclose(x.grad.numpy(), x64.grad.numpy(), rtol=1e-4, atol=2e-3)


@BOTH
@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("shape", [(4, 6, 50), (3, 4, 9, 11), (2, 64, 640)])
def test_norms_of_numbers_far_away(shape: tuple[int, ...], number: int, mode: Function) -> None:
    x = numbers(shape, 1e5)
    found = mode(norms(shape)[number])(torch.from_numpy(x))
    expected = norms(shape)[number](torch.from_numpy(x).double())
    # a mean is rounded to a 256th here
    np.testing.assert_allclose(found.numpy(), expected.numpy(), atol=6e-3)
    spread = found.double().std(correction=0).numpy(), expected.std(correction=0).numpy()
    np.testing.assert_allclose(*spread, rtol=2e-5)


@BOTH
def test_what_a_batch_norm_keeps(mode: Function) -> None:
    for shape in ((64, 5), (6, 5, 40), (4, 5, 30, 30)):
        x = numbers(shape, 1e6)
        module = torch.nn.BatchNorm1d(5) if len(shape) < 4 else torch.nn.BatchNorm2d(5)
        module.momentum = 1.0
        mode(lambda v, module=module: module(v))(torch.from_numpy(x))
        axes = tuple(d for d in range(len(shape)) if d != 1)
        wide = x.astype(np.float64)
        np.testing.assert_allclose(module.running_var.numpy(), wide.var(axes, ddof=1), rtol=3e-6)
        np.testing.assert_allclose(module.running_mean.numpy(), wide.mean(axes), rtol=1e-7)


@BOTH
def test_first_elements_that_are_no_measure(mode: Function) -> None:
    for first in (0.0, 1e4):
        x = numbers((20, 4000), 1000.0)
        x[:, :16] = first
        wide = x.astype(np.float64)
        found = mode(lambda v: torch.var(v, 1))(torch.from_numpy(x))
        np.testing.assert_allclose(found.numpy(), wide.var(1, ddof=1), rtol=2e-5)


@BOTH
def test_the_gradient_of_a_variance(mode: Function) -> None:
    for shape, dim in (((8, 64), 1), ((300, 40), 0), ((4, 5, 900), (0, 2))):
        x = numbers(shape, 1e4)

        def slope(v: Any, dim: Any = dim) -> Any:
            v = v.requires_grad_()
            return torch.autograd.grad((torch.var(v, dim) * 3.0).sum(), v)[0]

        found = mode(slope)(torch.from_numpy(x))
        expected = slope(torch.from_numpy(x).double())
        np.testing.assert_allclose(
            found.numpy(), expected.numpy(), rtol=1e-5, atol=1e-5 * abs(expected.numpy()).max()
        )


@BOTH
def test_what_is_no_number_stays(mode: Function) -> None:
    x = torch.from_numpy(numbers((4, 200), 0.0))
    x[1, 3], x[2, 5] = float("nan"), float("inf")
    found = mode(lambda v: torch.var(v, 1))(x)
    assert found.isnan().tolist() == [False, True, True, False]
    assert torch.var(torch.full((3, 8), 1e20) * torch.arange(8.0), 1).isinf().all()
