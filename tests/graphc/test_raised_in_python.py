"""A compiled function that raises an error of its own: what ran before it stays, as in PyTorch.

Python state, tensors, gradients, optimizer state, random numbers, at the first call and later ones.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest

import graphc
from graphc.frontend.errors import TraceError
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


@case
def tensors_in_containers(torch: Any, compile: Any) -> Any:
    state: dict[str, Any] = {"t": torch.zeros(1), "rows": [torch.ones(2)]}
    written = torch.ones(3)

    @compile
    def step(x, bad):
        state["t"] = state["t"] + 1
        state["rows"][0] = state["rows"][0] * 2
        written[1:].mul_(2)
        x.add_(1)
        torch.rand(2)
        if bad:
            raise ValueError("V")
        return state["t"] * x

    x, found = torch.zeros(2), []
    for bad in (*TURNS, *TURNS):
        found += [outcome(step, x, bad), x.clone(), state["t"], state["rows"][0], written.clone()]
        found.append(torch.rand(1))
    return found


@case
def a_buffer_and_a_state_made_at_first_use(torch: Any, compile: Any) -> Any:
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(2)
            self.register_buffer("seen", torch.zeros(2))
            self.h = None

        def forward(self, x, bad):
            self.seen.add_(1)
            self.h = x * 2 if self.h is None else self.h + x
            try:
                y = self.norm(x)
                if bad:
                    raise KeyError("k")
                return y + self.seen
            finally:
                self.seen.mul_(2)

    net, found = Net(), []
    run = compile(net)
    for k, bad in enumerate(TURNS):
        found += [outcome(run, torch.arange(6.0).view(3, 2) * k, bad), net.h]
        found += [t.clone() for t in net.state_dict().values()]
    return found


@case
def a_training_step(torch: Any, compile: Any) -> Any:
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)

    @compile
    def step(x, where):
        optimizer.zero_grad()
        loss = net(x).square().sum()
        if where == "forward":
            raise ValueError("forward")
        loss.backward()
        if where == "backward":
            raise ValueError("backward")
        optimizer.step()
        if where == "step":
            raise ValueError("step")
        return loss

    x, found = torch.arange(6.0).view(2, 3) / 6, []
    for where in ("step", "none", "forward", "backward", "none", "step", "none"):
        found += [outcome(step, x, where), *(p.detach().clone() for p in net.parameters())]
        found += [p.grad if p.grad is None else p.grad.clone() for p in net.parameters()]
        found += [v.clone() for s in optimizer.state.values() for v in s.values()]
        found.append(torch.rand(1))
    return found


@case
def an_error_of_an_operator(torch: Any, compile: Any) -> Any:
    state: dict[str, Any] = {"t": torch.zeros(1), "last": torch.zeros(1)}

    @compile
    def step(x, y):
        state["t"] = state["t"] + 1
        state["last"] = x * 2
        z = x + y
        state["t"] = state["t"] + 10
        return z

    found = []
    for k in (4, 3, 4, 3, 3, 4):
        try:
            found.append(step(torch.ones(3), torch.ones(k)))
        except RuntimeError as error:
            found.append(str(error).split("\n")[0])
        found += [state["t"], state["last"]]
    return found


@case
def an_error_of_an_operator_that_is_caught(torch: Any, compile: Any) -> Any:
    state: dict[str, Any] = {"t": torch.zeros(1), "failed": 0}

    @compile
    def step(x, y):
        try:
            state["t"] = state["t"] + 1
            z = x @ y
            state["t"] = state["t"] + 100
        except RuntimeError:
            state["failed"] += 1
            state["t"] = state["t"] * 2
            z = x
        finally:
            state["t"] = state["t"] + 0.5
        if state["failed"] > 3:
            raise ZeroDivisionError("enough")
        return z + state["t"]

    found = []
    for k in (3, 4, 3, 4, 4, 4, 3, 3):
        found += [outcome(step, torch.ones(3), torch.ones(k)), state["t"], state["failed"]]
    return found


@case
def numbers_and_sizes_that_vary(torch: Any, compile: Any) -> Any:
    state: dict[str, Any] = {"t": torch.zeros(1), "n": 0, "k": 0.0}

    @compile
    def step(x, k, bad):
        state["t"] = state["t"] + x.sum() * k
        state["n"], state["k"] = x.shape[0], k * 2
        if bad:
            raise ValueError(f"at {k}")
        return state["t"] * k

    found = []
    for k, bad in enumerate((False, *TURNS)):
        found += [outcome(step, torch.ones(k + 2), k + 0.5, bad), *state.values()]
    return found


@case
def tensors_in_containers_among_the_arguments(torch: Any, compile: Any) -> Any:
    @compile
    def step(given, bad):
        given["a"] = given["a"] * 2
        given["list"].append(given["a"] + 1)
        if bad:
            raise ValueError("bad")
        return given["a"]

    given: dict[str, Any] = {"a": torch.ones(1), "list": []}
    found = []
    for bad in TURNS:
        found += [outcome(step, given, bad), given["a"], list(given["list"])]
    return found


@case
def hooks_and_functions(torch: Any, compile: Any) -> Any:
    state: dict[str, Any] = {"bad": "", "t": torch.zeros(1)}
    w = torch.ones(2, requires_grad=True)

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            state["t"] = state["t"] + 1
            return x * 2

        @staticmethod
        def backward(ctx, g):
            state["t"] = state["t"] + 10
            if state["bad"] == "function":
                raise ValueError("function")
            return g * 2

    def hook(grad):
        state["t"] = state["t"] + 100
        if state["bad"] == "hook":
            raise ValueError("hook")
        return grad * 3

    @compile
    def step(x):
        y = w * x
        y.register_hook(hook)
        (Twice.apply(y) * w).sum().backward()
        return y.detach()

    found = []
    for bad in ("hook", "", "function", "", "hook", ""):
        state["bad"] = bad
        found += [outcome(step, torch.ones(2)), state["t"]]
        found.append(w.grad if w.grad is None else w.grad.clone())
    return found


@case
def an_error_that_brings_tensors(torch: Any, compile: Any) -> Any:
    class Found(ValueError):
        pass

    state = [torch.zeros(1)]

    @compile
    def step(x, bad):
        state[0] = state[0] + x
        if bad:
            error = Found("found")
            error.both = (state[0], state[0] * 2)
            raise error
        return state[0]

    found = []
    for bad in TURNS:
        try:
            found.append(step(torch.ones(1), bad))
        except Found as error:
            found += [*error.both, error.both[0] is state[0]]
        found.append(state[0])
    return found


@case
def a_mode_that_is_switched(torch: Any, compile: Any) -> Any:
    @compile
    def step(x, bad):
        torch.set_grad_enabled(not torch.is_grad_enabled())
        if bad:
            raise ValueError("bad")
        return x * 2

    try:
        return [(outcome(step, torch.ones(2), bad), torch.is_grad_enabled()) for bad in TURNS]
    finally:
        torch.set_grad_enabled(True)


@case
def many_errors_in_a_row(torch: Any, compile: Any) -> Any:
    """From the ninth on nothing is recorded; a call that comes to its end changes that."""
    state: dict[str, Any] = {"t": torch.zeros(1)}

    @compile
    def step(x, limit):
        state["t"] = state["t"] + x
        if len(state) < limit:
            raise ValueError("limit")
        return state["t"] * 2

    found = []
    for limit in (*range(12, 0, -1), 12, 1, 1):
        found += [outcome(step, torch.ones(1), str(limit) and limit), state["t"]]
    return found


@case
def an_interrupt(torch: Any, compile: Any) -> Any:
    """What ran stays; the next calls are one graph all the same."""
    state: dict[str, Any] = {"t": torch.zeros(1), "last": "no"}

    def step(x, bad):
        state["t"] = state["t"] + 1
        state["last"] = bad
        x.add_(1)
        if bad == "yes":
            raise KeyboardInterrupt
        return state["t"] * x

    run = compile(step)
    x, found = torch.zeros(2), []
    for bad in ("yes", "no", "yes", "no", "no"):
        try:
            found.append(run(x, bad))
        except KeyboardInterrupt:
            found.append("interrupted")
        found += [x.clone(), state["t"], state["last"]]
    assert getattr(run, "segments", None) is None
    return found


SEGMENTS = ("containers", "tensors_in_containers_among")  # the lengths of containers change


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_as_in_torch(name: str, fullgraph: bool) -> None:
    if fullgraph and (name.startswith(SEGMENTS) or name == "an_interrupt"):
        pytest.skip("segments: the lengths of containers change, or an interrupt ends one")
    function = CASES[name]
    expected = run(lambda torch, nn, F, compile: function(torch, compile), torch, identity)

    def compile(function: Any) -> Any:
        return graphc.compile(function, fullgraph=fullgraph)

    for how in (identity, compile):
        found = run(lambda torch, nn, F, compile: function(torch, compile), graphc, how)
        compare(expected, found, 1e-5)


def test_an_error_in_the_recording_alone() -> None:
    """Where eager mode does not raise, the call has eager mode's result."""
    calls: list[bool] = []

    def f(x: Any) -> Any:
        if type(x.sum()._graphc_trace) is not type(None):  # the attribute is graphc's own
            raise ValueError("recorded")
        calls.append(True)
        return x * 2

    run = graphc.compile(f)
    with graphc.set_grad_enabled(True):
        assert run(graphc.ones(2)).tolist() == [2.0, 2.0]
    assert calls == [True] and run.segments is not None
    with pytest.raises(TraceError, match="recorded alone"):
        graphc.compile(f, fullgraph=True)(graphc.ones(2))


def test_an_error_of_the_recording_after_a_demand() -> None:
    """What ran in segments has run: it is not started again."""
    log: list[float] = []

    def f(x: Any) -> Any:
        log.append(x.sum().item() + len(log) * 0)
        if log[-1] > 1:
            log.append(-1.0)
        raise TraceError("after the demand")

    run = graphc.compile(f)
    for count in (2, 4):
        with pytest.raises(TraceError, match="after the demand"):
            run(graphc.ones(2))
        assert len(log) == count


def test_an_interrupt_leaves_all_that_ran_or_nothing() -> None:
    """Where a number is a run-time input, nothing: Python state and tensors stay in step."""
    state: dict[str, Any] = {"t": graphc.zeros(1), "n": 0}

    def f(x: Any, bad: bool) -> Any:
        state["n"] += 1
        state["t"] = state["t"] + 1
        if bad:
            raise KeyboardInterrupt
        return state["t"] * x

    run = graphc.compile(f)
    for bad in (False, False, True, False, True, False):
        before = state["n"]
        try:
            run(graphc.ones(1), bad)
        except KeyboardInterrupt:
            assert state["n"] in (before, before + 1)
        assert state["t"].item() == state["n"]
