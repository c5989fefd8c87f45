"""Values that torch refuses are refused by compiled code, too: in one graph, in segments, and by an
exported program."""

from __future__ import annotations

from typing import Any

import pytest

import graphc
from tests.reference import torch

# what is called, of what; the values that are right, and those that are not
CASES: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "bernoulli": (lambda t, p: t.bernoulli(p), [0.0, 1.0, 1.0], [0.5, 1.5, 0.0]),
    "bernoulli of NaN": (lambda t, p: t.bernoulli(p), [1.0], [float("nan")]),
    "bernoulli_": (lambda t, p: t.zeros(2).bernoulli_(p), [0.0, 1.0], [0.5, -0.5]),
    "multinomial": (lambda t, p: t.multinomial(p, 1), [0.0, 1.0], [-0.5, 1.0]),
    "multinomial of zeros": (lambda t, p: t.multinomial(p, 1), [[1.0], [1.0]], [[1.0], [0.0]]),
    "multinomial of infinity": (
        lambda t, p: t.multinomial(p, 2).sort().values, [1.0, 1.0], [1.0, float("inf")]),
    "multinomial, replaced": (
        lambda t, p: t.multinomial(p, 3, replacement=True), [0.0, 1.0], [-1.0, 2.0]),
    "normal": (lambda t, s: t.normal(t.zeros(2), s) * 0, [1.0, 0.0], [1.0, -1.0]),
    "normal around a number": (lambda t, s: t.normal(1.0, s) * 0, [1.0, 0.0], [float("nan"), 1.0]),
    "gaussian_nll_loss": (
        lambda t, v: t.nn.functional.gaussian_nll_loss(t.ones(2), t.zeros(2), v),
        [1.0, 0.0], [1.0, -1.0]),
    "embedding_bag": (
        lambda t, o: t.nn.functional.embedding_bag(t.tensor([0, 1, 1]), t.eye(3), o),
        [0, 2], [0, 5]),
    "embedding_bag, begun late": (
        lambda t, o: t.nn.functional.embedding_bag(t.tensor([0, 1, 1]), t.eye(3), o),
        [0, 2], [1, 2]),
    "binary_cross_entropy": (
        lambda t, y: t.nn.functional.binary_cross_entropy(t.full((2,), 0.5), y),
        [1.0, 0.0], [1.0, 1.5]),
    "one_hot": (lambda t, c: t.nn.functional.one_hot(c, 3), [0, 2], [0, -1]),
    "one_hot of few classes": (lambda t, c: t.nn.functional.one_hot(c, 3), [0, 2], [3, 0]),
}


def refused(function: Any, value: Any) -> type[Exception]:
    """The class of the error that a call raises."""
    with pytest.raises((RuntimeError, ValueError)) as caught:
        function(value)
    return ValueError if isinstance(caught.value, ValueError) else RuntimeError


@pytest.mark.parametrize("name", CASES)
def test_values_are_checked_by_compiled_code(name: str) -> None:
    function, right, wrong = CASES[name]
    expected = refused(lambda v: function(torch, v), torch.tensor(wrong))
    assert refused(lambda v: function(graphc, v), graphc.tensor(wrong)) is expected

    run = graphc.compile(lambda v: function(graphc, v))
    first = run(graphc.tensor(right)).tolist()
    assert refused(run, graphc.tensor(wrong)) is expected
    assert run(graphc.tensor(right)).tolist() == first == function(
        torch, torch.tensor(right)).tolist()
    begins = graphc.compile(lambda v: function(graphc, v))
    assert refused(begins, graphc.tensor(wrong)) is expected


@pytest.mark.parametrize("name", ["bernoulli", "multinomial", "normal", "gaussian_nll_loss"])
def test_values_are_checked_by_one_graph_and_by_segments(name: str) -> None:
    function, right, wrong = CASES[name]
    one = graphc.compile(lambda v: function(graphc, v), fullgraph=True)

    @graphc.compile
    def parts(v: Any) -> Any:
        found = function(graphc, v)
        return found + float(found.sum())

    for run in (one, parts):
        run(graphc.tensor(right))
        expected = refused(lambda v: function(torch, v), torch.tensor(wrong))
        assert refused(run, graphc.tensor(wrong)) is expected
        run(graphc.tensor(right))


def test_an_exported_program_checks_values() -> None:
    class Loss(graphc.nn.Module):
        def forward(self, v: Any) -> Any:
            return CASES["gaussian_nll_loss"][0](graphc, v)

    program = graphc.export.export(Loss(), (graphc.tensor([1.0, 2.0]),)).module()
    program(graphc.tensor([1.0, 0.0]))
    with pytest.raises(ValueError, match="var has negative entry"):
        program(graphc.tensor([1.0, -1.0]))


def test_renorm_refuses_a_negative_norm() -> None:
    for library in (torch, graphc):
        with pytest.raises(RuntimeError, match="expected maxnorm to be >= 0 but got -1"):
            library.renorm(library.ones(2, 2), 2, 0, -1.0)
