"""Gradients at the ends of the domain: finite, and PyTorch's, eager and compiled."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import graphc
from tests.nn.both import SPACES

ENDS = [0.0, 1.0, 0.0, 1.0, 0.5, 0.9999999, 1e-20, 0.0, 1.0, 0.3]
TARGETS = [0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.4, 0.4, 0.3]
LOGITS = [200.0, -200.0, 88.0, -104.0, 17.0, -17.0, 0.0, 1e30, -1e30, 3.0]
CASES: dict[str, tuple[list[float], Callable[[Any, Any, Any], Any]]] = {
    "bce": (ENDS, lambda s, x, t: s.F.binary_cross_entropy(x, t)),
    "bce of a sigmoid": (
        LOGITS, lambda s, x, t: s.F.binary_cross_entropy(s.torch.sigmoid(x), t, reduction="sum")),
    "bce with weights": (
        ENDS, lambda s, x, t: s.F.binary_cross_entropy(x, t, weight=t + 0.5, reduction="sum")),
    "bce of logits": (LOGITS, lambda s, x, t: s.F.binary_cross_entropy_with_logits(x, t)),
    "kl of zeros": (LOGITS, lambda s, x, t: s.F.kl_div(s.F.logsigmoid(x), t, reduction="sum")),
    "distance of equals": (ENDS, lambda s, x, t: s.torch.norm(x - x.detach()) + t.sum()),
    "log_softmax": (LOGITS, lambda s, x, t: (s.F.log_softmax(x / 1e3, 0) * t).sum()),
    "poisson": (ENDS, lambda s, x, t: s.F.poisson_nll_loss(x, t, log_input=False, full=True)),
    "softplus": (LOGITS, lambda s, x, t: (s.F.softplus(x / 1e2) * t).sum()),
    "mish": (LOGITS, lambda s, x, t: (s.F.mish(x / 1e2) * t).sum()),
    "cosine": (ENDS, lambda s, x, t: s.F.cosine_similarity(x * 0, t, dim=0)),
    "smooth l1": (ENDS, lambda s, x, t: s.F.smooth_l1_loss(x, t, beta=0.0)),
}


def _run(s: Any, name: str, compiled: bool) -> tuple[Any, Any]:
    values, loss = CASES[name]
    x = s.torch.tensor(values, requires_grad=True)
    target = s.torch.tensor(TARGETS)
    call = functools.partial(loss, s)
    result = (graphc.compile(call) if compiled else call)(x, target)
    result.backward()
    return result.detach().numpy(), x.grad.numpy()


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", CASES)
def test_gradients_at_the_ends_are_torchs(name: str, compiled: bool) -> None:
    torch_space = next(s for s in SPACES if s.torch is not graphc)
    graphc_space = next(s for s in SPACES if s.torch is graphc)
    want = _run(torch_space, name, False)
    have = _run(graphc_space, name, compiled)
    for h, w in zip(have, want, strict=True):
        np.testing.assert_allclose(h, w, rtol=2e-5, atol=1e-6)


def test_a_second_derivative_of_bce() -> None:
    found = []
    for s in SPACES:
        x = s.torch.tensor([0.2, 0.9], requires_grad=True)
        loss = s.F.binary_cross_entropy(x, s.torch.tensor([1.0, 0.3]))
        (first,) = s.torch.autograd.grad(loss, x, create_graph=True)
        (second,) = s.torch.autograd.grad(first.sum(), x)
        found.append(second.numpy())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)


@pytest.mark.parametrize("bad", [2.0, -0.5, float("nan")])
def test_compiled_bce_refuses_what_is_no_probability(bad: float) -> None:
    weight = graphc.zeros(3, requires_grad=True)

    def step(x: graphc.Tensor) -> graphc.Tensor:
        loss = graphc.nn.functional.binary_cross_entropy(x + weight, graphc.ones(3))
        loss.backward()
        return loss

    compiled = graphc.compile(step, fullgraph=True)
    x = graphc.tensor([0.25, 0.5, 1.0])
    first = compiled(x).item()
    assert first == pytest.approx((math.log(4) + math.log(2)) / 3)
    before = weight.grad.clone()
    x[1] = bad
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        compiled(x)
    assert graphc.equal(weight.grad, before)  # nothing was added by the call that was refused
    x[1] = 0.5
    assert compiled(x).item() == first
