"""Results of a loop that lie where a sequence is that nobody reads after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc as torch
import graphc.nn as nn
from graphc.backends.numpy import TABLE
from graphc.ir import interpret, ops
from graphc.ir.dim import evaluate
from graphc.ir.graph import Builder, Expr
from graphc.ir.kernel.interpret import run_program
from graphc.ir.types import TensorType

from .kernel_cases import build, check, compiled, dot, total
from .test_plan_control import body, native

ROWS, WIDTH = 40, 16
BYTES = 4 * ROWS * WIDTH * WIDTH  # of a sequence


def scanned(
    step: Callable[..., Any], h: Expr, x: Expr, w: Expr, reverse: bool
) -> tuple[Expr, Expr]:
    graph = body(step, h.shape, w.shape, x.shape[1:], env=h.builder.env)
    last, _, stacked = ops.scan(h, w, x, n_carried=2, reverse=reverse, graphs=(graph,))
    return last, stacked


def gates(h: Expr, w: Expr, row: Expr) -> Any:
    """The row is read where the result is written."""
    gate = dot(h, w) + row
    return ops.tanh(gate), w, gate


def before(h: Expr, w: Expr, row: Expr) -> Any:
    """The row is read by the step before the one that writes the result."""
    product = dot(ops.exp(row), w)
    return h + product, w, dot(product, w)


def operand(h: Expr, w: Expr, row: Expr) -> Any:
    """All of the row is read for each element of the result."""
    product = dot(row, w)
    return h + product, w, product


def behind(h: Expr, w: Expr, row: Expr) -> Any:
    """The row is read once more behind the step that writes the result."""
    gate = dot(h, w) + row
    return dot(gate, w) * row, w, gate


def turned(h: Expr, w: Expr, row: Expr) -> Any:
    """The row is read elsewhere than where the result is written."""
    return ops.tanh(h), w, dot(h, w) + ops.permute(row, dims=(1, 0))


def model(step: Callable[..., Any], reverse: bool = False, more: bool = False) -> Any:
    def function(h: Expr, x: Expr, w: Expr) -> Any:
        rows = ops.exp(ops.sin(x))
        last, stacked = scanned(step, h, rows, w, reverse)
        found = [last, total(ops.square(stacked), (0,))]
        return (*found, scanned(gates, h, rows, w, True)[0]) if more else tuple(found)

    return function


SHAPES = (WIDTH, WIDTH), (ROWS, WIDTH, WIDTH), (WIDTH, WIDTH)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("step", "blocks"), [
    (gates, 1), (before, 1), (operand, 2), (behind, 2), (turned, 2),
])
def test_a_result_takes_the_place_of_what_is_read_no_more(
    step: Any, blocks: int, reverse: bool
) -> None:
    graph = build(model(step, reverse), *SHAPES)
    size = check(graph).arena_bytes
    assert isinstance(size, int)
    assert size // BYTES == blocks
    rng = np.random.default_rng(0)
    inputs = [rng.random(shape, np.float32) / 9 for shape in SHAPES]
    want = interpret.evaluate(graph, inputs, TABLE)
    for got, right in zip(native(graph, inputs), want, strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-5)


def test_not_what_is_read_after_the_loop() -> None:
    size = check(build(model(gates, more=True), *SHAPES)).arena_bytes
    assert isinstance(size, int) and size // BYTES == 2


def test_not_what_the_graph_gives_or_is_given() -> None:
    def function(h: Expr, x: Expr, w: Expr) -> Any:
        rows = ops.exp(x)
        last, stacked = scanned(gates, h, rows, w, False)
        again, other = scanned(gates, last, x, w, False)
        return last, again, stacked, rows, total(other, (0,))

    check(build(function, *SHAPES))


def test_not_what_a_loop_hands_on_and_somebody_else_reads() -> None:
    """The second loop reads the sequence by the name that the first gives it."""
    def function(h: Expr, x: Expr, w: Expr) -> Any:
        rows = ops.exp(x)
        graph = body(lambda r, h, y: (r, ops.tanh(h + y)), rows.shape, h.shape, h.shape,
                     env=h.builder.env)
        kept, last = ops.scan(rows, h, x, n_carried=2, reverse=False, graphs=(graph,))
        end, stacked = scanned(gates, last, kept, w, False)
        return end, total(stacked, (0,)), total(rows * rows, (0,))

    check(build(function, *SHAPES))


def test_one_place_after_the_other() -> None:
    """Gradients lie where the gates were, which lie where the product was."""
    def function(h: Expr, x: Expr, w: Expr) -> Any:
        last, stacked = scanned(gates, h, ops.exp(ops.sin(x)), w, False)
        back, again = scanned(gates, last, stacked, w, True)
        return back, total(again, (0,))

    size = check(build(function, *SHAPES)).arena_bytes
    assert isinstance(size, int) and size // BYTES == 1


def test_any_number_of_rows() -> None:
    builder = Builder()
    count = builder.env.new("rows", 5)
    h, x, w = (
        Expr(builder, builder.input(TensorType(torch.float32, shape)))
        for shape in ((4, 4), (count, 4, 4), (4, 4))
    )
    graph = builder.build([value.node for value in model(gates)(h, x, w)])
    program = compiled(graph)
    assert evaluate(program.arena_bytes, {"rows": 1000, **dict.fromkeys(program.dims, 1000)}) < 7e4
    for rows in (1, 2, 7):
        rng = np.random.default_rng(rows)
        inputs = [rng.random(shape, np.float32) for shape in ((4, 4), (rows, 4, 4), (4, 4))]
        want = interpret.evaluate(graph, inputs, TABLE, dict.fromkeys(graph.env.hints, rows))
        for got in run_program(program, inputs, TABLE), native(graph, inputs, (rows,)):
            for a, b in zip(got, want, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5)


@pytest.mark.parametrize("kind", [
    "RNN", pytest.param("GRU", marks=pytest.mark.slow), pytest.param("LSTM", marks=pytest.mark.slow)
])
def test_a_recurrent_layers_step(kind: str) -> None:
    def run(backend: str) -> list[np.ndarray]:
        torch.manual_seed(0)
        net = getattr(nn, kind)(24, 64, bidirectional=True)
        x = torch.randn(50, 8, 24)

        @torch.compile(backend=backend)
        def step() -> None:
            net.zero_grad()
            net(x)[0].square().sum().backward()

        for _ in range(2):
            step()
        return [p.grad.numpy() for p in net.parameters()]

    for ours, eager in zip(run("llvm"), run("eager"), strict=True):
        np.testing.assert_allclose(ours, eager, rtol=1e-3, atol=1e-3)
