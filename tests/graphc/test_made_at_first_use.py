"""What one graph cannot do, but segments can: lazy modules, L-BFGS, `out=` that is resized."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import graphc
from graphc.frontend.errors import TraceError
from tests.graphc.scenario import compare, identity, run
from tests.reference import torch

CASES: dict[str, Callable[[Any, Any], Any]] = {}


def case(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A script of (torch, compile)."""
    CASES[function.__name__] = function
    return function


@case
def lazy_layers(torch: Any, compile: Any) -> Any:
    net = torch.nn.Sequential(
        torch.nn.LazyConv2d(3, 2), torch.nn.LazyBatchNorm2d(), torch.nn.Flatten(),
        torch.nn.LazyLinear(2),
    )
    run = compile(net)
    found = []
    for k in range(3):
        y = run(torch.arange(32.0).reshape(2, 1, 4, 4) / 9 + k)
        y.square().sum().backward()
        found += [y.detach(), [p.grad.clone() for p in net.parameters()], len(net.state_dict())]
    return found


@case
def a_lazy_layer_in_a_step(torch: Any, compile: Any) -> Any:
    net = torch.nn.LazyLinear(3)

    @compile
    def step(x):
        loss = net(x).square().sum()
        loss.backward()
        return loss.detach()

    return [(step(torch.full((2, 4), 1.0 + k)), net.weight.grad.clone()) for k in range(3)]


def minimise(torch: Any, compile: Any, **options: Any) -> Any:
    p = torch.nn.Parameter(torch.tensor([1.5, -2.0]))
    optimizer = torch.optim.LBFGS([p], max_iter=4, **options)

    @compile
    def step(target):
        def closure():
            optimizer.zero_grad()
            loss = ((p - target) ** 4).sum() + p.square().sum()
            loss.backward()
            return loss

        return optimizer.step(closure)

    found = []
    for k in range(3):
        found += [step(torch.full((2,), 0.5 + k)).detach(), p.detach().clone()]
    return found


@case
def lbfgs(torch: Any, compile: Any) -> Any:
    return minimise(torch, compile, lr=0.5)


@case
def lbfgs_with_a_line_search(torch: Any, compile: Any) -> Any:
    return minimise(torch, compile, line_search_fn="strong_wolfe")


@case
def out_of_another_shape(torch: Any, compile: Any) -> Any:
    kept = torch.empty(0)

    @compile
    def step(x, given):
        own = torch.empty(0)
        torch.mul(x, 2, out=own)
        torch.add(own, 1, out=kept)
        return torch.matmul(x, x, out=given), own * kept

    found = []
    for k in range(3):
        given = torch.empty(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's, of the resizing
            product, other = step(torch.full((2 + k, 2 + k), 1.0 + k), given)
        found += [product is given, given.clone(), other, kept.clone()]
    return found


@pytest.mark.parametrize("name", CASES)
def test_as_in_torch(name: str) -> None:
    function = CASES[name]
    expected = run(lambda torch, nn, F, compile: function(torch, compile), torch, identity)
    for compile in (identity, graphc.compile):
        found = run(lambda torch, nn, F, compile: function(torch, compile), graphc, compile)
        compare(expected, found, 2e-4)


def test_a_lazy_model_is_one_graph_from_the_second_call_on() -> None:
    net = graphc.nn.LazyLinear(2)
    run = graphc.compile(lambda x: net(x))
    for k in range(3):
        run(graphc.full((2, 3), float(k)))
        assert run.segments is None
    assert run.compile_count == 1


@pytest.mark.filterwarnings("ignore:An output with one or more elements:UserWarning")
def test_fullgraph_says_why_not() -> None:
    net = graphc.nn.LazyLinear(2)
    with pytest.raises(TraceError, match=r"makes its parameters.*Cure: call the module once"):
        graphc.compile(lambda x: net(x), fullgraph=True)(graphc.ones(2, 3))
    with pytest.raises(TraceError, match=r"out= of shape \[1\].*Cure: give it the right shape"):
        graphc.compile(lambda x: graphc.add(x, 1, out=graphc.empty(1)), fullgraph=True)(
            graphc.ones(2)
        )


class Backend:
    """What einops keeps, one for all tensors: it is made where the first tensor is met."""

    def scaled(self, x: Any) -> Any:
        return x * 2


def test_fullgraph_lets_the_first_call_make_it() -> None:
    kept: dict[Any, Any] = {}
    drawn: list[int] = []

    @graphc.compile(fullgraph=True)
    def scaled(x: Any) -> Any:
        found = kept.get("backend")
        if found is None:
            found = kept["backend"] = Backend()
        drawn.append(1)
        return found.scaled(x) + graphc.rand(2)

    graphc.manual_seed(0)
    have = [scaled(graphc.full((2,), float(k))) for k in range(3)]
    graphc.manual_seed(0)
    for k, found in enumerate(have):
        assert graphc.equal(found, graphc.full((2,), 2.0 * k) + graphc.rand(2))
    assert len(drawn) == 3 and list(kept) == ["backend"]
    assert scaled.compile_count == 1 and scaled.segments is None


def test_fullgraph_refuses_what_every_call_makes() -> None:
    kept: dict[Any, Any] = {}

    @graphc.compile(fullgraph=True)
    def renewed(x: Any) -> Any:
        found = kept.setdefault(len(kept), Backend())
        return kept[len(kept) - 1].scaled(x) if found else x

    with pytest.raises(TraceError):
        for _ in range(9):
            renewed(graphc.ones(2))
