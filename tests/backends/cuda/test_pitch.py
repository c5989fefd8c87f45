"""Values whose rows are longer than their columns: what is planned runs, and touches memory in
whole accesses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc
from graphc.backends.cuda.emulator import Schedule

from .emulated import NAME, EmulatedBackend

cross_entropy, autocast = graphc.nn.functional.cross_entropy, graphc.autocast
COLUMNS, ROWS = 203, 96


def losses(backend: str) -> list[float]:
    """Of three steps of a layer with many classes, in halves."""
    graphc.manual_seed(0)
    model = graphc.nn.Sequential(graphc.nn.Linear(16, 32), graphc.nn.Linear(32, COLUMNS))
    optimizer = graphc.optim.SGD(model.parameters(), lr=0.5)

    def step(x: Any, target: Any) -> Any:
        optimizer.zero_grad()
        with autocast("cpu", dtype=graphc.bfloat16):
            loss = cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        return loss.detach()

    rng = np.random.default_rng(0)
    x = graphc.tensor(rng.standard_normal((ROWS, 16), "f4"))
    target = graphc.tensor(rng.integers(0, COLUMNS, ROWS))
    compiled = graphc.compile(step, backend=backend, fullgraph=True)
    return [float(compiled(x, target)) for _ in range(3)]


@pytest.mark.filterwarnings("ignore:compiled .* does not pay")
def test_a_training_step_with_an_odd_number_of_classes(emulated: EmulatedBackend) -> None:
    before = set(emulated.kernels)
    emulated.schedule = Schedule(watch=True)
    found = losses(NAME)
    np.testing.assert_allclose(found, losses("llvm"), rtol=2e-2)
    assert found[2] < found[0]
    kernels = [emulated.kernels[symbol] for symbol in emulated.kernels.keys() - before]
    texts = "".join(emulated.sources[symbol].text for symbol in emulated.kernels.keys() - before)
    sizes = {param.size for kernel in kernels for param in kernel.params}
    assert ROWS * 208 in sizes and ROWS * COLUMNS not in sizes
    assert "left_ >= 8, left_" in texts
