"""grid_sample and ctc_loss where eager mode runs them as one graph for all sizes."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import graphc  # noqa: E402
from graphc.nn.functional import ctc, grid  # noqa: E402

pytestmark = pytest.mark.slow  # it compiles


@pytest.fixture(autouse=True)
def _all_as_one(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """However little there is to do."""
    for module in (ctc, grid):
        monkeypatch.setattr(module, "_LEAST", 0)
    yield
    for module in (ctc, grid):
        module._whole.cache_clear()


def made(package: Any, array: np.ndarray) -> Any:
    x = package.tensor(array)
    return x.requires_grad_() if array.dtype.kind == "f" else x


def compare(call: Any, *arrays: np.ndarray) -> None:
    """Values and gradients."""
    found = []
    for package in (torch, graphc):
        given = [made(package, array) for array in arrays]
        result = call(package.nn.functional, *given)
        result.square().sum().backward()
        found.append([result.detach().numpy(), *[x.grad.numpy() for x in given if x.requires_grad]])
    for right, ours in zip(*found, strict=True):
        assert ours.dtype == right.dtype and ours.shape == right.shape
        np.testing.assert_allclose(ours, right, 1e-9, 1e-9)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grids_of_several_sizes(mode: str, padding: str) -> None:
    r = np.random.default_rng(0)
    call = lambda F, x, g: F.grid_sample(  # noqa: E731
        x, g, mode, padding, align_corners=padding == "border")
    for images, channels, rows, columns in ((2, 3, 4, 5), (1, 1, 1, 9), (3, 2, 7, 1)):
        x = r.standard_normal((images, channels, 5, 6))
        compare(call, x, r.uniform(-1.4, 1.4, (images, rows, columns, 2)))
    assert grid._whole.cache_info().currsize == 1
    if mode != "bicubic":
        x = r.standard_normal((2, 3, 4, 5, 6))
        compare(call, x, r.uniform(-1.4, 1.4, (2, 3, 2, 4, 3)))


def test_labels_of_several_lengths() -> None:
    r = np.random.default_rng(0)
    for steps, batch, count in ((9, 3, 4), (12, 1, 3), (6, 5, 1)):
        x = r.standard_normal((steps, batch, 7))
        labels = r.integers(1, 7, (batch, count))
        inputs, targets = r.integers(2 * count, steps + 1, batch), r.integers(0, count + 1, batch)
        for reduction in ("mean", "none"):
            compare(
                functools.partial(
                    lambda F, x, *rest, kind: F.ctc_loss(
                        F.log_softmax(x, 2), *rest, reduction=kind, zero_infinity=True),
                    kind=reduction,
                ),
                x, labels, inputs, targets,
            )
    assert ctc._whole.cache_info().currsize == 1


def test_layouts_and_modes_of_gradients() -> None:
    x, places = graphc.rand(2, 3, 6, 6), graphc.rand(2, 8, 8, 2) * 2 - 1
    F = graphc.nn.functional
    right = grid._values_at(x.mT.contiguous(), places[:, ::2], "bilinear", "zeros", False)
    for again in range(2):
        with graphc.inference_mode(bool(again)):
            found = F.grid_sample(x.mT, places[:, ::2], align_corners=False)
        assert found.is_inference() == bool(again) and found.is_contiguous()
        np.testing.assert_allclose(found.numpy(), right.numpy(), 1e-5, 1e-6)
