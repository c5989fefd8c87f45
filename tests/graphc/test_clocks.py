"""Durations that a compiled function logs are those of its calls."""

from __future__ import annotations

import itertools
import time
from typing import Any

import graphc as torch


def run(function: Any, calls: int = 5) -> Any:
    """Call it compiled; gives the compiled function."""
    compiled = torch.compile(function)
    for _ in range(calls):
        compiled(torch.ones(200, 200))
        time.sleep(0.01)
    return compiled


def test_the_duration_of_a_call() -> None:
    log: list[float] = []

    def step(x: torch.Tensor) -> torch.Tensor:
        start = time.perf_counter()
        y = x
        for _ in range(20):
            y = (y @ x) / 200
        log.append(time.perf_counter() - start)
        return y

    compiled = torch.compile(step)
    x = torch.ones(200, 200)
    shares = []
    for _ in range(6):
        before = time.perf_counter()
        compiled(x)
        shares.append(log[-1] / (time.perf_counter() - before))
    # most of a call but the first is what it computes; another process may stop any of them
    assert max(shares) <= 1 and max(shares[1:]) > 1 / 5
    assert compiled.segments is None and compiled.compile_count == 1


def test_times_of_day_and_texts(capsys: Any) -> None:
    log: list[int] = []

    def step(x: torch.Tensor) -> torch.Tensor:
        start = time.time()
        y = x.sum()
        print(f"took {time.time() - start:.3f} s")
        log.append(time.time_ns())
        return y

    before = time.time_ns()
    compiled = run(step)
    assert compiled.segments is None
    assert log == sorted(set(log)) and before <= log[0] and log[-1] <= time.time_ns()
    assert min(b - a for a, b in itertools.pairwise(log)) > 5_000_000  # between the calls
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5 and all(0 <= float(line.split()[1]) < 5 for line in lines)


def test_parts_of_a_call_and_decisions_run_in_segments() -> None:
    log: list[tuple[float, float]] = []
    last = [time.time()]

    def parts(x: torch.Tensor) -> torch.Tensor:
        start = time.perf_counter()
        y = x @ x
        middle = time.perf_counter()
        z = y.sum()
        log.append((middle - start, time.perf_counter() - middle))
        return z

    def ticks(x: torch.Tensor) -> torch.Tensor:
        y = x.sum()
        if time.time() - last[0] > 0.025:
            last[0] = time.time()
            log.append((0.0, 0.0))
        return y

    assert run(parts).segments is not None
    assert all(first > 0 and second > 0 for first, second in log)
    log.clear()
    assert run(ticks, 12).segments is not None
    assert 2 <= len(log) <= 8
