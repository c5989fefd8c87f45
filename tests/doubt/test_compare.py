"""compare(): ordinary functions agree, what it finds is named, and it leaves no trace."""

from __future__ import annotations

import functools
import io
import random
import types
import warnings
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

import graphc as torch
from graphc import nn
from graphc.doubt.runs import Runs
from graphc.doubt.seen import Closeness, Entry, difference
from graphc.nn import functional as F
from graphc.testing.comparison import TOLERANCES

TOTALS: dict[str, Any] = {"calls": 0, "seen": []}
HISTORY = None
WEIGHT = torch.ones(3, requires_grad=True)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def state_of(module: nn.Module) -> dict[str, Any]:
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}


def agrees(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    report = torch.compare(function, *args, **options)
    assert report, str(report)
    assert report.agrees and "agree" in str(report)
    report.assert_agrees()
    return report


# --- ordinary functions ------------------------------------------------------------------------


def network() -> nn.Module:
    return nn.Sequential(
        nn.Linear(6, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Dropout(0.3), nn.Linear(16, 3)
    )


@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad"])
def test_a_training_step_agrees_and_leaves_no_trace(optimizer: str) -> None:
    model = network()
    options = {"momentum": 0.9} if optimizer == "SGD" else {}
    steps = getattr(torch.optim, optimizer)(model.parameters(), lr=1e-2, **options)
    schedule = torch.optim.lr_scheduler.StepLR(steps, 2, 0.5)

    def step(x: Any, y: Any) -> Any:
        steps.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        steps.step()
        schedule.step()
        return loss

    x, y = torch.randn(8, 6), torch.randint(0, 3, (8,))
    before, stream = state_of(model), torch.get_rng_state()
    moments = [len(state) for state in steps.state.values()]  # Adagrad's are there from the first
    assert "one graph" in agrees(step, x, y, calls=4).how
    assert [len(state) for state in steps.state.values()] == moments
    assert not any(float(state["step"]) for state in steps.state.values())
    assert schedule.last_epoch == 0
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(torch.get_rng_state(), stream)
    assert all(torch.equal(before[n], t) for n, t in model.state_dict().items())


def closure() -> Callable[..., Any]:
    count, log, last = 0, [], None

    def step(x: Any) -> Any:
        nonlocal count, last
        count += 1
        log.append(count)
        last = x * count if last is None else last + x
        return last, x, [x.view(-1)]

    return step


class Holder:
    shared: list[int] = []

    def __init__(self) -> None:
        self.total = torch.zeros(3)
        self.count = 0

    def __call__(self, x: Any) -> Any:
        self.total = self.total + x
        self.count += 1
        return {"total": self.total, "count": self.count}


@dataclass(slots=True)
class Slots:
    value: Any = None
    others: list[Any] = field(default_factory=list)

    def step(self, x: Any) -> Any:
        self.value = x if self.value is None else self.value * 2
        return self.value


def with_globals(x: Any) -> Any:
    global HISTORY
    TOTALS["calls"] += 1
    TOTALS["seen"].append(TOTALS["calls"])
    HISTORY = x if HISTORY is None else HISTORY + x
    loss = (WEIGHT * HISTORY).sum()
    loss.backward()
    return HISTORY


def in_place(x: Any) -> Any:
    x.mul_(2)
    x[0].add_(1)
    return x[1:]


def drawing(x: Any) -> Any:
    y = x + torch.rand(3) * random.random() + float(np.random.rand())
    return F.dropout(y, 0.5) + torch.randn(3)


def printing(x: Any) -> Any:
    print("mean", x.mean())
    warnings.warn(f"{x.ndim} dims", stacklevel=2)
    return x * x.sum().item()


def raising(x: Any) -> Any:
    TOTALS["calls"] += 1
    if TOTALS["calls"] == 2:
        raise KeyError("second")
    return x + 1


def generating(x: Any) -> Any:
    def parts() -> Iterator[Any]:
        for i in range(3):
            yield x * i

    return sum(parts()), OrderedDict(last=x, first=x + 1), deque([x], 2)


def branching(x: Any) -> Any:
    y = x * 2
    if y.sum() > 0:
        y = F.softmax(y, 0)
    return y.tolist(), y[y > 0.1]


STATEFUL = {
    "closure": closure(), "object": Holder(), "method": Slots().step, "globals": with_globals,
    "in place": in_place, "drawing": drawing, "raising": raising, "generating": generating,
    "branching": branching, "partial": functools.partial(torch.clamp, max=0.5),
    "lambda": lambda x: x.exp().sum(),
}


@pytest.mark.parametrize("function", STATEFUL.values(), ids=STATEFUL)
def test_functions_with_state_agree(function: Callable[..., Any]) -> None:
    agrees(function, torch.tensor([0.5, -1.0, 2.0]))
    assert TOTALS == {"calls": 0, "seen": []} and HISTORY is None and WEIGHT.grad is None


def test_what_is_printed_and_warned_is_compared_and_kept_back(capsys: Any) -> None:
    agrees(printing, torch.tensor([0.5, -1.0, 2.0]))
    assert capsys.readouterr().out == ""


def test_modules() -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
    agrees(model, torch.randn(2, 1, 6, 6))
    agrees(nn.LSTM(4, 5, batch_first=True), torch.randn(2, 3, 4))
    assert int(model[1].num_batches_tracked) == 0


def test_a_compiled_function_and_what_it_calls_are_run_eagerly_too() -> None:
    model = torch.compile(nn.Linear(3, 3))
    holder = Holder()
    inner = torch.compile(holder)

    @torch.compile
    def step(x: Any) -> Any:
        return model(x) + inner(x)["total"]

    agrees(step, torch.ones(3))
    agrees(model, torch.ones(2, 3))
    assert step.compile_count == 0 and holder.count == 0


def test_compiled_code_in_reach_is_left_alone() -> None:
    """Its pages cannot be written to, and hold nothing of the user's; a program's weights do."""
    model = nn.BatchNorm1d(3)
    program = torch.export.export(model, (torch.ones(2, 3),))
    x = torch.randn(2, 3)
    first, before = program(x).tolist(), model.running_mean.tolist()
    inner = torch.compile(lambda x: (x * 2).exp())
    inner(x)

    def step(x: Any) -> Any:
        return inner(x) + x

    torch.compare(step, x).assert_agrees()

    def outside(x: Any) -> Any:
        return program, x + 1

    mean = program.state_dict["running_mean"].tolist()
    torch.compare(outside, x).assert_agrees()
    assert program.state_dict["running_mean"].tolist() == mean != before
    assert program(x).tolist() == first


def test_arguments_that_share_memory_and_tensors_that_are_views() -> None:
    base = torch.arange(6.0)

    def step(whole: Any, part: Any) -> Any:
        part += 1
        return whole.sum(), part.view(1, 3)

    agrees(step, base, base[1:4])
    assert base.tolist() == [0, 1, 2, 3, 4, 5]


def test_history_from_before_the_call_is_there_in_both_runs() -> None:
    weight = torch.ones(3, requires_grad=True)
    loss = (weight * 2).sum()

    def step() -> None:
        weight.grad = None
        loss.backward(retain_graph=False)

    agrees(step, calls=1)
    loss.backward()  # nothing was freed
    assert weight.grad.tolist() == [2, 2, 2]


def entries(*numbers: float) -> list[Entry]:
    values = np.array(numbers, np.float32)
    return [Entry("x", (("type", "Tensor"),), values, TOLERANCES["float32"])]


def test_what_rounding_moves_as_far_is_no_difference() -> None:
    """A step of Adam where the gradient is nothing but rounding goes one way or the other."""
    close = Closeness()
    noisy = [entries(1.0, 5.0, 3.0), entries(0.8, 5.0, 3.0)]
    for have, found in (
        ((1.0, 5.0, 3.0), ""), ((1.1, 5.0, 3.0), ""), ((1.0, 5.1, 3.0), ""),  # as far as others
        ((1.0, 5.1, 3.1), "2 of 3"), ((3.0, 5.0, 3.0), "1 of 3"), ((1.0, 5.0, 9.0), "1 of 3"),
    ):
        said = difference(entries(1.0, 5.0, 3.0), entries(*have), close, lambda: noisy)
        assert (found in said.detail) if found else said is None, (have, said)
    exact = Closeness(1e-6, 1e-6)
    assert difference(entries(1.0), entries(1.1), exact, lambda: noisy) is not None


def test_tolerances_are_the_caller_s() -> None:
    def step(x: Any) -> Any:
        return x * 1.01 if torch.compiler.is_compiling() else x

    assert not torch.compare(step, torch.ones(3))
    assert torch.compare(lambda x: step(x) + 0, torch.ones(3), rtol=0.1, atol=0.0)
    assert torch.compare(torch.exp, torch.tensor([float("nan"), float("inf")]))


# --- what differs ------------------------------------------------------------------------------


def test_a_difference_is_in_the_report() -> None:
    def step(x: Any) -> Any:
        return x.is_contiguous() if torch.compiler.is_compiling() else x + 1

    report = torch.compare(step, torch.ones(3))
    assert not report and report.call == 1 and report.kind == "values"
    assert report.place == "result of call 1" and "bool, in eager mode Tensor" in report.detail
    assert report.line.endswith(f"test_compare.py:{step.__code__.co_firstlineno + 1}")
    with pytest.raises(AssertionError, match="call 1 differs in values"):
        report.assert_agrees()


def write_state(seen: dict[str, Any]) -> Callable[..., Any]:
    def step(x: Any) -> Any:
        y = x * 2
        if not torch.compiler.is_compiling():
            seen["count"] = seen.get("count", 0) + 1
        return y

    return step


def test_a_lost_effect_is_named_by_the_line_that_has_it() -> None:
    step = write_state({"count": 3})
    report = torch.compare(step, torch.ones(3))
    inner = step.__code__.co_firstlineno
    assert (report.kind, report.place) == ("effects", "seen['count']")
    assert "is 3, in eager mode 4" in report.detail
    assert report.line.endswith(f"test_compare.py:{inner + 3}")


def test_an_item_that_is_made_in_eager_mode_alone() -> None:
    step = write_state({})
    report = torch.compare(step, torch.ones(3))
    assert report.place == "seen" and "length is 0, in eager mode 1" in report.detail
    assert report.line.endswith(f":{step.__code__.co_firstlineno + 3}")


def test_random_numbers_that_compiled_code_does_not_draw() -> None:
    def step(x: Any) -> Any:
        y = torch.rand(3)
        if not torch.compiler.is_compiling():
            torch.rand(1)
        return x + y

    report = torch.compare(step, torch.ones(3))
    assert report.kind == "random state" and "default generator" in report.place
    assert report.line.endswith(f":{step.__code__.co_firstlineno + 3}")


def test_results_are_told_apart_by_identity_memory_and_history() -> None:
    weight = torch.ones(3, requires_grad=True)
    for eager, compiled, word in (
        (lambda x: x, lambda x: x.clone(), "object"),
        (lambda x: x.double(), lambda x: x * 1, "dtype"),
        (lambda x: x.view(3), lambda x: x.clone(), "memory"),
        (lambda x: x * weight, lambda x: x * weight.detach(), "requires_grad"),
        (lambda x: [x], lambda x: (x,), "type"),
        (lambda x: torch.ones(2, 3).t(), lambda x: torch.ones(3, 2), "strides"),
    ):
        def step(x: Any, eager: Any = eager, compiled: Any = compiled) -> Any:
            return (compiled if torch.compiler.is_compiling() else eager)(x)

        report = torch.compare(step, torch.ones(3), calls=1)
        assert not report and report.detail.startswith((word, "is "))
        assert word in report.detail or "itself" in report.detail, report.detail


def test_an_exception_that_only_compiled_code_raises() -> None:
    def step(x: Any) -> Any:
        if torch.compiler.is_compiling():
            raise ValueError("only here")
        return x

    report = torch.compare(step, torch.ones(3))
    assert report.kind == "error" and "ValueError, in eager mode none" in report.detail
    assert "only here" in str(report)


# --- bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "options", "error"),
    [
        ((3,), {}, TypeError), ((torch.ones(2),), {}, TypeError),
        ((torch.exp, 1), {"calls": 0}, ValueError), ((torch.exp, 1), {"calls": 2.0}, ValueError),
        ((torch.exp, 1), {"rtol": 1e-3}, ValueError),
    ],
)
def test_bad_input_is_named(arguments: Any, options: Any, error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        torch.compare(*arguments, **options)
    text = str(caught.value)
    assert any(repr(v) in text for v in (*options.values(), *arguments)) and "Cure" in text


def test_what_cannot_be_put_back_is_named() -> None:
    numbers = iter([1, 2, 3])
    stream = (i for i in range(9))
    for source, name in ((numbers, "list_iterator"), (stream, "generator")):
        with pytest.raises(TypeError, match=f"the {name} source cannot be put back"):
            torch.compare(lambda x, source: x * next(source), torch.ones(2), source)
    agrees(lambda x, source: x * 2, torch.ones(2), stream)  # it is not moved


def test_what_cannot_be_copied_is_said(tmp_path: Any) -> None:
    with open(tmp_path / "log.txt", "w") as file:
        report = agrees(lambda x, queue, file: x + 1, torch.ones(2), SimpleQueue(), file)
    assert "not copied: queue (_queue.SimpleQueue)" in str(report)


def test_inside_a_compiled_function_it_is_refused() -> None:
    compiled = torch.compile(lambda x: torch.compare(torch.exp, x), fullgraph=True)
    with pytest.raises(RuntimeError, match="compare"):
        compiled(torch.ones(2))


# --- what is put back --------------------------------------------------------------------------

CONTEXT: ContextVar[int] = ContextVar("context")
CALLS: list[int] = []
MADE = types.ModuleType("made")
exec("k = 2.0\ndef f(v):\n    global k\n    k += 1\n    return v * k", vars(MADE))


class Reads:
    reads = 0

    def __getattribute__(self, name: str) -> Any:
        Reads.reads += 1
        return object.__getattribute__(self, name)

    def __len__(self) -> int:
        raise AssertionError("nobody asked")


@functools.cache
def remembered(n: int) -> float:
    CALLS.append(n)
    return n * 2.0


class Ordered(OrderedDict[str, Any]):
    def __init__(self) -> None:
        super().__init__(a=1, b=2)
        self.writes = 0

    def __setitem__(self, key: str, value: Any) -> None:
        OrderedDict.__setitem__(self, key, value)
        if hasattr(self, "writes"):
            self.writes += 1


def test_everything_is_put_back() -> None:
    """What programs of tests/programs found."""
    ordered, buffer, queue = Ordered(), io.StringIO("old"), deque([1, 2], 2)
    array, stream = np.zeros(2), random.Random(3)
    generator = torch.Generator().manual_seed(3)
    states = stream.getstate(), generator.get_state().tolist()

    def step(x: Any) -> Any:
        ordered["c"] = ordered["a"] + 1
        ordered.move_to_end("a")
        buffer.write("more")
        queue.append(3)
        array[0] += stream.random()
        CONTEXT.set(CONTEXT.get(0) + 1)
        Ordered.kind = CONTEXT.get()
        x = MADE.f(x) * remembered(3) + torch.rand(2, generator=generator)
        return x, (x.shape, x.size())

    report = torch.compare(step, torch.ones(2))
    assert report, str(report)
    assert list(ordered.items()) == [("a", 1), ("b", 2)] and ordered.writes == 0
    assert (buffer.getvalue(), list(queue), array.tolist()) == ("old", [1, 2], [0, 0])
    assert (stream.getstate(), generator.get_state().tolist()) == states
    assert CONTEXT.get(None) is None and not hasattr(Ordered, "kind")
    assert MADE.k == 2.0 and CALLS == [] and remembered.cache_info().currsize == 0


def test_looking_at_an_object_asks_nothing_of_it() -> None:
    reads = Reads()
    count = Reads.reads
    runs = Runs(lambda held: held, ([reads],), {}, 1)
    assert len(next(iter(runs.eager()))) > 5
    runs.end()
    assert Reads.reads == count
