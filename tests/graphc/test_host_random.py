"""Draws from Python's and NumPy's generators happen at every call, of numbers in one graph."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

import graphc

DRAWS: dict[str, Callable[[], float]] = {
    "python": lambda: float(random.randint(0, 9)),
    "numpy": lambda: float(np.random.rand()),
    "shuffle": lambda: float(np.random.permutation(7)[0]),
}


class Model(graphc.nn.Module):
    """A network whose shape is drawn at every call (jcjohnson/pytorch-examples, dynamic_net)."""

    def __init__(self, draw: Callable[[], float]) -> None:
        super().__init__()
        self.layer = graphc.nn.Linear(4, 4)
        self.draw = draw

    def forward(self, x: graphc.Tensor) -> graphc.Tensor:
        for _ in range(random.randint(0, 2)):
            x = self.layer(x)
        return x * self.draw()


def seed() -> None:
    random.seed(3)
    np.random.seed(3)


@pytest.mark.parametrize("name", DRAWS)
def test_every_call_draws(name: str) -> None:
    graphc.manual_seed(0)
    model = Model(DRAWS[name])
    compiled = graphc.compile(model)
    x = graphc.ones(2, 4)
    seed()
    want = [model(x).sum().item() for _ in range(6)]
    seed()
    have = [compiled(x).sum().item() for _ in range(6)]
    np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-5)


def test_a_whole_graph_refuses_and_draws_nothing() -> None:
    seed()
    before = random.getstate()
    numpy_before = np.random.get_state()[1].tolist()
    with pytest.raises(RuntimeError, match=r"drawing from numpy.random.*Cure"):
        graphc.compile(Model(DRAWS["shuffle"]), fullgraph=True)(graphc.ones(2, 4))
    assert random.getstate() == before
    assert np.random.get_state()[1].tolist() == numpy_before


@pytest.mark.parametrize("name", ["python", "numpy"])
def test_a_whole_graph_draws_numbers(name: str) -> None:
    graphc.manual_seed(0)
    model = Model(DRAWS[name])
    compiled, x = graphc.compile(model, fullgraph=True), graphc.ones(2, 4)
    seed()
    want = [model(x).sum().item() for _ in range(9)] + [random.random(), np.random.rand()]
    seed()
    have = [compiled(x).sum().item() for _ in range(9)] + [random.random(), np.random.rand()]
    np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-5)


def test_a_number_that_numpy_held_back_is_seen() -> None:
    run = graphc.compile(lambda x: x * np.random.randn())
    np.random.seed(0)
    want = [np.random.randn() for _ in range(5)]
    np.random.seed(0)
    found = [np.random.randn()]  # NumPy draws normal numbers in pairs: the next one is ready
    found += [run(graphc.ones(1, dtype=graphc.float64)).item() for _ in range(4)]
    assert found == want
