"""Code that runs while a recording does, and is none of it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import graphc


def test_the_collector_may_close_generators_during_a_recording() -> None:
    def numbers() -> Iterator[int]:
        try:
            yield 1
            yield 2
        finally:
            closed.append(1)

    def left() -> None:
        holder: list[Any] = [numbers()]
        next(holder[0])
        holder.append(holder)  # a cycle: the collector alone frees it

    closed: list[int] = []

    def function(x: Any) -> Any:
        for _ in range(40):
            x = x * 1.01 + 1
        return x

    threshold = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        for size in range(2, 6):
            left()
            run = graphc.compile(function)
            assert run(graphc.ones(size)).tolist() == function(graphc.ones(size)).tolist()
            assert run.segments is None
    finally:
        gc.set_threshold(*threshold)
    assert closed
