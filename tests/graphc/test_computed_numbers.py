"""`total += loss.item()`, `y = x * scale.item()`: arithmetic on tensors' numbers ends no graph."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import graphc as torch

pytestmark = pytest.mark.filterwarnings("ignore::graphc.PerformanceWarning")

TOTAL = 0.0


class Meter:
    def __init__(self) -> None:
        self.total, self.average, self.seen = 0.0, 0.0, 0
        self.sums: dict[str, float] = {"loss": 0.0}


METER = Meter()


def stored_twice(x: Any) -> Any:
    value = 0.0
    for i in range(2):
        value = value + (x * i).sum().item()
    return value


def to_a_global(x: Any) -> Any:
    global TOTAL
    loss = x.square().mean()
    TOTAL += loss.item() * x.size(0)
    return loss


def to_attributes_and_items(x: Any) -> Any:
    loss = x.square().mean()
    METER.total += loss.item()
    METER.average = 0.9 * METER.average + 0.1 * loss.item()
    METER.sums["loss"] += -abs(loss.item()) / len(x)
    METER.seen += 1
    return loss * 2


def with_tensors(x: Any) -> Any:
    scale = x.max().item()
    y = (x - x.min().item()) / 2 + scale * x
    return torch.nn.functional.relu(y), scale - 1


def before_a_write(x: Any) -> Any:
    first = x[0].item()
    x.mul_(2).add_(first)
    return x - first, first * 2.0


def of_ints_among_floats(x: Any) -> Any:
    count = (x > 2).sum().item()
    return x / 2 + count, x.long() * count, count * 0.5, 1.5 - count


def of_truths(x: Any) -> Any:
    return x * (x > 2).any().item(), (x > 2).all().item() + 0.5


def of_gradients(x: Any) -> Any:
    w = x.clone().requires_grad_()
    loss = (w * w.sum().item()).square().sum()
    loss.backward()
    return w.grad, w.grad.norm().item() * 1.0


def in_half_precision(x: Any) -> Any:
    h = x.to(torch.bfloat16)
    return h * (x.sum().item() * 0.1), h + x.sum().item(), h.sum().item() * x


def in_float64(x: Any) -> Any:
    d = x.double() / 3
    return d * d.sum().item(), x * d.sum().item(), d.sum().item() + d.mean().item()


def by_methods(x: Any) -> Any:
    a, b = x.sum().item(), x.mean().item()
    y = x.clone()
    y.mul_(a).add_(b)
    return torch.mul(y, a * 1.0), torch.sub(x, -b), y.add(x, alpha=2) + b


COMPUTED = (
    stored_twice, to_a_global, to_attributes_and_items, with_tensors, before_a_write,
    of_ints_among_floats, of_truths, of_gradients, in_half_precision, in_float64, by_methods,
)


def told(function: Callable[..., Any], given: list[Any]) -> Any:
    """What calls give and leave."""
    global TOTAL
    TOTAL = 0.0
    vars(METER).update(vars(Meter()))
    results = []
    for x in given:
        own = x.clone()
        results.append(_plain([function(own), own, TOTAL, dict(vars(METER))]))
    return results


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return str(value.dtype), [float(f"{v:.6g}") for v in value.reshape(-1).tolist()]
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(_plain, value))
    return (type(value), float(f"{value:.6g}")) if isinstance(value, (int, float)) else value


@pytest.mark.parametrize("function", COMPUTED, ids=lambda f: f.__name__)
def test_numbers_that_are_computed_with(function: Callable[..., Any]) -> None:
    compiled = torch.compile(function)
    given = [torch.arange(1.0, 5.0) + i for i in range(5)]
    assert told(compiled, given) == told(function, given)
    assert compiled.segments is None and compiled.compile_count <= 2


def divided_by_it(x: Any) -> Any:
    return 1 / x[0].item()


def whole_numbers(x: Any) -> Any:
    METER.seen += (x > 2).sum().item()
    return METER.seen, (x > 0).sum().item() * 2**70


def to_a_power(x: Any) -> Any:
    return x.sum().item() ** 2 % 3


def compared(x: Any) -> Any:
    value = x.sum().item() / 2
    return x + 1 if value > 10 else x - 1


def said(x: Any) -> Any:
    value = x.sum().item() / 2
    return f"{value:.3f}", x * value


def as_a_size(x: Any) -> Any:
    n = (x > 2).sum().item()
    return torch.zeros(n), x * n


def to_functions(x: Any) -> Any:
    value = x.sum().item() * 0.5
    return math.sqrt(value), max(value, 1.0), isinstance(value, float), {value: 1}, x * value


def among_whole_numbers(x: Any) -> Any:
    return x.long() * (x.sum().item() * 0.5), x.long().add_(x.long().sum().item())


PYTHONS = (
    divided_by_it, whole_numbers, to_a_power, compared, said, as_a_size, to_functions,
    among_whole_numbers,
)


@pytest.mark.parametrize("function", PYTHONS, ids=lambda f: f.__name__)
def test_what_is_left_to_python(function: Callable[..., Any]) -> None:
    given = [torch.arange(1.0, 5.0) + i for i in range(4)]
    assert told(torch.compile(function), given) == told(function, given)


def test_values_beyond_numbers() -> None:
    def step(x: Any) -> Any:
        total = 0.0
        for i in range(3):
            total += x[i].item() * 1e300 * 1e300
        return total, x * x[0].item()

    given = [
        torch.tensor(values) for values in
        ([1.0, 2.0, 3.0], [math.nan, 1.0, 2.0], [math.inf, 1.0, -0.0], [-math.inf, math.inf, 0.0])
    ]
    compiled = torch.compile(step)
    for x in given:
        (total, y), (own, z) = step(x), compiled(x)
        assert repr(total) == repr(own) and y.tolist().__repr__() == z.tolist().__repr__()
    assert compiled.segments is None


def test_a_quotient_by_nothing_raises() -> None:
    def step(x: Any, n: Any) -> Any:
        return x.sum().item() / n

    compiled = torch.compile(step)
    x = torch.arange(3.0)
    for n in (2.0, 3.0, 0.0, 4.0, 0):
        if n:
            assert compiled(x, n) == step(x, n)
        else:
            with pytest.raises(ZeroDivisionError, match="division by zero"):
                compiled(x, n)


def test_a_step_that_adds_up_its_loss_is_one_graph() -> None:
    class Trainer:
        def __init__(self) -> None:
            torch.manual_seed(0)
            self.net = torch.nn.Linear(4, 2)
            self.optimizer = torch.optim.SGD(self.net.parameters(), 0.1, momentum=0.9)
            self.total, self.count = 0.0, 0

        def step(self, x: Any) -> None:
            self.optimizer.zero_grad()
            loss = self.net(x).square().mean()
            loss.backward()
            self.optimizer.step()
            self.total += loss.item() * x.size(0)
            self.count += x.size(0)

    eager, compiled = Trainer(), Trainer()
    step = torch.compile(compiled.step)
    for i in range(5):
        x = torch.linspace(-1, 1 + i, 12).reshape(3, 4)
        eager.step(x)
        step(x)
        assert compiled.total == pytest.approx(eager.total, rel=1e-5)
        assert type(compiled.total) is float and compiled.count == eager.count
    assert step.segments is None
