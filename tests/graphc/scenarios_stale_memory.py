"""Scenarios: tensors whose memory NumPy arrays share (scenario.py)."""

from __future__ import annotations

from typing import Any

from tests.graphc.stale_scenario import stale


def _gradients_in_numpy(
    torch: Any, nn: Any, compile: Any, exposed: str, demand: bool, write: bool
) -> Any:
    """Several leaves, so that one accumulates while the backward pass of others goes on."""
    params = [nn.Parameter(torch.ones(3) * (0.5 + k)) for k in range(3)]
    views = []
    for p in params:
        p.grad = torch.zeros(3)
        views += [p.grad.numpy()] if exposed == "grad" else [p.detach().numpy()]
    values = []

    def f(x):
        if demand:
            values.append(x.sum().item())
        h = x
        for p in params:
            h = torch.tanh(h * p) + p
        for p in reversed(params):
            h = h * p
        loss = h.sum()
        loss.backward()
        if write:
            values.append([view.copy() for view in views])
            for view in views:
                view *= 0.5
        return loss.detach()

    c = compile(f)
    out: list[Any] = []
    for i in range(5):
        out += [c(torch.ones(3) * i * 0.1), [p.grad.clone() for p in params], params]
        out += [view.copy() for view in views]
    return [*out, values]


@stale
def gradients_that_numpy_sees(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    return _gradients_in_numpy(torch, nn, compile, "grad", True, False)


@stale
def gradients_that_numpy_scales(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    return _gradients_in_numpy(torch, nn, compile, "grad", True, True)


@stale
def weights_that_numpy_sees(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    return _gradients_in_numpy(torch, nn, compile, "weight", True, False)


@stale
def weights_that_numpy_scales(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    return _gradients_in_numpy(torch, nn, compile, "weight", False, True)


@stale
def an_array_on_a_gradient_is_scaled(torch: Any, nn: Any, F: Any, compile: Any) -> Any:
    w = nn.Parameter(torch.ones(3))
    w.grad = torch.zeros(3)
    view = w.grad.numpy()

    def f(x):
        nonlocal view
        loss = (w * x).sum()
        loss.backward()
        view *= 0.5
        return loss.detach()

    c = compile(f)
    return [[c(torch.arange(3.0) + i), view.copy(), w.grad.clone()] for i in range(5)]


@stale
def an_array_is_written_before_its_tensor_is_read(
    torch: Any, nn: Any, F: Any, compile: Any
) -> Any:
    x = torch.zeros(3)
    array = x.numpy()

    def f(y):
        array[1] += 1
        out = x * 2 + y
        array[2] += 10
        return out, x + 0

    c = compile(f)
    return [[c(torch.ones(3) * i), array.copy()] for i in range(5)]
