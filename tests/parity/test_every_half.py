"""Every value of the 16-bit floats through functions that torch computes in float32: results and
gradients have torch's bits, but where a float32 lies in the middle between two halves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc

torch = pytest.importorskip("torch")

# name: how many values may differ, forward and backward
FUNCTIONS: dict[str, tuple[int, int]] = {
    # torch's x * 6 is infinite before it is divided by 6
    "hardswish": (350, 30), "hardsigmoid": (0, 0), "mish": (5, 5),
    # torch computes the gradients from the result, or another way
    "logsigmoid": (25, 3500), "elu": (0, 400), "selu": (0, 400), "celu": (0, 400),
    "sigmoid": (0, 0), "tanh": (0, 0), "silu": (2, 2), "leaky_relu": (0, 0), "relu6": (0, 0),
}


def _both(t: Any, name: str, dtype: str, compiled: bool) -> list[np.ndarray]:
    bits = np.arange(1 << 16).astype(np.uint16).view(np.int16)
    x = t.from_numpy(bits).view(getattr(t, dtype)).requires_grad_()
    function = getattr(t.nn.functional, name)

    def step(x: Any) -> Any:
        y = function(x)
        (gradient,) = t.autograd.grad(y, x, t.full_like(y, 0.7, requires_grad=False))
        return y.detach(), gradient

    run = graphc.compile(step) if compiled else step
    return [np.asarray(result.float().numpy()) for result in run(x)]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_half_gives_what_it_gives_in_torch(name: str, dtype: str, compiled: bool) -> None:
    wanted = _both(torch, name, dtype, False)
    found = _both(graphc, name, dtype, compiled)
    for allowed, want, got in zip(FUNCTIONS[name], wanted, found, strict=True):
        same = (want == got) | (np.isnan(want) & np.isnan(got))
        assert int((~same).sum()) <= allowed


@pytest.mark.parametrize("weight", [0.3, 0.7])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_lerp_rounds_once(dtype: str, weight: float) -> None:
    ends = np.random.default_rng(0).standard_normal((2, 1 << 16)).astype(np.float32)

    def run(t: Any) -> np.ndarray:
        a, b = t.from_numpy(ends).to(getattr(t, dtype))
        return np.asarray(t.lerp(a, b, weight).float().numpy())

    assert int((run(torch) != run(graphc)).sum()) <= 655  # torch may have a fused sum
