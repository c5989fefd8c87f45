"""Bugs put into graphc on purpose: compare() and GRAPHC_CHECK=3 name each by the user's line."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc import config, nn
from graphc.backends.llvm import executable
from graphc.backends.llvm.scalar import FLOAT
from graphc.doubt.again import StaleVersionError
from graphc.engine import pipeline
from graphc.engine.capture.recording import Recording
from graphc.engine.version.guard_list import Guards
from graphc.engine.version.guards import Entry
from graphc.engine.version.version import Specialisation
from graphc.inspect.value_check import ValueChangedError
from graphc.ir import ops
from graphc.ir.passes import lower
from graphc.ir.passes.simplify.algebra import RULES


@pytest.fixture(autouse=True)
def _no_kernel_of_a_wrong_compiler(tmp_path: Any) -> Iterator[None]:
    torch.manual_seed(0)
    lower._MEMO.clear()
    with config.override(cache_dir=tmp_path / "cache"):
        yield
    lower._MEMO.clear()


def line(function: Any, offset: int) -> str:
    """A line of this file, so many below a function's first."""
    return f"test_planted.py:{function.__code__.co_firstlineno + offset}"


def as_graphc(function: Callable[..., Any], place: Any) -> Any:
    """A function as if it stood in graphc's own code, which a recording does not look at."""
    code = function.__code__.replace(co_filename=place.__code__.co_filename)
    space = {**place.__globals__, **function.__globals__}
    return types.FunctionType(
        code, space, function.__name__, function.__defaults__, function.__closure__
    )


# --- a wrong kernel ----------------------------------------------------------------------------


@pytest.fixture
def wrong_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FLOAT, "floor", FLOAT["ceil"])


@pytest.mark.usefixtures("wrong_floor")
def test_a_wrong_kernel_is_named_and_shrunk() -> None:
    model = nn.Linear(4, 4)

    def step(x: Any) -> Any:
        y = model(x).tanh()
        y = y * 3 + 1
        z = y.floor()
        return (z * 2).sum(0)

    report = torch.compare(step, torch.randn(5, 4))
    assert (report.call, report.kind, report.place) == (1, "values", "result of call 1")
    assert "floor" in report.kernel and report.line.endswith(line(step, 3))
    graph = report.graph.splitlines()
    assert len(graph) == 4 and "= floor %0" in graph[1] and "[1,1]" in graph[1]
    assert "in kernel" in str(report) and "the smallest graph" in str(report)


@pytest.mark.usefixtures("wrong_floor")
def test_a_wrong_kernel_of_a_segment() -> None:
    def step(x: Any) -> Any:
        y = x * 2
        if y.sum().item() > -1e9:
            y = y.floor()
        return y + 1

    report = torch.compare(step, torch.randn(5, 4))
    assert "segments" in report.how and report.line.endswith(line(step, 3))
    assert "= floor %0" in report.graph


@pytest.mark.usefixtures("wrong_floor")
def test_a_wrong_kernel_that_only_later_inputs_show() -> None:
    """The first call's numbers are whole."""
    start = torch.tensor([1.0, 2.0])

    def step(x: Any) -> Any:
        y = x.floor() * 3
        x += 0.25
        return y

    report = torch.compare(step, start)
    assert report.call == 2 and report.line.endswith(line(step, 1)) and "floor" in report.kernel
    assert start.tolist() == [1.0, 2.0]


@pytest.mark.usefixtures("wrong_floor")
def test_check_3_compares_each_call_with_numpy() -> None:
    compiled = torch.compile(lambda x: x.floor() * 3)
    with config.override(check=3):
        compiled(torch.ones(2))
        with pytest.raises(ValueChangedError, match="native code of kernel"):
            compiled(torch.full((2,), 0.5))


def test_a_wrong_rewrite_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    (rule,) = {r for _, r in RULES.by_op["mul"] if r.name == "algebra.multiplied_by_itself"}
    monkeypatch.setattr(rule, "replace", lambda m: ops.abs(m.x))

    def step(x: Any) -> Any:
        y = x + 1
        return (y * y).exp()

    report = torch.compare(step, torch.randn(6))
    assert report.reason.startswith("pass simplify changed") and not report.kernel
    assert report.line.endswith(line(step, 2)) and "mul %0, %0" in report.graph


def test_a_wrong_gradient_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.randn(4, requires_grad=True)
    monkeypatch.setitem(FLOAT, "cos", FLOAT["sin"])

    def step(x: Any) -> Any:
        weight.grad = None
        loss = (x * weight).sin().sum()
        loss.backward()
        return loss

    report = torch.compare(step, torch.randn(4))
    assert report.place == "weight.grad" or report.place == "weight"
    assert report.line.endswith(line(step, 2)) and "cos" in report.graph
    assert weight.grad is None


# --- a missing guard ---------------------------------------------------------------------------


def scaled(state: dict[str, Any]) -> Callable[..., Any]:
    def step(x: Any) -> Any:
        y = x * state["scale"]
        state["scale"] = 3.0 if state["scale"] == 1.0 else 2.0
        return y + 1

    return step


@pytest.fixture
def no_guard_on_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Guards.add

    def add(self: Any, guard: Any, counted: bool = False) -> None:
        if "scale" not in guard.path:
            right(self, guard, counted)

    monkeypatch.setattr(Guards, "add", as_graphc(add, right))


@pytest.mark.usefixtures("no_guard_on_scale")
def test_a_read_without_a_guard() -> None:
    state = {"scale": 1.0}
    step = scaled(state)
    report = torch.compare(step, torch.ones(3))
    assert not report and report.call == 2 and report.line.endswith(line(step, 1))
    assert "compiled: %1 = const, value=[1.0]" in report.reason
    assert "now:      %1 = const, value=[3.0]" in report.reason
    assert "no guard speaks of it" in report.reason and state == {"scale": 1.0}


