"""Gradient rules of few numbers as one call of native code: the bits of their operators one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc.engine import eager_rows, program_code, program_gradient
from graphc.frontend import programs
from graphc.nn import functional as F

CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "gelu": lambda x, y: F.gelu(x), "mish": lambda x, y: F.mish(x * y), "div": lambda x, y: x / y,
    "softmax": lambda x, y: F.softmax(x, 1), "layer_norm": lambda x, y: F.layer_norm(x, (4,), y[0]),
    "columns": lambda x, y: F.softmax(x, 0), "var": lambda x, y: x.var(0), "pow": lambda x, y: x**3,
    "huber": lambda x, y: F.huber_loss(x, y), "cosine": lambda x, y: F.cosine_similarity(x, y),
    "normalize": lambda x, y: F.normalize(x), "logits": lambda x, y: (
        F.binary_cross_entropy_with_logits(x, y.sigmoid())
    ),
    "entropy": lambda x, y: F.cross_entropy(x, torch.tensor([0, 1, 2, 3])),
    "conv": lambda x, y: F.conv2d(x[None, None], y[:2, :2][None, None], padding=1),
    "spread": lambda x, y: x[:1] * y + y[:, 1:2], "product": lambda x, y: x.t() @ y,
    "logsumexp": lambda x, y: x.logsumexp(0), "gather": lambda x, y: x.gather(
        1, torch.tensor([[0], [3], [1], [1]])
    ),
    "batch": lambda x, y: F.batch_norm(x[None], None, None, y[0], y[1], True),
    "pool": lambda x, y: F.avg_pool2d(x[None], 2) + F.max_pool2d(y[None], 2),
    "grid": lambda x, y: F.grid_sample(
        x.reshape(1, 2, 2, 4), y.tanh().reshape(1, 2, 4, 2), align_corners=False
    ),
}
LOSSES: dict[str, Callable[[Any], Any]] = {
    "sum": lambda z: z.sum(), "squares": lambda z: (z * z).sum() * 0.7,
    "turned": lambda z: (z.t() * 3).exp().sum() if z.dim() == 2 else z.mean(),
}


@pytest.fixture(autouse=True)
def soon(only_the_cpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eager_rows, "_ENOUGH", 0)
    monkeypatch.setattr(eager_rows, "native", eager_rows.Native())
    monkeypatch.setattr(programs, "_OFTEN", 1)
    if not program_code.Code():
        pytest.skip("no compiler for this machine")


def gradients(call: Callable[[Any, Any], Any], loss: Callable[[Any], Any], dtype: Any) -> list[Any]:
    found: list[Any] = []
    for seed in range(7):
        numbers = np.random.default_rng(seed).standard_normal((2, 4, 4)) * 2
        numbers[0, 0] = [0, 3, -0.0, 1]
        if seed > 4:
            numbers[:, 1, :3] = [np.nan, np.inf, -np.inf]
        x, y = (torch.tensor(v, dtype=dtype, requires_grad=True) for v in numbers)
        loss(call(x, y)).backward()
        for leaf in (x, y):
            if leaf.grad is not None:
                array = leaf.grad.numpy()
                found += [array.tobytes(), array.strides]
                leaf.grad.add_(1)  # nobody else's
    return found


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", CALLS)
def test_bits(name: str, loss: str, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    by_programs = gradients(CALLS[name], LOSSES[loss], dtype)
    monkeypatch.setattr(programs.Eager, "gradient", staticmethod(lambda _: None))
    monkeypatch.setattr(programs.ArrayProgram, "run", _one_by_one(programs.ArrayProgram.run))
    assert by_programs == gradients(CALLS[name], LOSSES[loss], dtype)


def _one_by_one(run: Callable[..., Any]) -> Callable[..., Any]:
    def without(self: Any, *given: Any) -> Any:
        self.native = None
        return run(self, *given)

    return without


def test_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[Any] = []
    make = program_gradient._written

    def noting(*given: Any) -> Any:
        run = make(*given)
        return lambda *heads: served.append(found := run(*heads)) or found

    monkeypatch.setattr(program_gradient, "_written", noting)
    w = torch.rand(3, 17, requires_grad=True)  # of a shape that nobody else asks for
    for _ in range(8):
        F.mish(F.softmax(w, 1)).sum().backward()
    assert len(served) > 6 and None not in served


def test_other_bits_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        program_gradient, "_written", lambda *_: lambda *heads: [np.zeros((3, 19), np.float32)]
    )
    for _ in range(6):
        w = torch.full((3, 19), 0.5, requires_grad=True)
        F.softmax(w, 1)[:, 0].sum().backward()
        assert w.grad is not None and float(w.grad.abs().sum()) > 0
