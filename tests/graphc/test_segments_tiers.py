"""Segments run operator by operator, compiled, or not at all: by counts, with the same results."""

from __future__ import annotations

import itertools
import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
import graphc.nn as nn
from graphc.engine.built import CompileCounter
from graphc.engine.segments import segments as driver
from graphc.engine.segments.backward import SegmentBackward
from graphc.engine.segments.tiers import CALLS, FIRST, WAIT, Tiers, price, version_cost
from graphc.frontend.context import local
from tests.graphc import tiers

LARGE = 1 << 20  # numbers: an operator on so many outweighs compiling it


def branching(x: Any) -> Any:
    y = x * 2 + 1
    return y.exp() if y.sum() > 0 else y.tanh()


def in_segments(function: Callable[..., Any]) -> Any:
    """A function that runs in segments from its first call on, whose budget never waits."""
    run = graphc.compile(function)
    run.segments = driver.Segments(function.__name__, "llvm", run._of_module)
    run.segments.tiers.work = 1 << 40
    return run


def performance_warnings(call: Callable[[], Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
    return [str(w.message) for w in found if w.category is graphc.PerformanceWarning]


def test_the_second_meeting_is_compiled_the_first_is_not() -> None:
    run, x = in_segments(branching), graphc.ones(LARGE)
    expected = branching(x)
    counts = []
    for _ in range(4):
        before = CompileCounter.count
        graphc.testing.assert_close(run(x), expected)
        counts.append(CompileCounter.count - before)
    assert counts == [0, 2, 0, 0]  # two segments
    assert not run.segments.tiers.plain
    report = str(graphc.explain(run, x))
    assert "6 of them ran compiled, 2 operator by operator" in report, report


def test_while_the_budget_waits_the_function_runs_as_plain_eager_code() -> None:
    run, x = graphc.compile(branching), graphc.ones(LARGE)
    expected = branching(x)
    for i in range(600):
        graphc.testing.assert_close(run(x), expected)
        if i == 1:
            waits = run.segments.tiers.waits
            report = str(graphc.explain(run))
            assert f"{waits} more calls are plain eager code" in report, report
        if run.segments.compile_count:
            break
    segments = run.segments
    assert segments.compile_count == 2 and segments.calls == 3  # it turned, was counted, compiled
    assert segments.tiers.plain_calls == waits == i - 2 > 10 and not segments.tiers.plain
    assert price(segments.tiers.compiled) <= segments.tiers.work


def test_the_budget_is_what_was_run() -> None:
    run = graphc.compile(branching)
    for _ in range(3):
        run(graphc.ones(16))
    assert run.segments.compile_count == 0  # nothing of this size repays compiling
    assert run.segments.calls == 1 and run.segments.tiers.plain_calls == 2


def test_the_rest_of_a_small_first_call_is_plain_eager_code_and_counted() -> None:
    def small_then(size: int) -> Callable[..., Any]:
        def function(x: Any) -> Any:
            if x.sum() > 0:
                y = graphc.ones(size)
                for _ in range(8):
                    y = y.exp().sin()
                x = x + y.sum()
            return x

        return function

    run, x = graphc.compile(small_then(3)), graphc.ones(3, requires_grad=True)
    assert not isinstance(run(x).grad_fn, SegmentBackward)  # recorded nothing any more
    assert run.segments.tiers.plain and run.segments.tiers.work >= 16
    run(x * 2).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0, 2.0]
    large = graphc.compile(small_then(LARGE))
    assert large(graphc.ones(3)).tolist() == small_then(LARGE)(graphc.ones(3)).tolist()
    assert not large.segments.tiers.plain  # though what was recorded is small


def test_an_error_in_the_rest_of_a_first_call_leaves_no_recording() -> None:
    def function(x: Any) -> Any:
        if x.sum() > 0:
            x.add_(1)
            raise KeyError("the user's")
        return x

    run, x = graphc.compile(function), graphc.ones(3)
    with pytest.raises(KeyError, match="the user's"):
        run(x)
    assert x.tolist() == [2.0, 2.0, 2.0]
    assert local.trace is local.counted is local.nested is None
    assert run(-x).tolist() == [-2.0, -2.0, -2.0]


def test_a_compiled_function_in_the_rest_of_a_first_call_is_part_of_it() -> None:
    inner = graphc.compile(lambda x: x * 2 + 1)

    def function(x: Any) -> Any:
        return inner(x) if x.sum() > 0 else x

    run, x = graphc.compile(function), graphc.ones(3)
    assert run(x).tolist() == [3.0] * 3 and inner.compile_count == 0
    assert run(x).tolist() == [3.0] * 3 and inner.compile_count == 1  # plain eager code


def test_state_that_is_made_once_is_no_reason_for_plain_eager_code() -> None:
    class Holder:
        state: Any = None

    holder = Holder()

    def function(x: Any) -> Any:
        if holder.state is None:
            holder.state = [x * 2]  # a list that later calls have to find
        return x + 1

    run, x = graphc.compile(function), graphc.ones(3)
    assert not performance_warnings(lambda: [run(x) for _ in range(3)])
    assert run.segments is None and run.compile_count == 1


def test_the_start_of_the_compiler_is_paid_by_the_first_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(CompileCounter, "count", 0)
    one = Tiers()
    one.work = price(version_cost(4, differentiated=False))
    assert not one.affords(version_cost(4, differentiated=False))
    one.work = price(version_cost(4, differentiated=False) + FIRST)
    assert one.affords(version_cost(4, differentiated=False))
    one.pay(version_cost(4, differentiated=False))
    monkeypatch.setattr(CompileCounter, "count", 1)
    assert price(one.compiled) == one.work
    other = Tiers()
    other.work = price(version_cost(4, differentiated=False))
    assert other.affords(version_cost(4, differentiated=False))


def test_other_sizes_at_the_second_meeting_are_one_graph_for_all() -> None:
    def f(x: Any) -> Any:
        return (x * 2).sum().item() + float((x[1:] - x[:-1]).abs().sum().item())

    run = in_segments(f)
    for i in range(5):
        x = graphc.rand(LARGE + 64 * i)
        assert run(x) == pytest.approx(f(x), rel=1e-4)
    assert run.segments.compile_count == 2


def test_small_tensors_end_as_plain_eager_code_with_one_warning() -> None:
    run, x = graphc.compile(branching), graphc.ones(3)
    found = [performance_warnings(lambda: run(x)) for _ in range(2 * CALLS)]
    assert [len(f) for f in found] == [1] + [0] * (2 * CALLS - 1)
    text = found[0][0]
    assert "branching() runs as plain eager code" in text and "too small" in text
    assert "bool(tensor) at" in text and "test_segments_tiers.py:" in text and "Cure" in text
    before = CompileCounter.count
    assert run(x).tolist() == branching(x).tolist() and CompileCounter.count == before
    assert "later calls were plain eager code: its tensors are too small" in str(
        graphc.explain(run, x)
    )
    assert issubclass(graphc.PerformanceWarning, UserWarning)


def test_new_segments_at_each_call_end_as_plain_eager_code() -> None:
    counter = itertools.count(1)

    def growing(x: Any) -> Any:
        if x.sum() > 0:
            for _ in range(next(counter)):
                x = x * 1.01
        return x

    run, x = graphc.compile(growing), graphc.ones(LARGE)
    found = []
    while not found:
        found = performance_warnings(lambda: run(x))
    segments = run.segments
    assert "met for the first time" in found[0] and segments.calls == CALLS + 1
    assert next(counter) == segments.calls + segments.tiers.plain_calls + 1  # each call ran once


def test_a_function_whose_segments_become_steady_is_compiled_again() -> None:
    lengths = itertools.chain(range(1, 2 * CALLS), itertools.repeat(3))

    def settling(x: Any) -> Any:
        if x.sum() > 0:
            for _ in range(next(lengths)):
                x = x * 1.01
        return x

    run, x = in_segments(settling), graphc.ones(LARGE)
    found = performance_warnings(lambda: [run(x) for _ in range(CALLS + WAIT)])
    assert len(found) == 1 and run.segments.tiers.plain_calls == WAIT
    before = run.segments.compile_count
    assert not performance_warnings(lambda: [run(x) for _ in range(40)])
    assert run.segments.compile_count > before and not run.segments.tiers.plain
    expected = x * 1.01 * 1.01 * 1.01
    graphc.testing.assert_close(run(x), expected)


def test_a_function_that_does_not_change_is_judged_ever_less_often() -> None:
    run, x = graphc.compile(branching), graphc.ones(3)
    found = performance_warnings(lambda: [run(x) for _ in range(3 * CALLS + 3 * WAIT)])
    assert len(found) == 1 and run.segments.tiers.plain
    recorded = run.segments.calls
    assert recorded == 1 + 2  # it turned; after WAIT, after 2 * WAIT
    for _ in range(3 * WAIT):
        run(x)
    assert run.segments.calls == recorded and run.segments.compile_count == 0


def test_fullgraph_and_whole_functions_know_no_tiers() -> None:
    run = graphc.compile(lambda x: (x * 2).sum(), fullgraph=True)
    before = CompileCounter.count
    assert not performance_warnings(lambda: [run(graphc.ones(3)) for _ in range(12)])
    assert CompileCounter.count == before + 1 and run.segments is None


def training(size: int, calls: int) -> list[bytes]:
    graphc.manual_seed(5)
    net = nn.Sequential(nn.Linear(size, size), nn.Dropout(0.3), nn.ReLU(), nn.Linear(size, 4))
    opt = graphc.optim.Adam(net.parameters(), lr=0.01)

    def step(x: Any) -> Any:
        opt.zero_grad()
        y = net(x)
        loss = (y**2).mean() + y[y > 0].sum() * 0.01
        loss.backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        if norm > 0.5:
            loss = loss + 1
        opt.step()
        return loss

    run = graphc.compile(step)
    x = graphc.randn(size, size)
    found = [run(x).detach() for _ in range(calls)]
    return [t.detach().numpy().tobytes() for t in (*found, *net.parameters())]


@pytest.mark.parametrize("size", [8, 256])
def test_the_same_script_gives_the_same_bits(size: int) -> None:
    assert training(size, 7) == training(size, 7)


def test_the_tiers_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for mode in tiers.MODES:
        with monkeypatch.context() as patch:
            tiers.use(mode, patch)
            found.append([np.frombuffer(b, np.float32) for b in training(16, 6)])
    for values in zip(*found, strict=True):
        for other in values[1:]:
            np.testing.assert_allclose(other, values[0], rtol=2e-4, atol=2e-5)


def test_gradients_cross_tiers() -> None:
    def f(x: Any, w: Any) -> Any:
        a = (x * w).tanh()
        if a.sum() > 0:
            a = a * 2
        b = a + w
        b.max().item()
        return (b * b).mean(), b

    run = in_segments(f)
    for i in range(4):
        x = graphc.linspace(-1, 1, LARGE) * (i + 1)
        grads = []
        for function in (f, run):
            w = graphc.linspace(0, 1, LARGE).requires_grad_()
            loss, b = function(x, w)
            (loss + b.sum() * 1e-6).backward()
            grads.append(w.grad)
        graphc.testing.assert_close(grads[1], grads[0])
    assert run.segments.compile_count > 0 and run.segments.tiers.stepwise_runs > 0


def test_writes_that_exchange_memory() -> None:
    a, b = graphc.arange(6.0).reshape(2, 3), graphc.ones(2, 3)

    def f() -> float:
        kept = a.clone()
        a.copy_(b)
        b.copy_(kept)
        a[0] = b[1]
        return a.sum().item() + float(a.t()[0, 1])

    expected = f()
    a.copy_(graphc.arange(6.0).reshape(2, 3)), b.fill_(1)
    run = graphc.compile(f)
    assert run() == expected
    assert (a.tolist(), b.tolist()) == ([[3, 4, 5], [1, 1, 1]], [[0, 1, 2], [3, 4, 5]])


@pytest.mark.parametrize("mode", tiers.MODES)
def test_an_error_leaves_all_as_it_was(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tiers.use(mode, monkeypatch)
    table, total = graphc.arange(4.0), graphc.zeros(1)

    def f(i: Any) -> Any:
        total.item()
        total.add_(1)
        found = table[i]
        total.add_(found.sum())
        return found.sum().item()

    run = graphc.compile(f)
    for _ in range(3):
        assert run(graphc.tensor([1, 2])) == 3
        before = total.item()
        with pytest.raises(IndexError, match="index 9 is out of") as caught:
            run(graphc.tensor([1, 9]))
        assert run.segments.tiers.plain or "test_segments_tiers.py:" in str(caught.value)
        if not run.segments.tiers.plain:  # eager code is not undone
            assert total.item() == before


def test_a_known_recording_is_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tiers.use("second time", monkeypatch)
    net = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))

    def f(x: Any) -> Any:
        y = net(x)
        return y * 2 if y.sum().item() > 1e9 else y.softmax(1)

    run, x = graphc.compile(f), graphc.rand(3, 4)
    for _ in range(4):
        run(x)
    monkeypatch.setattr(driver, "Fingerprint", None)
    graphc.testing.assert_close(run(x), f(x))


