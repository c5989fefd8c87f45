"""A function whose guards break at every call goes over to segments and stops compiling."""

from __future__ import annotations

import warnings
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


def test_it_says_so_once() -> None:
    model = Growing()
    compiled, x = graphc.compile(model), graphc.ones(1, 2)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for i in range(12):
            compiled(x)
            model.seen.append(float(i))
    texts = [str(w.message) for w in found if w.category is graphc.PerformanceWarning]
    assert ["another version at each call" in text for text in texts].count(True) == 1, texts
    assert "Growing()" in texts[0] and "seen" in texts[0] and "Cure" in texts[0]
    assert found[0].filename == __file__


@pytest.mark.parametrize("fullgraph", [False, True])
def test_texts_count_towards_the_limit(fullgraph: bool, counted: Any) -> None:
    compiled = graphc.compile(lambda x, text: x * len(text), fullgraph=fullgraph)
    for n in range(20):
        assert compiled(graphc.ones(1), "a" * n).item() == n
    if fullgraph:  # each call needs one, and few are kept
        versions = compiled._versions
        assert sum(map(len, versions._exact.values())) <= 8
    else:
        assert counted() <= 10 and compiled.segments is not None


@pytest.mark.parametrize("kind", ["texts", "structures", "modules"])
def test_new_kinds_of_arguments_at_each_call(kind: str, counted: Any) -> None:
    """A name, a count of tensors or a Module that never comes back is not compiled for for ever."""
    given = {
        "texts": lambda i: f"layer {i}", "modules": lambda i: graphc.nn.Linear(2, 2),
        "structures": lambda i: [graphc.ones(1, 2)] * i,
    }[kind]

    def f(x: Any, other: Any) -> Any:
        if callable(other):
            return other(x)
        return x * len(other) if isinstance(other, str) else sum(other, x)

    compiled, x = graphc.compile(f), graphc.ones(1, 2)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for i in range(30):
            other = given(i)
            assert graphc.allclose(compiled(x, other), f(x, other))
            if i == 20:
                known = counted()
    assert counted() == known <= 20
    texts = [str(w.message) for w in found if w.category is graphc.PerformanceWarning]
    assert sum("another version at each call" in text for text in texts) == 1


def test_modules_that_come_back_keep_their_versions(counted: Any) -> None:
    layers = [graphc.nn.Linear(2, 2) for _ in range(24)]
    compiled, x = graphc.compile(lambda layer, x: layer(x)), graphc.ones(1, 2)
    for _ in range(2):
        for layer in layers:
            compiled(layer, x)
    assert compiled.segments is None and counted() == 24
