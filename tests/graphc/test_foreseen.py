"""First calls whose code says that they will need a value: made in eager mode, nothing recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.engine.segments.foreseen import values_needed
from graphc.frontend.trace import Trace
from tests.graphc.scenario import compare, flat, mlp


@pytest.fixture
def recordings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of what is recorded."""
    found: list[str] = []
    begin = Trace.__enter__

    def enter(self: Trace) -> Trace:
        found.append(self.name)
        return begin(self)

    monkeypatch.setattr(Trace, "__enter__", enter)
    return found


def training(log: list[float]) -> Callable[[Any], Any]:
    graphc.manual_seed(0)
    net = mlp(graphc, graphc.nn)
    optimizer = graphc.optim.Adam(net.parameters(), 0.01)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        log.append(round(loss.item(), 6))
        return loss

    return step


def test_a_step_that_logs_its_loss_is_not_recorded_first(recordings: list[str]) -> None:
    x = graphc.linspace(-1, 1, 16).reshape(4, 4)
    logs: list[list[float]] = [[], []]
    eager, compiled = training(logs[0]), graphc.compile(training(logs[1]))
    for i in range(4):
        eager(x)
        compiled(x)
        assert compiled.segments is not None and compiled.segments.calls == 1
        assert not recordings, i
    assert logs[0] == logs[1]
    (end,) = compiled.segments.ends
    assert end.reason == "item()" and end.loc.function.endswith("step")


def test_what_needs_no_tensors_value_is_one_graph_from_the_second_call() -> None:
    def scaled(x: Any, factors: Any) -> Any:
        return x * round(factors.sum().item(), 3)

    compiled = graphc.compile(scaled)
    x, factors = graphc.ones(3), np.full(2, 1.5)
    for versions in (0, 1, 1):
        assert compiled(x, factors).tolist() == [3.0, 3.0, 3.0]
        assert compiled.compile_count == versions and compiled.segments is None


def test_what_eager_mode_looks_at_by_itself_is_no_demand() -> None:
    def loss_of(x: Any, y: Any, factors: Any) -> Any:
        loss = graphc.nn.functional.binary_cross_entropy(x, y)
        return loss * round(factors.sum().item(), 3)

    compiled = graphc.compile(loss_of)
    for versions in (0, 1):
        compiled(graphc.full((3,), 0.5), graphc.ones(3), np.ones(2))
        assert compiled.compile_count == versions and compiled.segments is None


def test_a_first_call_that_raises_leaves_the_next_to_a_recording() -> None:
    calls: list[float] = []

    def checked(x: Any) -> Any:
        calls.append(x.sum().item())
        if len(calls) == 1:
            raise ValueError("the first")
        return x + calls[-1]

    compiled = graphc.compile(checked)
    with pytest.raises(ValueError, match="the first"):
        compiled(graphc.ones(2))
    assert compiled.segments is None
    assert compiled(graphc.ones(2)).tolist() == [3.0, 3.0] and calls == [2.0, 2.0]


def test_hooks_are_looked_at(recordings: list[str]) -> None:
    seen: list[float] = []
    net = mlp(graphc, graphc.nn)
    compiled = graphc.compile(net)
    handle = net[0].register_forward_hook(
        lambda module, args, out: seen.append(float(out.detach().abs().mean()))
    )
    compiled(graphc.ones(2, 4))
    assert len(seen) == 1 and not recordings
    handle.remove()
    again = graphc.compile(lambda x: net(x))
    again(graphc.ones(2, 4))
    assert recordings


def returned(x: Any) -> Any:
    y = x.sum()
    return {"sum": y.item(), "x": x}


def sometimes(x: Any, verbose: bool) -> Any:
    if verbose:
        print(x.item())
    return x


def after_a_return(x: Any, short: bool) -> Any:
    if short:
        return x
    return x + x.sum().item()


def of_a_constant(x: Any) -> Any:
    size = graphc.tensor(len(x)).item()
    return x / size


def of_a_number(x: Any, rate: Any) -> Any:
    return x * float(rate)


def by_length(x: Any, names: list[str]) -> Any:
    if len(names) > 2 or names.count("a") > 1:
        return x
    return x + 1


def written_where(x: Any) -> Any:
    x[x > 0] = 1
    return x


@pytest.mark.parametrize("function", [
    returned, sometimes, after_a_return, of_a_constant, of_a_number, written_where,
    by_length,
])
def test_what_may_well_be_one_graph_is_recorded(function: Any) -> None:
    assert not values_needed(function, (), {})


def formatted(x: Any) -> Any:
    loss = x.mean()
    print(f"{loss.item():.3f}", end="")
    return loss


def in_a_loop(x: Any, count: int) -> Any:
    found = []
    while len(found) < count:
        for row in x:
            found.append(round(row.item()))
    return found


def as_a_number(x: Any) -> Any:
    total = float(x.sum())
    return x / total


def selected(x: Any) -> Any:
    return x[x > 0].sum()


def listed(x: Any) -> Any:
    return (x * 2).tolist()


def decided(x: Any) -> Any:
    if x.mean() > 0.5:
        return x
    return -x


def repeated(x: Any) -> Any:
    while not (x > 4).all():
        x = x * 2
    return x


@pytest.mark.parametrize("function", [
    formatted, in_a_loop, as_a_number, selected, listed, decided, repeated,
])
def test_what_needs_a_value_on_every_way_is_foreseen(function: Any) -> None:
    assert values_needed(function, (), {})
    x = graphc.tensor([0.5, 1.0, 2.0])
    compiled = graphc.compile(function)
    for _ in range(3):
        given = (x, 3) if function is in_a_loop else (x,)
        compare(flat(function(*given)), flat(compiled(*given)), 0.0)
        assert compiled.segments is not None and compiled.segments.calls == 1


def test_a_value_asked_for_over_several_lines_is_found(recordings: list[str]) -> None:
    log: list[Any] = []

    def spread(x: Any) -> Any:
        log.append(
            (
                x.sum()
                .item() ** 2,
                "sum",
            )
        )
        return x + 1

    compiled = graphc.compile(spread)
    compiled(graphc.ones(2))
    assert not recordings and compiled.segments is not None
