"""Threads that draw from one generator: together what one thread would draw, no number twice."""

from __future__ import annotations

import copy
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import graphc as torch
from graphc.frontend.random_state import Generator, default_generator, turns_of
from graphc.frontend.values import Eager
from graphc.nn import functional as F

_THREADS, _CALLS = 6, 30
f64 = torch.float64


@pytest.fixture(autouse=True)
def often() -> Iterator[None]:
    """Threads are switched as often as Python can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def at_once(*functions: Callable[[], Any]) -> list[Any]:
    """What each gives in a thread of its own; raises what the first of them raises."""
    found: list[Any] = [None] * len(functions)
    errors: list[BaseException] = []
    begin = threading.Barrier(len(functions))

    def run(number: int) -> None:
        begin.wait()
        try:
            found[number] = functions[number]()
        except BaseException as error:  # to the thread that asks
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return found


def joined(lists: list[list[Any]]) -> list[Any]:
    return [value for each in lists for value in each]


def are_of_one_stream(draw: Callable[[], Any], threads: int = _THREADS) -> None:
    """Threads share out the results that one thread draws."""
    def several() -> list[Any]:
        return [draw().tolist() for _ in range(_CALLS)]

    torch.manual_seed(7)
    wanted = sorted(x for _ in range(threads) for x in several())
    torch.manual_seed(7)
    assert sorted(joined(at_once(*[several] * threads))) == wanted


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("draw", [
    lambda: torch.rand(2, dtype=f64), lambda: torch.rand(1000, dtype=f64), lambda: torch.randn(3),
    lambda: torch.randn(16), lambda: torch.randn(3000), lambda: torch.randint(0, 2**62, (5,)),
    lambda: torch.randint(0, 2**62, (1500,)), lambda: torch.randperm(40),
    lambda: F.dropout(torch.ones(200), 0.4), lambda: torch.bernoulli(torch.full((300,), 0.3)),
    lambda: torch.empty(1200).uniform_(2, 3), lambda: torch.empty(30).normal_(1, 2),
    lambda: torch.empty(40).exponential_(), lambda: torch.multinomial(torch.ones(30), 9),
])
def test_threads_share_out_one_stream(
    draw: Callable[[], Any], native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not native:  # as while a backward waits that reads memory
        monkeypatch.setattr(Eager, "drawer", staticmethod(lambda *_: None))
        monkeypatch.setattr(Eager, "between", staticmethod(lambda *_: None))
    are_of_one_stream(draw)


@pytest.mark.parametrize("count", [2, 1000])
def test_so_do_those_that_run_compiled_code(count: int) -> None:
    compiled = torch.compile(lambda x: x * torch.rand(count, dtype=f64))
    x = torch.ones(count, dtype=f64)
    for _ in range(6):  # until native code asks the guards
        compiled(x)
    are_of_one_stream(lambda: compiled(x))


@pytest.mark.parametrize("count", [2, 1000])
def test_compiled_code_and_eager_mode_draw_different_numbers(count: int) -> None:
    compiled = torch.compile(lambda x: x * torch.rand(count, dtype=f64))
    x = torch.ones(count, dtype=f64)
    compiled(x)
    found = at_once(*[
        lambda f=f: [n for _ in range(_CALLS) for n in f().tolist()]
        for f in (lambda: compiled(x), lambda: torch.rand(count, dtype=f64)) for _ in range(3)
    ])
    numbers = joined(found)
    assert len(set(numbers)) == len(numbers) == 6 * _CALLS * count


@pytest.mark.filterwarnings("ignore::graphc.PerformanceWarning")
def test_so_do_segments() -> None:
    def function(x: Any) -> Any:
        first = x * torch.rand(1000, dtype=f64)
        return first + torch.rand(1000, dtype=f64) if float(first.sum()) > -1 else first

    compiled = torch.compile(function)
    x = torch.ones(1000, dtype=f64)
    compiled(x)
    found = at_once(*[lambda: [n for _ in range(9) for n in compiled(x).tolist()]] * _THREADS)
    numbers = joined(found)
    assert len(set(numbers)) == len(numbers)


def test_a_gradient_is_of_the_numbers_that_its_own_call_drew() -> None:
    compiled = torch.compile(lambda x: F.dropout(x * x, 0.5))

    def check() -> None:
        for _ in range(_CALLS):
            x = torch.ones(500, requires_grad=True)
            y = compiled(x)
            y.sum().backward()
            assert x.grad is not None and x.grad.tolist() == (2 * y).tolist()

    check()
    at_once(*[check] * _THREADS)


def test_the_first_draws_of_an_unseeded_generator() -> None:
    for _ in range(20):
        generator = Generator()
        found = at_once(*[
            lambda g=generator: torch.rand(4, dtype=f64, generator=g).tolist()
        ] * _THREADS)
        assert len({x for each in found for x in each}) == 4 * _THREADS


def test_states_are_whole() -> None:
    """Whatever other threads do to the stream, a state is one of a stream that somebody began."""
    torch.manual_seed(11)
    known = set()
    for seed in (1, 2, 3):
        torch.manual_seed(seed)
        for _ in range(12 * _CALLS * 2 + 1):
            known.add(default_generator.get_state().numpy().tobytes())
            torch.rand(100, dtype=f64)  # 200 words
    torch.manual_seed(1)

    def draws() -> None:
        for _ in range(_CALLS):
            torch.rand(100, dtype=f64)
            torch.randint(0, 2**62, (100,))

    def seeds() -> None:
        for i in range(_CALLS):
            torch.manual_seed(1 + i % 3)

    def reads() -> list[bytes]:
        return [torch.get_rng_state().numpy().tobytes() for _ in range(_CALLS)]

    def sets() -> None:
        for _ in range(_CALLS):
            torch.set_rng_state(torch.get_rng_state())
            with torch.random.fork_rng():
                torch.rand(100, dtype=f64)

    found = at_once(draws, draws, seeds, reads, reads, sets)
    for states in (found[3], found[4], [torch.get_rng_state().numpy().tobytes()]):
        assert known.issuperset(states)


def test_shallow_copies_share_a_turn() -> None:
    generator = torch.Generator().manual_seed(3)
    twin, other = copy.copy(generator), copy.deepcopy(generator)
    assert twin.turn is generator.turn and other.turn is not generator.turn
    both = [generator.state._graphc_array, other.state._graphc_array, twin.state._graphc_array]
    with turns_of(both):
        assert at_once(lambda: generator.turn.acquire(blocking=False)) == [False]
        assert at_once(lambda: other.turn.acquire(blocking=False)) == [False]
    assert at_once(lambda: other.turn.acquire(blocking=False)) == [True]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_draws_though_another_thread_was_drawing() -> None:
    drawing, over = threading.Event(), threading.Event()

    def hold() -> None:
        with default_generator.turn:
            drawing.set()
            over.wait()

    thread = threading.Thread(target=hold)
    torch.rand(1)
    thread.start()
    assert drawing.wait(60)
    child = os.fork()
    if child == 0:
        free = default_generator.turn.acquire(blocking=False)
        os._exit(0 if free and torch.rand(3).shape == (3,) else 1)
    over.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