def test_a_guard_that_a_version_has_lost() -> None:
    state = {"scale": 1.0}

    def step(x: Any) -> Any:
        return x.exp() * state["scale"]

    compiled = torch.compile(step)
    compiled(torch.ones(3))
    version = compiled.version(torch.ones(3))
    guards = version.guards
    guards.records = [guard for guard in guards.records if "scale" not in guard.path]
    guards.seal()
    state["scale"] = 5.0
    with config.override(check=3), pytest.raises(StaleVersionError) as caught:
        compiled(torch.ones(3))
    text = str(caught.value)
    assert "the guard that is missing: state['scale'] == 5.0" in text
    assert "value=[1.0]" in text and "value=[5.0]" in text and line(step, 1) in text
    assert str(caught.value.loc).endswith(line(step, 1))


def test_a_guard_that_was_not_asked() -> None:
    """A Module's attribute that is written past everything that counts."""
    model = nn.Linear(2, 2)
    model.scale = 1.0

    def step(x: Any) -> Any:
        return x * model.scale

    compiled = torch.compile(step)
    compiled(torch.ones(2))
    version = compiled.version(torch.ones(2))
    for guard in version.guards.records:
        guard.counted |= isinstance(guard, Entry) and "scale" in guard.path
    version.guards.seal()
    dict.__setitem__(model.__dict__, "scale", 4.0)
    with config.override(check=3), pytest.raises(StaleVersionError, match="was not asked"):
        compiled(torch.ones(2))


def test_a_guard_that_always_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    class Box:
        weight = torch.ones(3)

    box = Box()

    def step(x: Any) -> Any:
        y = x * box.weight
        box.weight = None if box.weight is None else torch.zeros(3)
        return y

    replaced = torch.ones(3) * 2

    def other(x: Any) -> Any:
        return x * box.weight

    compiled = torch.compile(other)
    compiled(torch.ones(3))
    box.weight = replaced
    monkeypatch.setattr(Entry, "holds", lambda self: True)
    with config.override(check=3), pytest.raises(StaleVersionError) as caught:
        compiled(torch.ones(3))
    assert "%1: tensor memory" in str(caught.value) and line(other, 1) in str(caught.value)


# --- a lost effect -----------------------------------------------------------------------------


def test_an_effect_that_is_not_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Specialisation.makes

    def makes(self: Any, rebuild: Any, stored: Any, order: Any, apart: Any) -> None:
        right(self, rebuild, stored, [p for p in order if "count" not in p.path], apart)

    monkeypatch.setattr(Specialisation, "makes", makes)
    state = {"count": 0}

    def step(x: Any) -> Any:
        y = x.exp()
        state["count"] = 7
        return y

    report = torch.compare(step, torch.ones(3))
    assert (report.call, report.kind, report.place) == (1, "effects", "state['count']")
    assert "is 0, in eager mode 7" in report.detail and report.line.endswith(line(step, 2))


def test_check_3_compares_effects() -> None:
    state = {"count": 0}

    def step(x: Any) -> Any:
        state["count"] = 7
        return x.exp()

    compiled = torch.compile(step)
    with config.override(check=3):
        for _ in range(3):
            compiled(torch.ones(3))
        version = compiled.version(torch.ones(3))
        version.replay[:] = [(place, 8) for place, _ in version.replay]
        with pytest.raises(StaleVersionError, match=r"\['count'\] of dict number \d+ = int 8"):
            compiled(torch.ones(3))


def test_a_write_that_the_recording_does_not_see(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Recording._effect

    def effect(self: Any, place: Any, old: Any, now: Any) -> None:
        right(self, place, old, old if "total" in place.path else now)

    monkeypatch.setattr(Recording, "_effect", as_graphc(effect, right))
    model = nn.Linear(3, 3)
    model.total = torch.zeros(3)

    def step(x: Any) -> Any:
        y = model(x)
        model.total = model.total + y.detach()
        return y

    report = torch.compare(step, torch.ones(3))
    assert (report.call, report.place) == (1, "model.total")
    assert report.line.endswith(line(step, 2))


# --- random numbers ----------------------------------------------------------------------------


def test_random_numbers_that_are_drawn_too_often(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Specialisation.finish

    def finish(self: Any, *arguments: Any) -> Any:
        torch.rand(1)
        return right(self, *arguments)

    monkeypatch.setattr(Specialisation, "finish", finish)

    def step(x: Any) -> Any:
        y = x * 2
        return torch.dropout(y, 0.5, True)

    report = torch.compare(step, torch.ones(3))
    assert report.call == 1 and report.kind == "random state"
    assert report.place.startswith("torch's default generator")
    assert report.line.endswith(line(step, 2))


def test_a_draw_that_takes_a_word_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    right = pipeline.HOST["rng_poisson"]

    def wrong(*inputs: Any, **attributes: Any) -> Any:
        values, after = right(*inputs, **attributes)
        after = np.array(after)
        after[624] += 1
        return values, after

    def built(*given: Any, **options: Any) -> Any:
        options["table"] = {**options["table"], "rng_poisson": wrong}
        return build(*given, **options)

    build = executable.build
    monkeypatch.setattr(executable, "build", built)

    def step(x: Any) -> Any:
        y = x + torch.rand(3)
        return torch.poisson(y)

    report = torch.compare(step, torch.ones(3))
    assert report.kind == "random state" and report.line.endswith(line(step, 2))
