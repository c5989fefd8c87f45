"""A leaf takes over the array of its gradient where nobody else has it, and copies it elsewhere."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc import nn

COUNT = 60_000  # numbers: fewer than what eager mode has kernels for, whose memory is not traced
BYTES = 4 * COUNT


def most_of(function: Callable[[], Any]) -> int:
    """Bytes that NumPy had at most, above those before."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_no_second_array_beside_a_gradient() -> None:
    w = torch.ones(COUNT, requires_grad=True)
    x = torch.rand(COUNT)
    loss = (w * x).sum()
    assert most_of(loss.backward) < 1.5 * BYTES  # the product alone
    np.testing.assert_array_equal(w.grad.numpy(), x.numpy())


def test_no_second_array_beside_a_compiled_modules_gradients() -> None:
    net = nn.Linear(500, 120)
    model = torch.compile(net)
    x = torch.rand(4, 500)
    for keeps in (False, True):  # straight to the leaves, and by the walk in order
        for _ in range(3):
            net.zero_grad()
            loss = model(x).sum()
            most = most_of(lambda loss=loss, keeps=keeps: loss.backward(retain_graph=keeps))
        assert most < 0.9 * BYTES, keeps  # native code's own memory is not traced
        expected = np.tile(x.numpy().sum(0), (120, 1))
        np.testing.assert_allclose(net.weight.grad.numpy(), expected, rtol=1e-6)


def _of_a_sum(kept: list[Any]) -> list[Any]:
    a, b = (torch.zeros(3, requires_grad=True) for _ in range(2))
    given = torch.ones(3)
    (a + b).backward(given)
    kept.append(given)
    return [a, b]


def _of_a_hook(kept: list[Any]) -> list[Any]:
    a = torch.zeros(3, requires_grad=True)
    a.register_hook(kept.append)
    (a * 1.0).backward(torch.ones(3))
    return [a]


def _of_a_hooks_array(kept: list[Any]) -> list[Any]:
    a = torch.zeros(3, requires_grad=True)
    a.register_hook(lambda grad: kept.append(grad.numpy()[::2]))
    (a * 1.0).backward(torch.ones(3))
    return [a]


def _of_a_function(kept: list[Any]) -> list[Any]:
    memory = np.ones(6, np.float32)

    class Given(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            return x + y

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return torch.from_numpy(memory[:3]), torch.from_numpy(memory[3:])

    a, b = (torch.zeros(3, requires_grad=True) for _ in range(2))
    Given.apply(a, b).sum().backward()
    kept.append(memory)
    return [a, b]


def _of_parts(kept: list[Any]) -> list[Any]:
    a, b = (torch.zeros(3, requires_grad=True) for _ in range(2))
    given = torch.ones(6)
    torch.cat([a, b]).backward(given)
    kept.append(given)
    return [a, b]


@pytest.mark.parametrize(
    "make", [_of_a_sum, _of_a_hook, _of_a_hooks_array, _of_a_function, _of_parts]
)
def test_what_others_see_is_copied(make: Callable[[list[Any]], list[Any]]) -> None:
    kept: list[Any] = []
    leaves = make(kept)
    for number, leaf in enumerate(leaves):
        leaf.grad.fill_(5.0 + number)
    for number, leaf in enumerate(leaves):
        assert leaf.grad.tolist() == [5.0 + number] * 3
    for other in kept:
        assert np.all(np.asarray(other) == 1.0)
