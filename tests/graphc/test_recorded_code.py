"""Code that runs while a recording does, and is none of it."""

from __future__ import annotations

import functools
import gc
import itertools
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

import graphc
from graphc import backends


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


def test_equal_results_are_tensors_of_their_own() -> None:
    @graphc.compile
    def both(x: Any) -> Any:
        return x * 2, x * 2, [x * 2]

    for _ in range(2):
        first, second, (third,) = both(graphc.ones(3))
        first.add_(1)
        assert second.tolist() == third.tolist() == [2, 2, 2]


def test_a_constant_of_one_size_is_no_constant_of_another_in_segments() -> None:
    source = itertools.cycle([1.0, 2.0, 3.0])

    @graphc.compile
    def scaled(x: Any) -> Any:
        return x.sum(0) * next(source)

    found = [scaled(graphc.ones(n, 2)).tolist() for n in (3, 3, 3, 1, 1, 1)]
    assert found == [[3, 3], [6, 6], [9, 9], [1, 1], [2, 2], [3, 3]]


def test_the_gradients_of_steps_go_through_segments() -> None:
    @graphc.compile
    def slope(x: Any) -> Any:
        y = graphc.sign(x) * 2
        bool(x.sum() > 0)
        return graphc.autograd.grad(y.sum(), x)

    assert slope(graphc.ones(3, requires_grad=True))[0].tolist() == [0, 0, 0]


def test_a_cache_is_asked_at_each_call_as_without_a_recording() -> None:
    made: list[int] = []

    @functools.lru_cache
    def table(n: int) -> Any:
        made.append(n)
        return graphc.arange(float(n))

    run = graphc.compile(lambda x: x + table(3))
    assert [run(graphc.ones(3)).tolist() for _ in range(3)] == [[1, 2, 3]] * 3
    assert made == [3] and run.segments is None
    table(3).add_(1)
    assert run(graphc.ones(3)).tolist() == [2, 3, 4]
    table.cache_clear()
    assert run(graphc.ones(3)).tolist() == [1, 2, 3] and made == [3, 3]


def test_guards_keep_no_object_of_the_user_alive() -> None:
    class Holder:
        scale = 2.0

    holder: Any = Holder()
    reference = weakref.ref(holder)
    run = graphc.compile(lambda x: x * (1.0 if reference() is None else reference().scale))
    assert run(graphc.ones(1)).item() == 2
    del holder
    gc.collect()
    assert reference() is None and run(graphc.ones(1)).item() == 1


def test_the_number_of_threads_reaches_the_pool() -> None:
    graphc.compile(lambda x: x + 1)(graphc.ones(2))
    before = graphc.get_num_threads()
    try:
        graphc.set_num_threads(before + 1)
        native: Any = backends.get("llvm")
        assert native._pool.threads == before + 1
    finally:
        graphc.set_num_threads(before)


def test_a_schedule_inside_the_step_compiles_no_more() -> None:
    layer = graphc.nn.Linear(3, 1)
    optimizer = graphc.optim.AdamW(layer.parameters(), lr=0.1)
    schedule = graphc.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)

    @graphc.compile
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = layer(x).square().sum()
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss

    for _ in range(5):
        step(graphc.ones(2, 3))
    assert step.segments is None and step.compile_count == 1


@pytest.mark.parametrize("same", ["none", "keys", "all"])
def test_attention_over_batches_first_is_one_graph(same: str) -> None:
    graphc.manual_seed(0)
    attend = graphc.nn.MultiheadAttention(8, 2, batch_first=True).eval()
    called = graphc.compile(attend)
    compiled = called._compiled_function
    for _ in range(3):
        query, key, value = (graphc.randn(2, 3, 8) for _ in range(3))
        if same != "none":
            value = key = query if same == "all" else key
        found, expected = called(query, key, value)[0], attend(query, key, value)[0]
        assert (found - expected).abs().max().item() < 1e-6
    assert compiled.segments is None and compiled.compile_count == 1
