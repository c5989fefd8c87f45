"""The gradient of what several slices are taken of is collected in one place."""

from __future__ import annotations

import numpy as np
import pytest

import graphc as torch
from graphc.frontend.blocks import Blocks

reference = pytest.importorskip("torch")

CASES = {
    "apart": (lambda t, x: x[0] * x[1], (9, 5)),
    "over each other": (lambda t, x: sum(x[i : i + 3].sum(0) * i for i in range(6)), (9, 5)),
    "steps": (lambda t, x: x[::2].sum() * x[1::3, 1:].exp().sum() + x.sum(), (9, 5)),
    "parts": (lambda t, x: t.cat(x.chunk(4, 1)[::-1], 1) + x, (6, 8)),
    "beside all": (lambda t, x: (x[1:] - x[:-1]) ** 2 * x[:1] * x[0, 0] + x.exp()[1:], (9, 5)),
    "rows": (lambda t, x: t.stack(x.unbind(0)[:3]) * x[2], (5, 4)),
    "none": (lambda t, x: x[0:0].sum() + x[2], (5, 4)),
    "columns": (lambda t, x: x[:, 1].view(-1)[2:4] * x[3:, 2] * x[..., -1][1], (5, 4)),
    "expanded": (lambda t, x: x[:1].expand(3, 4) * x[1:4] + x[2], (5, 4)),
    "alone": (lambda t, x: x[:, 1:3], (5, 4)),
}


def gradients(t, function, shape, dtype):
    x = t.from_numpy(np.random.default_rng(3).standard_normal(shape).astype(dtype))
    x = x.requires_grad_()
    for _ in range(2):  # the second is added to the first
        y = function(t, x) * 1.5
        weights = np.linspace(-1, 1, y.numel()).astype(dtype).reshape(tuple(y.shape))
        (y * t.from_numpy(weights)).sum().backward()
    found = x.grad.numpy().copy()
    x.grad = None
    loss = function(t, x).square().sum()
    (first,) = t.autograd.grad(loss, x, create_graph=True)
    (second,) = t.autograd.grad(first.sum(), x)
    return found, first.detach().numpy(), second.numpy()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("name", CASES)
def test_gradients(name, dtype):
    function, shape = CASES[name]
    given = gradients(torch, function, shape, dtype)
    wanted = gradients(reference, function, shape, dtype)
    near = {"float32": 2e-5, "float64": 1e-12, "float16": 2e-2}[dtype]
    for a, b in zip(given, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=near, atol=near)


@pytest.mark.usefixtures("only_the_cpu")
def test_one_array_for_all(monkeypatch):
    made = []
    zeros = Blocks._zeros
    monkeypatch.setattr(Blocks, "_zeros", lambda self: made.append(self) or zeros(self))
    x = torch.ones(50, 4, requires_grad=True)
    sum(x[i] for i in range(50)).sum().backward()
    assert len(made) == 1
    assert x.grad.tolist() == [[1.0] * 4] * 50


def test_hooks_see_arrays():
    x = torch.ones(6, 3, requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: g * 3)
    y.retain_grad()
    part = y[:2]
    seen = []
    part.grad_fn.register_hook(lambda into, out: seen.append(into[0].tolist()))
    (part * 5).sum().backward()
    assert seen == [[[5.0] * 3] * 2 + [[0.0] * 3] * 4]
    assert y.grad.tolist() == [[15.0] * 3] * 2 + [[0.0] * 3] * 4
    assert x.grad.tolist() == [[30.0] * 3] * 2 + [[0.0] * 3] * 4
