"""What big work becomes on a GPU, at little sizes on the emulator: reductions in stages, rows kept
in lanes, sums over columns beside them; in training steps, against the CPU."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import graphc
from graphc import backends
from graphc.backends.cuda.emulator import Schedule, Toolchain
from tests.ir.machines import CUTTING

from .emulated import EmulatedBackend
from .test_models import Trained, gpt, losses, residual

NAME = "emulated cuda that cuts"


class Cutting(EmulatedBackend):
    """Cuts what is hardly worth it."""

    machine = CUTTING


@pytest.fixture(scope="module")
def cutting(toolchain: Toolchain) -> Iterator[Cutting]:
    backend = Cutting(toolchain)
    backends.register(NAME, lambda: backend, ("debug",))
    yield backend


@pytest.mark.parametrize("make", (pytest.param(gpt, marks=pytest.mark.slow), residual))
@pytest.mark.filterwarnings("ignore:compiled .* does not pay")
def test_training_steps_in_stages(make: Callable[[], Trained], cutting: Cutting) -> None:
    cutting.schedule = Schedule(ahead=True, direction="descending")
    want = losses(make, "llvm")
    np.testing.assert_allclose(losses(make, NAME), want, rtol=1e-4)
    assert any(len(source.stages) > 1 for source in cutting.sources.values())


@pytest.mark.parametrize("columns", (5, 12, 33, 300))
def test_a_norm_and_its_gradients(columns: int, cutting: Cutting) -> None:
    rng = np.random.default_rng(columns)
    x, g = (graphc.tensor(rng.standard_normal((2, 19, columns), "f4")) for _ in range(2))
    weight, bias = (graphc.tensor(rng.standard_normal(columns, "f4")) for _ in range(2))

    def gradients(x, g, weight, bias):
        x, weight, bias = (v.detach().requires_grad_() for v in (x, weight, bias))
        y = graphc.nn.functional.layer_norm(x, (columns,), weight, bias)
        y.backward(g)
        return y.detach(), x.grad, weight.grad, bias.grad

    want = gradients(x, g, weight, bias)
    before = set(cutting.sources)
    compiled = graphc.compile(gradients, backend=NAME, fullgraph=True)
    for schedule in (Schedule(ahead=True), Schedule(watch=True)):
        cutting.schedule = schedule
        for found, wanted in zip(compiled(x, g, weight, bias), want, strict=True):
            np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=2e-5, atol=2e-5)
    added = [cutting.sources[symbol].text for symbol in cutting.sources if symbol not in before]
    # a thread keeps its row only where that is short
    assert any(re.search(r"\brow\b", text) for text in added) is (columns < 33)