def test_data_that_changes_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    tiers.use("second time", monkeypatch)
    numbers = itertools.count()

    def f(x: Any) -> Any:
        i = next(numbers)
        y = x * (0.5 * i) + graphc.tensor([i, i + 1.0])
        y.sum().item()
        return y * float(i)

    run, x = graphc.compile(f), graphc.ones(2)
    for i in range(8):
        assert run(x).tolist() == [1.5 * i * i, (1.5 * i + 1) * i]
    assert run.segments.compile_count <= 4
    kept = [n for n in run.segments.nodes.table.values() if n.op.name == "const"]
    assert all(n.attrs["value"].array.size == 1 for n in kept)  # data of one call is not kept


def test_drawn_numbers_that_steer_python_make_no_version_each() -> None:
    """Teacher forcing: which words come next is drawn, five times a call."""
    drawn = random.Random(0)

    def step(x: Any) -> Any:
        for _ in range(5):
            x = x * 2 if drawn.random() < 0.5 else x + 1
        return x

    compiled = graphc.compile(step)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", graphc.PerformanceWarning)
        found = [compiled(graphc.ones(2)).tolist() for _ in range(20)]
    drawn.seed(0)
    assert found == [step(graphc.ones(2)).tolist() for _ in range(20)]
    assert compiled.compile_count == 0
    assert any("steered its Python" in end.reason for end in compiled.segments.ends)


def test_one_drawn_number_may_steer_one_graph() -> None:
    drawn = random.Random(0)
    compiled = graphc.compile(lambda x: x * 2 if drawn.random() < 0.5 else x + 1)
    found = [compiled(graphc.zeros(2)).tolist()[0] for _ in range(20)]
    assert set(found) == {0.0, 1.0} and compiled.compile_count == 2


def test_a_sum_of_many_drawn_numbers_may_steer() -> None:
    """Expressions as deep as Python's stack is high."""
    drawn = random.Random(0)

    def step(x: Any) -> Any:
        total = 0.0
        for _ in range(3000):
            total = total + drawn.random()
        x = x * 2 if total > 1500 else x + 1
        return x + drawn.random()

    compiled = graphc.compile(step)
    found = [compiled(graphc.zeros(1)).tolist() for _ in range(3)]
    drawn.seed(0)
    assert found == [step(graphc.zeros(1)).tolist() for _ in range(3)]
