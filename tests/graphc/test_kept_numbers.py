"""`losses.append(loss.item())`, `value = loss.item(); ...; return value` end no graph."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

import graphc as torch

pytestmark = pytest.mark.filterwarnings("ignore::graphc.PerformanceWarning")


class Log:
    def __init__(self) -> None:
        self.losses: list[Any] = []
        self.last: Any = None
        self.table: dict[str, Any] = {}

    def clear(self) -> None:
        self.losses.clear()
        self.table.clear()
        self.last = None


LOG = Log()


def appended(x: Any) -> Any:
    y = (x * 2).sin().sum()
    LOG.losses.append(y.item())
    LOG.last = (y * 2).item()
    LOG.table["y"] = y.exp().item()
    return y


def in_a_variable(x: Any) -> Any:
    y = x.square().sum()
    value = y.item()
    y.mul_(3)
    return {"value": value, "y": y.item(), "x": x + 1}


def kept_twice(x: Any) -> Any:
    value = x.sum().item()
    LOG.losses.append(value)
    return value, [value]


def of_the_argument(x: Any) -> Any:
    value = x[0].item()
    x.add_(1)
    return value, x[0].item()


def in_a_comprehension(x: Any) -> Any:
    return [(x * i).sum().item() for i in range(3)]


def never_used(x: Any) -> Any:
    value = x.sum().item()  # noqa: F841
    return x + 1


def of_whole_numbers(x: Any) -> Any:
    count = (x > 0).sum().item()
    true = (x > 0).any().item()
    return count, true


KEPT = (
    appended, in_a_variable, kept_twice, of_the_argument, in_a_comprehension, never_used,
    of_whole_numbers,
)


def told(function: Callable[..., Any], x: Any) -> Any:
    """What a call gives and leaves."""
    LOG.clear()
    result = function(x)
    return _plain([result, x, vars(copy.deepcopy(LOG))])


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return [round(v, 4) for v in value.reshape(-1).tolist()]
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(_plain, value))
    return (type(value), round(value, 4)) if isinstance(value, (int, float)) else value


@pytest.mark.parametrize("function", KEPT, ids=lambda f: f.__name__)
def test_numbers_that_are_kept(function: Callable[..., Any]) -> None:
    compiled = torch.compile(function)
    for i in range(4):
        x = torch.arange(1.0, 5.0) + i
        assert told(compiled, x.clone()) == told(function, x.clone())
    assert compiled.segments is None and compiled.compile_count == 1


def asked_later(x: Any) -> Any:
    LOG.losses.append(x.sum().item())
    return x * (2 if LOG.losses[-1] > 12 else 3)


def asked_through_a_call(x: Any) -> Any:
    value = x.sum().item()
    LOG.losses.append(value)
    return x * LOG.losses[0], f"{LOG.losses[-1]:.1f}"


def given_to_print(x: Any) -> Any:
    y = x.sum()
    LOG.table.update(y=y.item())
    LOG.losses.insert(0, y.item())
    return x * LOG.table["y"]


def in_a_cell(x: Any) -> Any:
    value = x.sum().item()

    def more() -> Any:
        return value + 1

    return more()


ASKED = (asked_later, asked_through_a_call, given_to_print, in_a_cell)


@pytest.mark.parametrize("function", ASKED, ids=lambda f: f.__name__)
def test_numbers_that_are_asked_after_all(function: Callable[..., Any]) -> None:
    compiled = torch.compile(function)
    for i in range(4):
        x = torch.arange(1.0, 5.0) + i
        assert told(compiled, x.clone()) == told(function, x.clone())
    assert compiled.segments is not None


def test_a_failure_after_a_number_was_kept() -> None:
    def step(x: Any, at: Any) -> Any:
        LOG.losses.append(x.sum().item())
        return x[at]

    compiled = torch.compile(step)
    for at in (1, 2, 9, 3):
        x, where = torch.arange(4.0), torch.tensor([at])
        results = []
        for function in (compiled, step):
            LOG.clear()
            try:
                results.append((function(x, where).tolist(), list(LOG.losses)))
            except IndexError as error:
                results.append((str(error)[:20], list(LOG.losses)))
        assert results[0] == results[1]


def test_a_training_step_that_logs_its_loss_is_one_graph() -> None:
    class Trainer:
        def __init__(self) -> None:
            torch.manual_seed(0)
            self.net = torch.nn.Linear(4, 2)
            self.optimizer = torch.optim.SGD(self.net.parameters(), 0.1, momentum=0.9)
            self.losses: list[float] = []

        def step(self, x: Any) -> None:
            self.optimizer.zero_grad()
            loss = self.net(x).square().mean()
            loss.backward()
            self.optimizer.step()
            self.losses.append(loss.item())

    eager, compiled = Trainer(), Trainer()
    step = torch.compile(compiled.step)
    for i in range(4):
        x = torch.linspace(-1, 1 + i, 12).reshape(3, 4)
        eager.step(x)
        step(x)
    assert compiled.losses == pytest.approx(eager.losses, rel=1e-5)
    assert all(type(loss) is float for loss in compiled.losses)
    assert step.segments is None
