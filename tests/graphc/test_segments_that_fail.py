"""A segment with an operator that fails: what does not depend on it has happened, as in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import graphc
from graphc.frontend.errors import EscapedTensorError
from tests.graphc.scenario import compare, flat, identity
from tests.reference import torch

CASES: list[Callable[[Any, Any], Any]] = []


def case(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A script of (torch, compile)."""
    CASES.append(function)
    return function


def outcome(run: Callable[..., Any], *arguments: Any) -> Any:
    """The result, or the kind of the error."""
    try:
        return run(*arguments).detach().clone()
    except (IndexError, ValueError) as error:
        return type(error).__name__


@case
def state_before_a_bad_index(torch: Any, compile: Any) -> Any:
    state: dict[str, Any] = {"t": torch.zeros(1), "n": 0}
    table, w = torch.arange(6.0), torch.ones(2, requires_grad=True)

    def step(i, bad):
        state["n"] += 1
        state["t"] = state["t"] + 1
        table[0] += 1
        if table[0].item() > 200:
            return table
        table[2] += 1
        state["double"] = state["t"] * 2
        torch.rand(2)
        (w * w * table[2]).sum().backward()
        table.sum().item()  # gradients of the segment that fails are left out
        row = table[i]
        if bad:
            raise ValueError("bad")
        return row * state["t"]

    run, found = compile(step), []
    for i, bad in ((2, 0), (3, 0), (2, 1), (9, 0), (1, 0), (9, 1), (2, 0), (9, 0), (2, 1)):
        found += [outcome(run, torch.tensor([i]), bad), *state.values(), table.clone()]
        found += [w.grad.clone(), torch.rand(1)]
    return found


@case
def a_training_step_with_a_bad_label(torch: Any, compile: Any) -> Any:
    nn = torch.nn
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 3))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01, eps=1e-3)
    log: list[float] = []

    def step(x, y):
        log.append(x.sum().item())
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    run, found = compile(step), []
    x = torch.arange(12.0).sin().view(4, 3)
    for k, label in enumerate((0, 1, 3, 2, 5, 0)):
        found.append(outcome(run, x + k, torch.tensor([0, 1, 2, label])))
        tensors = net.state_dict()
        found += [t.clone() for t in tensors.values()]
        found += [t.clone() for s in optimizer.state.values() for t in s.values()]
        found += [torch.rand(1), list(log)]
    return found


@case
def a_part_of_memory_and_what_was_there_before(torch: Any, compile: Any) -> Any:
    memory, table = torch.zeros(3), torch.arange(4.0)

    def step(i):
        memory.sum().item()
        memory[0] += 1
        memory[1] = table[i].sum()
        return memory.sum()

    run, found = compile(step), []
    for i in (1, 2, 7, 3, 9, 0):
        found += [outcome(run, torch.tensor([i])), memory.clone()]
    return found


@pytest.mark.parametrize("always", [False, True])
@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_as_in_torch(function: Callable[[Any, Any], Any], always: bool) -> None:
    """`always`: each segment is compiled at its first meeting."""
    def compile(step: Any) -> Any:
        compiled = graphc.compile(step)
        compiled.always_compiled = always
        return compiled

    torch.manual_seed(0)
    expected = flat(function(torch, identity))
    for how in (identity, compile):
        graphc.manual_seed(0)
        compare(expected, flat(function(graphc, how)), 1e-4)


def test_what_depends_on_it_is_dead() -> None:
    kept: dict[str, Any] = {}
    table = graphc.arange(4.0)

    def step(i: Any) -> Any:
        table.sum().item()
        kept["good"] = table * 2
        kept["bad"] = table[i] * 2
        kept["later"] = table + 1
        return kept["later"]

    run = graphc.compile(step)
    run.always_compiled = True
    for _ in range(2):
        run(graphc.tensor([1]))
        with pytest.raises(IndexError):
            run(graphc.tensor([5]))
        assert kept["good"].tolist() == [0.0, 2.0, 4.0, 6.0]
        assert kept["later"].tolist() == [1.0, 2.0, 3.0, 4.0]
        with pytest.raises(EscapedTensorError):
            kept["bad"].tolist()
