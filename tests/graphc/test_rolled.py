"""Python loops over steps, compiled: one native loop each way, of however many steps."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc import nn
from graphc.engine import stages


class Sequence(nn.Module):
    """pytorch/examples' time_sequence_prediction: two cells, then predictions from predictions."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.lstm1 = nn.LSTMCell(1, size)
        self.lstm2 = nn.LSTMCell(size, size)
        self.linear = nn.Linear(size, 1)

    def forward(self, input: Any, future: int = 0) -> Any:
        outputs = []
        h1, c1, h2, c2 = (
            torch.zeros(input.size(0), self.size, dtype=torch.double) for _ in range(4)
        )
        for part in input.split(1, dim=1):
            h1, c1 = self.lstm1(part, (h1, c1))
            h2, c2 = self.lstm2(h1, (h2, c2))
            output = self.linear(h2)
            outputs += [output]
        for _ in range(future):
            h1, c1 = self.lstm1(output, (h1, c1))
            h2, c2 = self.lstm2(h1, (h2, c2))
            output = self.linear(h2)
            outputs += [output]
        return torch.cat(outputs, dim=1)


def waves(batch: int, steps: int) -> tuple[Any, Any]:
    torch.manual_seed(0)
    phase = torch.randint(-80, 80, (batch, 1)).double()
    data = torch.sin((torch.arange(steps + 1).double() + phase) / 20.0)
    return data[:, :-1], data[:, 1:]


def trained(compiled: str, steps: int) -> list[np.ndarray]:
    """Losses, weights and gradients of three training steps, and what is predicted then."""
    torch.manual_seed(1)
    model = Sequence(5).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    x, y = waves(4, steps)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(run(x), y)
        loss.backward()
        optimizer.step()
        return loss

    run: Any = torch.compile(model) if compiled == "model" else model
    call = torch.compile(step) if compiled == "step" else step
    found = [call(x, y).detach() for _ in range(3)]
    found += [t.detach() for p in model.parameters() for t in (p, p.grad)]
    with torch.no_grad():
        found.append(run(x, future=40))
    return [t.numpy().copy() for t in found]


@pytest.mark.parametrize("compiled", ["step", "model"])
def test_a_loop_over_cells_is_trained_as_in_eager_mode(
    compiled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    finish = stages._finish

    def watched(graph: Any, optimised: Any, *rest: Any) -> Any:
        sizes.append(len(optimised.nodes))
        return finish(graph, optimised, *rest)

    monkeypatch.setattr(stages, "_finish", watched)
    found, expected = trained(compiled, 50), trained("", 50)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)
    assert sizes and max(sizes) < 1200  # of about 6,000 as recorded


@pytest.mark.slow
def test_a_thousand_steps_compile_in_twenty_seconds() -> None:
    model = Sequence(51).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = waves(97, 999)

    @torch.compile
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    start = time.process_time()
    step(x, y)
    assert time.process_time() - start < 20
