"""Updates of parameters on the device: a launch for all that are alike."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn
from graphc.backends.cuda import executable
from graphc.backends.cuda.backend import CudaBackend

from ..emulated_device import CountingDriver


def trained(device: str, dynamic: bool = False) -> tuple[list[np.ndarray], Any]:
    """Parameters after three compiled steps of AdamW, and the compiled step."""
    graphc.manual_seed(0)
    sizes = (5, 7, 6, 9, 4)
    layers = [nn.Linear(a, b) for a, b in pairwise(sizes)]
    model = nn.Sequential(*layers).to(device)
    optimizer = graphc.optim.AdamW(model.parameters(), lr=0.1)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    compiled = graphc.compile(step, fullgraph=True, dynamic=dynamic or None)
    for number in range(3):
        rows = 3 + 14 * number * dynamic
        x, y = graphc.randn(rows, 5), graphc.randn(rows, 4)
        compiled(x.to(device), y.to(device))
    return [p.detach().cpu().numpy() for p in model.parameters()], compiled


@pytest.mark.parametrize("dynamic", (False, True))
def test_a_step_of_an_optimizer(
    dynamic: bool, cuda: CudaBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = cuda.memory.driver
    assert isinstance(driver, CountingDriver)
    want, _ = trained("cpu", dynamic)
    counts = []
    for gathers in (True, False):
        if not gathers:
            monkeypatch.setattr(executable, "together", lambda program, dims: [
                (step,) for step in program.steps
            ])
        before = driver.calls["launch"]
        with graphc.config.override(cuda_graphs="0"):
            got, _ = trained("cuda", dynamic)
        counts.append(driver.calls["launch"] - before)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5)
    # eight parameters: each kernel of their updates was launched once for each
    assert counts[1] - counts[0] >= 3 * 2 * 7
