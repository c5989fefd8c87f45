"""The rate after a schedule's step in the same compiled call: a run-time number of one graph."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

import graphc
from tests.optim.test_lr_scheduler import SCHEDULERS

ALL = {
    **SCHEDULERS,
    "CyclicLR": lambda L, o: L.CyclicLR(o, 0.01, 0.2, 4),
    "CyclicLR function": lambda L, o: L.CyclicLR(
        o, 0.01, 0.2, 4, scale_fn=lambda x: 0.9**x, scale_mode="iterations"),
    "SequentialLR of a function": lambda L, o: L.SequentialLR(
        o, [L.LambdaLR(o, lambda e: (e + 1) / 5), L.StepLR(o, 4)], milestones=[5]),
    "ChainedScheduler": lambda L, o: L.ChainedScheduler(
        [L.ConstantLR(o, 0.5, 4), L.ExponentialLR(o, 0.9)]),
}
ALL.pop("LambdaLR list")  # for two groups
ALL.pop("OneCycleLR linear")


def read_groups(optimizer: Any, schedule: Any, log: list[Any]) -> Any:
    schedule.step()
    log.append(min(group["lr"] for group in optimizer.param_groups[:1]))
    return optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["momentum"]


def read_schedule(optimizer: Any, schedule: Any, log: list[Any]) -> Any:
    before = schedule.get_last_lr()[0]
    schedule.step()
    log += schedule.get_last_lr()
    return schedule.get_last_lr()[0] - before


def say(optimizer: Any, schedule: Any, log: list[Any]) -> Any:
    schedule.step()
    rate = optimizer.param_groups[0]["lr"]
    print(f"rate {rate:.4f}", format(rate, ".3e"), schedule.get_last_lr())
    return {"rate": rate, "text": str(round(rate, 4))}


def clear(optimizer: Any, schedule: Any, log: list[Any]) -> Any:
    schedule.step()
    optimizer.zero_grad()
    return optimizer.param_groups[0]["lr"] * 2


def twice(optimizer: Any, schedule: Any, log: list[Any]) -> Any:
    schedule.step()
    first = schedule.get_last_lr()[0]
    schedule.step()
    return f"{first:.5f}", schedule.get_last_lr()[0], first


def decide(optimizer: Any, schedule: Any, log: list[Any]) -> Any:
    schedule.step()
    if optimizer.param_groups[0]["lr"] < 0.05:
        log.append("low")
    return schedule.get_last_lr()[0]


def write(optimizer: Any, schedule: Any, log: list[Any]) -> Any:
    schedule.step()
    optimizer.param_groups[0]["lr"] *= 0.95
    return optimizer.param_groups[0]["lr"]


def write_before(optimizer: Any, schedule: Any, log: list[Any]) -> Any:
    optimizer.param_groups[0]["lr"] *= 0.95
    schedule.step()
    return optimizer.param_groups[0]["lr"]


def restart(optimizer: Any, schedule: Any, log: list[Any]) -> Any:
    schedule.step()
    if len(log) % 4 == 3:
        schedule.last_epoch = 1
    log.append(vars(schedule)["_last_lr"][0])
    return optimizer.param_groups[0]["lr"]


def state(optimizer: Any, schedule: Any, log: list[Any]) -> Any:
    schedule.step()
    return dict(optimizer.param_groups[0])["lr"], schedule.state_dict()["_last_lr"]


Use = Callable[[Any, Any, list[Any]], Any]


def run(space: Any, make: Any, use: Use, compiled: bool, steps: int) -> tuple[list[Any], Any]:
    """What `steps` training steps give and print, and the function."""
    module = space.nn.Linear(3, 1)
    with space.no_grad():
        for parameter in module.parameters():
            parameter.fill_(0.25)
    optimizer = space.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    schedule, log = make(space.optim.lr_scheduler, optimizer), []

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        module(x).square().mean().backward()
        optimizer.step()
        return use(optimizer, schedule, log)

    step = space.compile(step) if compiled else step
    seen: list[Any] = []
    for i in range(steps):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            seen.append(step(space.ones(2, 3) * (i % 3 + 0.5)))
        seen += [said.getvalue(), list(log), optimizer.param_groups[0]["lr"]]
        seen += module.bias.detach().tolist()
    return seen, step


def flat(value: Any) -> list[Any]:
    """Numbers and texts, in order."""
    if isinstance(value, dict):
        return flat(list(value.values()))
    if not isinstance(value, (list, tuple)):
        return [value]
    return [leaf for each in value for leaf in flat(each)]


def compare(name: str, use: Use, steps: int) -> Any:
    """Run in PyTorch and compiled; gives the compiled function."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want, _ = run(torch, ALL[name], use, False, steps)
        have, step = run(graphc, ALL[name], use, True, steps)
    for a, b in zip(flat(want), flat(have), strict=True):
        assert (a == pytest.approx(b, rel=1e-4, abs=1e-6) if isinstance(a, float) else a == b)
    return step


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("use", [read_groups, read_schedule, say, clear, twice])
def test_one_graph(name: str, use: Use) -> None:
    step = compare(name, use, 30 if use is say else 15)
    assert step.segments is None and step.compile_count == 1


@pytest.mark.parametrize("use", [decide, write, write_before, restart, state])
@pytest.mark.parametrize("name", ["StepLR", "LambdaLR", "OneCycleLR", "ExponentialLR"])
def test_segments(name: str, use: Use) -> None:
    compare(name, use, 12)


def test_a_function_that_reads_what_the_call_writes() -> None:
    """It is called after the native code and before the call's effects: segments."""
    counts = {"steps": 0}
    ALL["counting"] = lambda L, o: L.LambdaLR(o, lambda e: 1 / (1 + counts["steps"] % 50))

    def use(optimizer: Any, schedule: Any, log: list[Any]) -> Any:
        counts["steps"] += 1
        schedule.step()
        return schedule.get_last_lr()[0]

    step = run(graphc, ALL.pop("counting"), use, True, 6)
    assert step[1].segments is not None
    assert step[0][3::5] == pytest.approx([0.1 / n for n in range(2, 8)])


def test_a_function_with_effects() -> None:
    """It is called once a step."""
    calls: list[int] = []

    def factor(epoch: int) -> float:
        calls.append(epoch)
        return 0.9**epoch

    run(graphc, lambda L, o: L.LambdaLR(o, factor), read_schedule, True, 5)
    assert calls == [0, 1, 2, 3, 4, 5]


def test_a_schedule_that_ends() -> None:
    """Its error is the user's, at the step at which PyTorch raises it."""
    made = lambda L, o: L.OneCycleLR(o, 0.3, total_steps=5)  # noqa: E731
    for space in (torch, graphc):
        run(space, made, read_groups, space is graphc, 4)
        with pytest.raises(ValueError, match="Tried to step 6 times"):
            run(space, made, read_groups, space is graphc, 6)
