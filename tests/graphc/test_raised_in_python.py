"""A compiled function that raises an error of its own: its Python state stays, as in eager mode.

What its graph would have written (tensors, gradients, optimizer state) is as it was before.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest

import graphc
from tests.graphc.scenario import compare, identity, run
from tests.reference import torch

CASES: dict[str, Callable[[Any, Any], Any]] = {}
TURNS = (True, False, True, False, True, False)


class State:
    """Attributes."""

    total = 0

    def __init__(self) -> None:
        self.n = 0
        self.log: list[Any] = []
        self.table: dict[str, Any] = {}
        self.seen: set[int] = set()
        self.queue: collections.deque[int] = collections.deque()


def case(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A script of (torch, compile)."""
    CASES[function.__name__] = function
    return function


def outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result, or the error's text."""
    try:
        return function(*arguments).detach()
    except (ValueError, ZeroDivisionError, KeyError) as error:
        return str(error)


@case
def counters(torch: Any, compile: Any) -> Any:
    state = State()

    @compile
    def step(x, bad):
        state.n += 1
        try:
            if bad:
                raise ValueError("bad")
            return x * 2
        finally:
            state.total = state.total + 10

    found = []
    for k, bad in enumerate(TURNS):
        found += [outcome(step, torch.full((2,), float(k)), bad), state.n, state.total]
    return found


@case
def containers(torch: Any, compile: Any) -> Any:
    state = State()

    @compile
    def step(x, bad):
        y = x * 2
        state.log.append(bad)
        state.table["bad" if bad else "good"] = len(state.log)
        state.seen.add(len(state.log))
        state.queue.append(3)
        if bad:
            raise ValueError("bad")
        return y

    found = []
    for k, bad in enumerate(TURNS):
        found += [outcome(step, torch.full((2,), float(k)), bad), list(state.log)]
        found += [dict(state.table), sorted(state.seen), list(state.queue)]
    return found


@case
def attributes_of_a_module(torch: Any, compile: Any) -> Any:
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(2, 2)
            self.calls = 0
            self.mode = "none"

        def forward(self, x, bad):
            self.calls += 1
            self.mode = "bad" if bad else "good"
            y = self.layer(x)
            if bad:
                raise ValueError("bad")
            return y

    torch.manual_seed(0)
    net = Net()
    run = compile(net)
    found = []
    for k, bad in enumerate(TURNS):
        found += [outcome(run, torch.full((2,), float(k)), bad), net.calls, net.mode]
    return found


@case
def closure_and_class(torch: Any, compile: Any) -> Any:
    count = 0

    class Counted:
        made = 0

    @compile
    def step(x, bad):
        nonlocal count
        count += 1
        Counted.made = Counted.made + 2
        if bad:
            raise KeyError("missing")
        return x + 1

    found = []
    for k, bad in enumerate(TURNS):
        found += [outcome(step, torch.full((2,), float(k)), bad), count, Counted.made]
    return found


@case
def containers_among_the_arguments(torch: Any, compile: Any) -> Any:
    @compile
    def step(x, notes, bad):
        notes["calls"] = notes.get("calls", 0) + 1
        notes["list"].append(bad)
        if bad:
            raise ValueError("bad")
        return x * 3

    notes: dict[str, Any] = {"list": []}
    found = []
    for k, bad in enumerate(TURNS):
        found += [outcome(step, torch.full((2,), float(k)), notes, bad)]
        found += [notes["calls"], list(notes["list"])]
    return found


@case
def an_error_of_python(torch: Any, compile: Any) -> Any:
    state = State()

    @compile
    def step(x, divisor):
        state.n += 1
        return x * (6 // divisor)

    found = []
    for k in (0, 2, 0, 3, 2):
        error = outcome(step, torch.ones(2), k)
        found += ["division" in error if isinstance(error, str) else error, state.n]
    return found


@case
def an_index_that_the_function_catches(torch: Any, compile: Any) -> Any:
    table = torch.arange(8.0).reshape(4, 2)
    state = State()

    @compile
    def step(i):
        state.n += 1
        try:
            y = torch.nn.functional.embedding(i, table) * 2
        except IndexError:
            state.total = state.total + 1
            return torch.zeros(1) - 1
        return y.sum(0)

    found = []
    for i in (1, 9, 2, 3, 11, 0):
        found += [step(torch.tensor([i, 0])), state.n, state.total]
    return found


@case
def an_index_and_what_is_done_in_finally(torch: Any, compile: Any) -> Any:
    table = torch.arange(8.0).reshape(4, 2)
    state = State()

    @compile
    def step(i):
        state.before = "set"
        try:
            return torch.nn.functional.embedding(i, table) * 2
        finally:
            state.n += 1

    found = []
    for i in (9, 1, 9, 2, 3, 11, 0):
        try:
            found.append(step(torch.tensor([i, 0])))
        except IndexError:
            found.append("IndexError")
        found += [state.n, state.before]
    return found


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_as_in_torch(name: str, fullgraph: bool) -> None:
    if fullgraph and name.startswith("containers"):
        pytest.skip("segments: the lengths of containers change")
    function = CASES[name]
    expected = run(lambda torch, nn, F, compile: function(torch, compile), torch, identity)

    def compile(function: Any) -> Any:
        return graphc.compile(function, fullgraph=fullgraph)

    for how in (identity, compile):
        found = run(lambda torch, nn, F, compile: function(torch, compile), graphc, how)
        compare(expected, found, 1e-5)


def test_what_the_graph_writes_is_as_it_was() -> None:
    net = graphc.nn.Linear(2, 1)
    optimizer = graphc.optim.Adam(net.parameters(), lr=0.1)
    state = State()

    def step(x: Any, bad: bool) -> Any:
        state.n += 1
        optimizer.zero_grad()
        loss = net(x).square().sum()
        state.last = loss
        state.log = [loss, 1]
        loss.backward()
        optimizer.step()
        if bad:
            raise ValueError("bad")
        return loss

    run = graphc.compile(step)
    for k in range(3):
        before = [p.detach().tolist() for p in net.parameters()]
        steps = [float(s["step"]) for s in optimizer.state.values()]
        for _ in range(2):
            with pytest.raises(ValueError, match="bad"):
                run(graphc.ones(3, 2), True)
        if run.segments is None:
            assert [p.detach().tolist() for p in net.parameters()] == before
            assert [float(s["step"]) for s in optimizer.state.values()] == steps
        run(graphc.ones(3, 2), False)
        assert state.n == 3 * (k + 1) and state.last is state.log[0]
        assert state.last.item() >= 0
