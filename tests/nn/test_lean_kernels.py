"""What operators of one function come to: work that is not there to be done twice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import graphc
import graphc.nn.functional as F


def steps_of(function: Any, *arguments: Any) -> Any:
    return graphc.explain(function, *arguments).steps


def test_a_step_of_ctc_is_one_loop_over_elements() -> None:
    x = graphc.randn(20, 3, 7)
    labels = graphc.randint(1, 7, (3, 4))
    given, lengths = graphc.tensor([20, 20, 20]), graphc.tensor([4, 4, 4])
    steps = steps_of(lambda x: F.ctc_loss(x, labels, given, lengths), x)
    repeated = [step for step in steps if step.times > 1]
    assert {step.kind for step in repeated} <= {"loop", "copy"}


def test_a_gradient_of_prod_moves_no_dims() -> None:
    def gradient(x: Any, g: Any) -> Any:
        return graphc.autograd.grad(x.prod(0), x, g)[0]

    x = graphc.rand(6, 40).requires_grad_()
    assert not any("permute" in step.name for step in steps_of(gradient, x, graphc.rand(40)))


@pytest.mark.parametrize("dim", [0, 1, 2, (0, 1), (1, 2), (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("keepdim", [False, True])
def test_gradients_of_prod(dim: Any, keepdim: bool) -> None:
    array = np.random.default_rng(0).standard_normal((3, 4, 5)).astype(np.float32)
    array[1, 2, 3] = array[0, 1, 1] = array[2, 1, 1] = 0
    found = []
    for package in (graphc, torch):
        x = package.tensor(array, requires_grad=True)
        y: Any = x
        dims = (dim,) if isinstance(dim, int) else dim
        for d in sorted(dims, reverse=True):
            y = y.prod(d, keepdim=keepdim)
        (y * y.detach().cos()).sum().backward()
        found.append(x.grad.numpy())
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)


POOLS = [
    (shape, outputs) for shape, many in (
        ((2, 3, 130), (3, 5, 8, 9, 16, 17, 130, 200)), ((2, 3, 10), (3, 7, 9)),
        ((2, 3, 19, 23), (2, 5, (3, 7), (19, 4), (None, 6))), ((3, 40, 9), ((3, 5),)),
        ((1, 2, 9, 11, 8), (2, (4, 3, 5))),
    ) for outputs in many
]


@pytest.mark.parametrize("kind", ["avg", "max"])
@pytest.mark.parametrize(("shape", "outputs"), POOLS, ids=str)
def test_adaptive_pools(kind: str, shape: tuple[int, ...], outputs: Any) -> None:
    array = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    array.reshape(-1)[::7] = 0.5  # equal ones
    array.reshape(-1)[::29] = np.nan
    array.reshape(-1)[::31] = np.inf
    rank = 2 if isinstance(outputs, tuple) and len(outputs) == 2 else 3 if len(shape) == 5 else (
        len(shape) - 2
    )

    def pooled(package: Any, x: Any) -> Any:
        pool = getattr(package.nn.functional, f"adaptive_{kind}_pool{rank}d")
        y, which = pool(x, outputs, return_indices=True) if kind == "max" else (pool(x, outputs), x)
        g = package.arange(float(y.numel())).reshape(y.shape)
        return y, which, package.autograd.grad(y, x, g)[0]

    want = pooled(torch, torch.tensor(array, requires_grad=True))
    x = graphc.tensor(array, requires_grad=True)
    for got in (pooled(graphc, x), graphc.compile(lambda x: pooled(graphc, x))(x)):
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(
                a.detach().numpy(), b.detach().numpy(), rtol=2e-5, atol=1e-5
            )


def test_long_windows_are_read_as_they_lie() -> None:
    text = graphc.explain(lambda x: F.adaptive_avg_pool1d(x, 5), graphc.rand(8, 16, 128))
    assert "check" not in text.kernels_text and ": i64[" not in text.kernels_text


def test_windows_of_maxima_are_looked_at_without_their_gradients() -> None:
    def gradient(x: Any, g: Any) -> Any:
        return graphc.autograd.grad(F.adaptive_max_pool2d(x, 5), x, g)[0]

    x = graphc.rand(2, 3, 32, 32).requires_grad_()
    steps = steps_of(gradient, x, graphc.rand(2, 3, 5, 5))
    assert not any("index_put" in step.name for step in steps)
