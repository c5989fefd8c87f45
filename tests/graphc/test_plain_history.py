"""Calls of a compiled Module again and again, whose history is made of what all calls have in
common: what PyTorch's eager mode gives, whatever happens between a call and its backward."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

import graphc
from graphc.engine.version.backward import CompiledBackward
from graphc.frontend.storage import readers
from tests.graphc.scenario import compare, flat
from tests.reference import torch

CALLS = 5  # the last few go the short way


def _net(t: Any, nn: Any, kind: str = "Tanh") -> Any:
    """`kind`: Dropout and BatchNorm1d write to memory in each call."""
    t.manual_seed(0)
    between = nn.Dropout(0.4) if kind == "Dropout" else getattr(nn, kind)(
        *[4] * (kind == "BatchNorm1d")
    )
    return nn.Sequential(nn.Linear(3, 4), between, nn.Linear(4, 2))


class Both:
    """A forward of two results, one of which leads to the other."""

    def __init__(self, net: Any) -> None:
        self.net = net

    def __call__(self, x: Any) -> Any:
        y = self.net(x)
        return y, (y * y).sum(1)


def again(t: Any, net: Any, x: Any) -> Any:
    for _ in range(CALLS):
        y = net(x)
    return y


def many_before_one_pass(t: Any, net: Any, call: Any, x: Any) -> list[Any]:
    kept = [call(x * i) for i in range(12)]
    t.cat(kept).sum().backward()
    return []


def an_argument_with_a_history(t: Any, net: Any, call: Any, x: Any) -> list[Any]:
    given = x.clone().requires_grad_()
    again(t, call, given * 2).sum().backward()
    y = call(given)
    y.sum().backward()
    return [given.grad]


def frozen_in_between(t: Any, net: Any, call: Any, x: Any) -> list[Any]:
    y = again(t, call, x)
    for p in net[0].parameters():
        p.requires_grad_(False)
    z = call(x)
    found = [p.requires_grad for p in net.parameters()]
    z.sum().backward()
    for p in net[0].parameters():
        p.requires_grad_(True)
    y.sum().backward()
    call(x).sum().backward()
    return found


def written_by_data(t: Any, net: Any, call: Any, x: Any) -> list[Any]:
    given = x.clone().requires_grad_()
    y = again(t, call, given)
    for p in net.parameters():
        p.data.mul_(2.0)
        p.data.add_(t.ones(1), alpha=0.5)
    y.sum().backward()
    return [given.grad]


def written_and_seen(t: Any, net: Any, call: Any, x: Any) -> list[Any]:
    given = x.clone().requires_grad_()
    y = again(t, call, given)
    with t.no_grad():
        net[2].weight.mul_(2.0)
    with pytest.raises(RuntimeError, match="inplace"):
        y.sum().backward()
    net.zero_grad()  # a pass that fails has given some leaves theirs
    return []


def results_written(t: Any, net: Any, call: Any, x: Any) -> list[Any]:
    y = again(t, call, x)
    y.data.add_(1)
    y.sum().backward()
    z = call(x)
    z.mul_(2)
    (z * z).sum().backward()
    return [y, z]


def an_input_written(t: Any, net: Any, call: Any, x: Any) -> list[Any]:
    given = x.clone()
    y = again(t, call, given)
    given.data.mul_(3)
    y.sum().backward()
    z = call(given)
    given.mul_(2)
    with pytest.raises(RuntimeError, match="inplace"):
        z.sum().backward()
    net.zero_grad()
    return []


def twice(t: Any, net: Any, call: Any, x: Any) -> list[Any]:
    y = again(t, call, x)
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    found = [p.grad.clone() for p in net.parameters()]
    with pytest.raises(RuntimeError, match="second time"):
        y.sum().backward()
    net.zero_grad()
    return found


def second_order(t: Any, net: Any, call: Any, x: Any) -> list[Any]:
    y = again(t, call, x)
    (g,) = t.autograd.grad(y.sum(), net[0].weight, create_graph=True)
    (g * g).sum().backward()
    return [g]


def hooks(t: Any, net: Any, call: Any, x: Any) -> list[Any]:
    y = again(t, call, x)
    told: list[Any] = []
    y.register_hook(lambda g: told.append(g.tolist()))
    net[0].bias.register_hook(lambda g: g * 2)
    y.sum().backward()
    y = call(x)
    y.retain_grad()
    (y * 3).sum().backward()
    return [*told, y.grad]


def other_data(t: Any, net: Any, call: Any, x: Any) -> list[Any]:
    y = again(t, call, x)
    net[0].weight.data = t.ones(4, 3)
    z = call(x)
    (y.sum() + z.sum()).backward()
    return [z]


def chains_of_operators(t: Any, net: Any, call: Any, x: Any) -> list[Any]:
    chosen = t.tensor([[1], [0]])
    y = again(t, call, x).gather(1, chosen).squeeze()
    ((y - 1) ** 2).mean().backward()
    call(x).t()[0].exp().clamp(max=1.1).sum().backward()
    z = call(x).exp()
    z.sum().backward()
    found = [p.grad.clone() for p in net.parameters()]
    with pytest.raises(RuntimeError, match="second time"):
        z.sum().backward()
    net.zero_grad()
    total = call(x).sum()
    (total * total).backward()
    return found


SCENES: list[Callable[..., list[Any]]] = [
    many_before_one_pass, an_argument_with_a_history, frozen_in_between, written_by_data,
    written_and_seen, results_written, an_input_written, twice, second_order, hooks, other_data,
    chains_of_operators,
]


@pytest.mark.parametrize("kind", ["Tanh", "Dropout", "BatchNorm1d"])
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_as_in_torch(scene: Callable[..., list[Any]], kind: str) -> None:
    found = []
    for t in (torch, graphc, "compiled"):
        package: Any = graphc if t == "compiled" else t
        net = _net(package, package.nn, kind)
        call = graphc.compile(net) if t == "compiled" else net
        x = package.linspace(-1, 1, 6).reshape(2, 3)
        again(package, call, x)
        told = scene(package, net, call, x)
        found.append([*told, *[p.grad for p in net.parameters()], *net.parameters()])
    compare(flat(found[0]), flat(found[1]), 1e-5)
    compare(flat(found[0]), flat(found[2]), 1e-5)


def test_two_results() -> None:
    found = []
    for t in (torch, graphc, "compiled"):
        package: Any = graphc if t == "compiled" else t
        net = _net(package, package.nn)
        call = graphc.compile(Both(net).__call__) if t == "compiled" else Both(net)
        x = package.linspace(-1, 1, 6).reshape(2, 3)
        told = []
        for i in range(CALLS):
            y, z = call(x)
            y.register_hook(lambda g, told=told: told.append(g.tolist()))
            (y.sum() * i + z.sum()).backward()
            told += [y, z]
        y, z = call(x)
        z.sum().backward()
        found.append([*told, *[p.grad for p in net.parameters()]])
    compare(flat(found[0]), flat(found[1]), 1e-5)
    compare(flat(found[0]), flat(found[2]), 1e-5)


def test_a_node_is_plain_and_leaves_nothing_behind() -> None:
    net = _net(graphc, graphc.nn)
    call = graphc.compile(net)
    x = graphc.ones(2, 3)
    y = again(graphc, call, x)
    node = y.grad_fn
    assert type(node) is CompiledBackward and node.facts is not None
    assert "edges" not in vars(node) and [e is not None for e in node.edges] == [True] * 4
    assert id(node) in readers
    y.sum().backward()
    assert node.facts is None and id(node) not in readers and len(node.edges) == 4
    y = again(graphc, call, x)
    before = len(readers)
    del y, node
    gc.collect()
    assert len(readers) < before


@pytest.mark.parametrize("kind", ["Dropout", "BatchNorm1d"])
def test_memory_that_no_pass_reads_is_written_to_and_histories_are_plain(kind: str) -> None:
    net = _net(graphc, graphc.nn, kind)
    call = graphc.compile(net)
    x = graphc.linspace(-1, 1, 6).reshape(2, 3)
    again(graphc, call, x)
    graphc.rand(3)  # writes to the generator's state while the calls' histories are alive
    y = [again(graphc, call, x) for _ in range(3)][-1]
    assert y.grad_fn.facts is not None
    state = graphc.random.default_generator.state if kind == "Dropout" else net[1].running_mean
    assert not y.grad_fn.keep(state._graphc_storage, True)
