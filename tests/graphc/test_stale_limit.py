"""A function whose guards break at every call goes over to segments and stops compiling."""

from __future__ import annotations

from typing import Any

import pytest

import graphc
from graphc.engine.built import CompileCounter


class Growing(graphc.nn.Module):
    """Reads a list that the script appends to between calls."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = graphc.nn.Linear(2, 2)
        self.seen: list[float] = []

    def forward(self, x: graphc.Tensor) -> graphc.Tensor:
        return self.layer(x) * (1.0 + sum(self.seen))


@pytest.fixture
def counted() -> Any:
    before = CompileCounter.count
    return lambda: CompileCounter.count - before


def test_compiling_ends_and_results_stay_right(counted: Any) -> None:
    model = Growing()
    compiled = graphc.compile(model)
    x = graphc.ones(1, 2)
    for i in range(16):
        assert graphc.allclose(compiled(x), model(x))
        model.seen.append(float(i))
    known = counted()
    assert known < 14
    for i in range(4):
        compiled(x).sum().backward()
        model.seen.append(float(i))
    assert counted() <= known + 2
    assert model.layer.weight.grad is not None
