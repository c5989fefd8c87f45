"""Loops in functions that run in segments: what a scan repeats is counted as what it comes to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
import graphc.nn as nn
from graphc._higher_order_ops import cond, scan, while_loop
from graphc.engine.segments import tiers
from graphc.frontend.context import local
from graphc.frontend.eager_count import EagerCount
from graphc.ir.graph import Node
from graphc.ir.op import REGISTRY
from graphc.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

STEPS, SIZE = 50, 4 * tiers.NUMBERS


def scanned(x: Any, rows: Any) -> Any:
    return scan(lambda h, row: ((h * row).tanh(), h.exp()), x, rows)


def recorded(function: Callable[..., Any], *tensors: Any) -> list[Node]:
    """The nodes of a compiled function's graph as it was recorded."""
    run = graphc.compile(function)
    run(*tensors)
    (part,) = graphc.explain(run).parts
    return list(part.built.graph.nodes)


def counted(function: Callable[..., Any], *tensors: Any) -> EagerCount:
    """What a function runs in eager mode."""
    found = local.counted = EagerCount()
    try:
        function(*tensors)
    finally:
        local.counted = None
    return found


@pytest.mark.parametrize("op", REGISTRY.values(), ids=lambda op: op.name)
def test_an_operator_with_bodies_says_what_they_come_to(op: Any) -> None:
    assert (op.body_work is not None) == (bool(op.family == "control" or op.name == "fusion"))


def test_a_scan_is_as_much_work_as_its_steps() -> None:
    x, rows = graphc.rand(SIZE), graphc.rand(STEPS, SIZE)
    nodes = recorded(scanned, x, rows)
    work, moved = tiers.work(nodes)
    assert 3 * 4 * STEPS <= moved == work <= 3 * 8 * STEPS  # mul, tanh, exp move 4 NUMBERS each
    assert tiers.operators(nodes) == len(nodes) + 3
    eager = counted(scanned, x, rows)
    assert len(eager.ran) >= 3 * STEPS and len(eager.ran) - eager.again <= 9
    assert tiers.eager_work(eager.ran)[1] == pytest.approx(moved, rel=0.5)


def test_loops_in_loops_and_branches() -> None:
    def inner(x: Any) -> Any:
        return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x.sin()), (graphc.tensor(0), x))

    def function(x: Any, rows: Any) -> Any:
        def step(h: Any, row: Any) -> Any:
            h = cond(row.sum() > 0, lambda h: h.exp().cos(), lambda h: h.sin(), (h,))
            return inner(h)[1], h + 0

        return scan(step, x, rows)

    x, rows = graphc.rand(SIZE), graphc.rand(STEPS, 2)
    nodes = recorded(function, x, rows)
    _, moved = tiers.work(nodes)
    # the shorter branch, the loop once round, the sum, and one for each operator
    assert 3 * 4 * STEPS <= moved <= 3 * 4 * STEPS + 30 * STEPS
    eager = counted(function, x, rows)
    assert eager.demands == 0  # what decides branches and loops is no value that Python needs
    assert len(eager.ran) - eager.again <= 20 < 9 * STEPS <= len(eager.ran)


def logged(module: Any) -> Callable[..., Any]:
    """A training step that looks at its loss."""
    optimizer = graphc.optim.Adam(module.parameters(), lr=1e-3)
    losses: list[float] = []

    def step(x: Any, lengths: Any) -> float:
        optimizer.zero_grad()
        packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
        out, _ = pad_packed_sequence(module(packed)[0])
        loss = (out**2).mean()
        loss.backward()
        optimizer.step()
        losses.append(max(loss.item(), 0.0))  # a comparison needs the value
        return sum(losses)

    return step


@pytest.mark.filterwarnings("ignore::graphc.PerformanceWarning")
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_a_packed_step_that_logs_its_loss_is_compiled_soon(kind: Any) -> None:
    """Its steps are small and many: what is recorded once is run STEPS times."""
    results = []
    for compiled in (False, True):
        graphc.manual_seed(0)
        module = kind(16, 64, 2)
        step: Any = logged(module)
        if compiled:
            step = run = graphc.compile(step)
        graphc.manual_seed(1)
        calls = 16
        for i in range(calls):
            lengths = graphc.randint(2, STEPS + 1, (8,))
            lengths[i % 8] = STEPS
            last = step(graphc.randn(STEPS, 8, 16), lengths)
        results.append([last, *(p.detach().numpy() for p in module.parameters())])
    for have, want in zip(results[1], results[0], strict=True):
        np.testing.assert_allclose(have, want, rtol=2e-3, atol=2e-5)
    (known,) = run.segments.modules.used()
    assert known.calls >= calls - 8 and known.compiled.compile_count <= 2
