"""Slopes that are piecewise constant: their gradient is 0, as torch's, and not None."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import graphc

_FUNCTIONS: dict[str, Any] = {
    "relu": lambda t, x: t.relu(x),
    "leaky_relu": lambda t, x: t.nn.functional.leaky_relu(x, 0.2),
    "hardtanh": lambda t, x: t.nn.functional.hardtanh(x),
    "relu6": lambda t, x: t.nn.functional.relu6(x),
    "threshold": lambda t, x: t.nn.functional.threshold(x, 0.1, 0.0),
    "prelu": lambda t, x: t.nn.functional.prelu(x, t.tensor([0.2])),
    "hardshrink": lambda t, x: t.nn.functional.hardshrink(x),
    "softshrink": lambda t, x: t.nn.functional.softshrink(x),
    "max_pool1d": lambda t, x: t.nn.functional.max_pool1d(x, 2),
    "max_pool2d": lambda t, x: t.nn.functional.max_pool2d(x, 2, 1),
    "avg_pool1d": lambda t, x: t.nn.functional.avg_pool1d(x[0], 2),
    "avg_pool2d": lambda t, x: t.nn.functional.avg_pool2d(x, 2, 1),
    "adaptive_max_pool2d": lambda t, x: t.nn.functional.adaptive_max_pool2d(x, 2),
    "reflection": lambda t, x: t.nn.functional.pad(x, (1, 1), mode="reflect"),
}


def _run(t: Any, function: Any, compiled: bool) -> list[np.ndarray]:
    rows = np.random.RandomState(0).randn(2, 3, 4).astype(np.float32)
    x = t.tensor(rows, requires_grad=True)
    weight = t.tensor(rows[0] + 1, requires_grad=True)
    bias = t.tensor(rows[1, :, :1], requires_grad=True)

    def net(x: Any) -> Any:
        return function(t, x * weight + bias)

    y = (graphc.compile(net) if compiled else net)(x)
    (slope,) = t.autograd.grad(y.sum(), x, create_graph=True)
    penalty = (slope.pow(2).sum((1, 2)) - 1).pow(2).mean()
    grads = t.autograd.grad(penalty, [x, weight, bias])  # all are used
    return [g.detach().numpy() for g in grads]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", sorted(_FUNCTIONS))
def test_a_gradient_penalty_reaches_what_only_slopes_depend_on(name: str, compiled: bool) -> None:
    function = _FUNCTIONS[name]
    want = _run(torch, function, False)
    for got, value in zip(_run(graphc, function, compiled), want, strict=True):
        np.testing.assert_allclose(got, value, rtol=1e-5, atol=1e-6)
    assert not want[2].any()


def test_the_second_derivative_of_a_relu_network_is_zero() -> None:
    x = graphc.linspace(-1, 1, 5).requires_grad_()
    (slope,) = graphc.autograd.grad((graphc.relu(x) * 3).sum(), x, create_graph=True)
    assert slope.requires_grad
    assert slope.tolist() == [0, 0, 0, 3, 3]
    (curve,) = graphc.autograd.grad(slope.sum(), x)
    assert curve.tolist() == [0] * 5


def test_a_penalty_inside_of_a_compiled_function() -> None:
    def step(t: Any) -> Any:
        def penalty(x: Any, bias: Any) -> Any:
            y = t.nn.functional.leaky_relu(x * 2 + bias, 0.2)
            (slope,) = t.autograd.grad(y.sum(), x, create_graph=True)
            return t.autograd.grad(slope.pow(2).sum(), [x, bias])
        return penalty

    for _ in range(2):
        x, bias = graphc.ones(3, requires_grad=True), graphc.zeros(3, requires_grad=True)
        for run in (step(graphc), graphc.compile(step(graphc))):
            assert [g.tolist() for g in run(x, bias)] == [[0.0] * 3] * 2
