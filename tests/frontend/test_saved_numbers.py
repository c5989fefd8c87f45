"""Hooks on saved tensors see tensors: the number in x**3 is none, as in PyTorch."""

from typing import Any

import numpy as np
import pytest

import graphc

torch = pytest.importorskip("torch")


def powers(x: Any, m: Any) -> Any:
    return (x**3).sum() + (x**2.5).sum() + m.pow(x, -1).sum() + (x / 3).sum() + (x * 2).sum()


def clamps(x: Any, m: Any) -> Any:
    return (x**3).clamp(0.5, 20).sum() + x.pow(m.tensor(3.0)).sum()


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("function", [powers, clamps])
def test_numbers_are_not_packed(function: Any, compiled: bool) -> None:
    def run(m: Any, compile: Any) -> Any:
        seen: list[Any] = []

        def pack(t: Any) -> Any:
            seen.append(tuple(t.shape))
            return t * 1

        def loss(x: Any) -> Any:
            with m.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
                return function(x, m)

        x = m.arange(1.0, 4.0).requires_grad_()
        compile(loss)(x).backward()
        return seen, x.grad.tolist()

    ours = run(graphc, graphc.compile if compiled else lambda f: f)
    theirs = run(torch, lambda f: f)
    if function is powers:  # torch keeps more of x.pow(tensor)
        assert ours[0] == theirs[0]
    else:
        assert ours[0].count(()) <= theirs[0].count(())
    np.testing.assert_allclose(ours[1], theirs[1], 1e-6)
