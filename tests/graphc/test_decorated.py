"""Users' functions under graphc's own decorators are part of the graph, and guarded."""

from __future__ import annotations

import math
from typing import Any

import pytest

import graphc
from graphc import nn

DECORATORS = {
    "no_grad": graphc.no_grad(),
    "no_grad_bare": graphc.no_grad,
    "enable_grad": graphc.enable_grad(),
    "inference_mode": graphc.inference_mode(),
    "set_grad_enabled": graphc.set_grad_enabled(True),
    "autocast": graphc.autocast("cpu", enabled=False),
    "record_function": graphc.profiler.record_function("update"),
    "grad": lambda function: graphc.func.grad(lambda *args: function(*args).sum()),
    "vmap": graphc.vmap,
    "jacrev": graphc.func.jacrev,
    "jacfwd": graphc.func.jacfwd,
}
graphc.set_grad_enabled(True)


@pytest.mark.parametrize("name", DECORATORS)
def test_a_decorated_function_is_part_of_the_graph(name: str) -> None:
    scale = {"value": 2.0}

    @DECORATORS[name]
    def inner(x: Any) -> Any:
        return x.sin() * scale["value"]

    def outer(x: Any) -> Any:
        return inner(x) + 1

    compiled = graphc.compile(outer, fullgraph=True)
    x = graphc.linspace(0, 1, 3)
    for value in (2.0, 3.0, -1.0):
        scale["value"] = value
        assert graphc.equal(compiled(x), outer(x))


@pytest.mark.parametrize("name", ["no_grad", "inference_mode", "autocast", "record_function"])
def test_replaced_code_of_a_decorated_function_is_seen(name: str) -> None:
    def inner(x: Any) -> Any:
        return x + 1

    def other(x: Any) -> Any:
        return x - 1

    decorated = DECORATORS[name](inner)

    def outer(x: Any) -> Any:
        return decorated(x) * 2

    compiled = graphc.compile(outer, fullgraph=True)
    x = graphc.ones(3)
    assert compiled(x).tolist() == [4.0] * 3
    inner.__code__ = other.__code__
    assert compiled(x).tolist() == [0.0] * 3


@pytest.mark.parametrize("name", ["no_grad", "inference_mode", "autocast"])
def test_a_decorated_generator(name: str) -> None:
    @DECORATORS[name]
    def parts(x: Any) -> Any:
        for i in range(3):
            yield x * i, graphc.is_grad_enabled()

    def outer(x: Any) -> Any:
        return [(part + 1, enabled) for part, enabled in parts(x)]

    compiled = graphc.compile(outer)
    x = graphc.ones(2, requires_grad=True)
    for _ in range(3):
        for (a, grad), (b, expected) in zip(compiled(x), outer(x), strict=True):
            assert graphc.equal(a, b) and grad == expected and a.requires_grad == b.requires_grad


def test_a_training_step_with_an_average_of_its_weights_is_one_graph() -> None:
    class Average:
        def __init__(self, model: nn.Module) -> None:
            self.shadow = {k: v.clone() for k, v in model.state_dict().items()}
            self.steps = 0

        @graphc.no_grad()
        def update(self, model: nn.Module) -> None:
            self.steps += 1
            decay = min(0.99, (1 + self.steps) / (10 + self.steps))
            for name, value in model.state_dict().items():
                self.shadow[name].mul_(decay).add_(value, alpha=1 - decay)

    def run(compiled: bool) -> list[float]:
        graphc.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 1))
        average = Average(model)
        optimizer = graphc.optim.AdamW(model.parameters(), lr=0.01)

        def step(x: Any) -> Any:
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            average.update(model)
            return loss

        run_step = graphc.compile(step, fullgraph=True) if compiled else step
        losses = [float(run_step(graphc.ones(3, 4) * i)) for i in range(12)]
        return [*losses, *(float(v.sum()) for v in average.shadow.values()), average.steps]

    for a, b in zip(run(True), run(False), strict=True):
        assert math.isclose(a, b, rel_tol=1e-5)
