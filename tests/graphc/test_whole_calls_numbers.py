"""What calls that native code makes as a whole know of the last one: run-time numbers, places."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
import weakref
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

import graphc as torch
import graphc.nn.functional as F
from graphc import nn
from graphc.backends.host import entry_words as kinds
from graphc.engine.version import shortcut

pytestmark = [
    pytest.mark.usefixtures("only_the_cpu", "nothing_before"),
    pytest.mark.skipif(
        shortcut.native_code() is None, reason="objects of this Python are not laid out as expected"
    ),
]


def _sgd(parameters: Any) -> Any:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def _adam(parameters: Any) -> Any:
    return torch.optim.Adam(parameters, lr=0.01)


def _trained(compiled: bool, optimizer_of: Callable[[Any], Any] = _sgd) -> tuple[Any, Any, Any]:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    optimizer = optimizer_of(model.parameters())

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return torch.compile(step) if compiled else step, model, optimizer


X, Y = torch.arange(24.0).reshape(4, 6).sin(), torch.tensor([0, 2, 1, 1])


def _both(optimizer_of: Callable[[Any], Any] = _sgd) -> list[tuple[Any, Any, Any]]:
    """A compiled step that native code makes by itself, and the same in eager mode."""
    both = [_trained(True, optimizer_of), _trained(False, optimizer_of)]
    for _ in range(12):  # gradients have to have memory first
        _run(both)
        if _native(both[0][0]):
            break
    assert both[0][0]._versions.direct is not None
    return both


def _run(both: list[tuple[Any, Any, Any]], count: int = 1) -> None:
    for _ in range(count):
        losses = [step(X, Y) for step, *_ in both]
        assert torch.allclose(*losses, atol=1e-6) and losses[0].requires_grad
        del losses
        gc.collect()  # what eager mode has saved for a backward is asked by writes
    for mine, wanted in zip(both[0][1].parameters(), both[1][1].parameters(), strict=True):
        assert torch.allclose(mine, wanted, atol=1e-6)


def _set(both: list[tuple[Any, Any, Any]], key: str, value: Any) -> None:
    for *_, optimizer in both:
        optimizer.param_groups[0][key] = value


def _native(step: Any) -> int:
    return int(step.newest.native_calls.value)


@pytest.mark.parametrize("optimizer_of", [_sgd, _adam])
def test_nothing_is_left_to_python(
    optimizer_of: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    both = _both(optimizer_of)
    step = both[0][0]

    def unasked(*args: Any) -> Any:
        raise AssertionError("Python is asked")

    count = _native(step)
    with monkeypatch.context() as patch:
        patch.setattr(shortcut.Shortcut, "run", unasked)
        _run(both, 3)
    assert _native(step) == count + 3
    with pytest.raises(RuntimeError, match="second time"):
        step(X, Y).backward()


def test_each_rate_is_read() -> None:
    both = _both()
    step, count = both[0][0], _native(both[0][0])
    rates = [0.1 / (i + 2) for i in range(4)]
    for rate in (*rates, *rates[::-1], rates[0], rates[0], 0.0, float("0.05")):
        _set(both, "lr", rate)
        _run(both)
    _set(both, "momentum", 0.5)
    _run(both, 2)
    assert _native(step) == count + 14
    _set(both, "lr", 1)  # of another type
    _run(both, 3)


def test_a_rate_that_the_long_way_has_read_meanwhile() -> None:
    """Arrays of numbers live as long as native code knows them."""
    both = _both()
    step, (first, second) = both[0][0], (0.03 + 0.0 * i for i in (1, 2))
    second += 0.01
    for rate in (first, second, first, first, second, first):
        _set(both, "lr", rate)
        if rate is second:  # as a second thread would find it
            whole = step._versions.direct._whole
            assert whole.take()
            _run(both)
            whole.give_back()
        else:
            _run(both)
    _run(both, 2)


def test_items_of_tuples_and_lists() -> None:
    both = _both(_adam)
    for betas in ((0.8, 0.99), (0.8, 0.98), [0.7, 0.99], (0.6, 0.99)):
        for *_, optimizer in both:
            optimizer.param_groups[0]["betas"] = type(betas)(betas)
        _run(both, 2)


def test_a_schedule() -> None:
    both = _both()
    schedules = [torch.optim.lr_scheduler.ExponentialLR(each[2], 0.9) for each in both]
    for _ in range(4):
        _run(both, 2)
        for schedule in schedules:
            schedule.step()


def test_numbers_are_let_go() -> None:
    step, model, optimizer = _both()[0]
    rate = optimizer.param_groups[0]["lr"] = 0.25 + 1e-9 * len(X)
    before = sys.getrefcount(rate)
    for _ in range(20):
        step(X, Y)
    known = sys.getrefcount(rate)
    assert known > before
    for _ in range(20):
        step(X, Y)
    assert sys.getrefcount(rate) == known
    optimizer.param_groups[0]["lr"] = 0.125
    step(X, Y)
    assert sys.getrefcount(rate) < before
    gone = weakref.ref(step._versions.direct), weakref.ref(optimizer.param_groups[0])
    step.reset()
    del step, model, optimizer
    gc.collect()
    assert [each() for each in gone] == [None, None]


def test_threads_that_set_rates() -> None:
    """Each call has one of the rates, whoever else is about."""
    weight = nn.Parameter(torch.zeros(2000))
    optimizer = torch.optim.SGD([weight], lr=1.0)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        (weight * x).sum().backward()
        optimizer.step()

    compiled, x, ends = torch.compile(step), torch.ones(2000), threading.Event()
    for _ in range(4):
        compiled(x)

    def change() -> None:
        rates = [float(i) for i in (1, 2, 4)]
        while not ends.is_set():
            for rate in rates:
                optimizer.param_groups[0]["lr"] = rate

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(300):
            before = weight.detach().clone()
            compiled(x)
            moved = (before - weight.detach()).unique().tolist()
            assert len(moved) == 1 and moved[0] in (1.0, 2.0, 4.0)
    finally:
        ends.set()
        thread.join()


def _hints(entry: Any) -> list[tuple[Any, list[int]]]:
    """The tensor of each entry, and of each gradient, with where a call has found it."""
    table = (ctypes.c_int64 * len(kinds.TABLE)).from_address(entry.table)
    at = dict(zip(kinds.TABLE, table, strict=True))
    found: list[tuple[Any, list[int]]] = []
    rows = (ctypes.c_int64 * (8 * at["count"])).from_address(at["entries"])
    for i in range(0, len(rows), 8):
        if rows[i] == kinds.TENSOR and rows[i + 1] < 0:
            of = ctypes.cast(rows[i + 2], ctypes.py_object).value
            found.append((of._grad if rows[i + 6] & kinds.OF_GRAD else of, rows[i + 7]))
    rows = (ctypes.c_int64 * (8 * at["graded"])).from_address(at["grads"])
    found += [(None, rows[i + 7]) for i in range(0, len(rows), 8)]
    return [(of, (ctypes.c_int64 * kinds.HINTS).from_address(place)) for of, place in found]


def test_calls_know_where_the_last_one_has_found_tensors() -> None:
    both = _both()
    entry = both[0][0]._versions.shortcuts[0].entry
    _run(both)
    hints = _hints(entry)
    places = sorted(ctypes.addressof(row) for _, row in hints)
    assert all(b - a >= 8 * kinds.HINTS for a, b in pairwise(places))
    named = [(of, row) for of, row in hints if of is not None]
    assert len(named) > 6 and len(hints) == len(named) + 4
    for of, row in named:
        assert row[0] == id(of) and row[2] == id(of._graphc_array)
        assert row[4] == id(of._graphc_storage)
    for of, row in hints:
        assert of is not None or row[2] > 0
    count = _native(both[0][0])
    for rubbish in (0, 8, -1, 1 << 60):  # what they name may be gone: nobody reads it
        for _, row in hints:
            row[:] = [rubbish] * kinds.HINTS
        _run(both)
    assert _native(both[0][0]) == count + 4
