"""Programs with loops and branches: where carried values live, what a row is, what can fail."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import graphc
from graphc._higher_order_ops import cond, scan, while_loop
from graphc.backends.llvm.executable import Executable
from graphc.backends.numpy import TABLE
from graphc.config import VALUES, Config
from graphc.engine import pipeline
from graphc.ir import dtypes, interpret, ops
from graphc.ir.graph import Builder, Expr, Graph
from graphc.ir.kernel import Branch, Launch, Repeat, Routine, leaves
from graphc.ir.kernel.interpret import CheckFailed, run_program
from graphc.ir.kernel.program_text import print_program
from graphc.ir.types import TensorType

from .kernel_cases import arrays, build, check, compiled, i64, total

QUIET = Config()._replace(cache_dir=None, check=0, threads=1, debug=0, dump=None)


def body(function: Callable[..., Any], *inputs: Any, env: Any = None) -> Graph:
    """The sub-graph of a function of values of these shapes (f32) or types."""
    builder = Builder(env)
    values = [
        Expr(builder, builder.input(x if isinstance(x, TensorType) else TensorType(dtypes.f32, x)))
        for x in inputs
    ]
    results = function(*values)
    results = results if isinstance(results, tuple) else (results,)
    return builder.build([r.node for r in results], "body")


def scan_of(step: Graph, carry: Expr, rows: Expr, reverse: bool = False) -> Any:
    return ops.scan(carry, rows, n_carried=1, reverse=reverse, graphs=(step,))


def scanned(h: Expr, w: Expr, x: Expr) -> tuple[Expr, Expr]:
    """h = tanh(h * w + x[t]) for every row of x, and all of them; w stays the same."""
    step = body(
        lambda h, w, x: (ops.tanh(h * w + x), w, ops.tanh(h * w + x)),
        h.shape, w.shape, x.shape[1:], env=h.builder.env,
    )
    last, _, stacked = ops.scan(h, w, x, n_carried=2, reverse=False, graphs=(step,))
    return last, stacked


def test_a_scan_is_a_loop_over_rows() -> None:
    program = check(build(scanned, (8,), (8,), (5, 8)))
    assert print_program(program) == """program graph, arena 0 B
  mul_add_tanh a0=in0 a1=in1 a2=in2 o0=out1 n=8
  repeat i1 < 4
    mul_add_tanh a0=out1 + 32*i1 a1=in1 a2=in2 + (32*i1 + 32) o0=out1 + (32*i1 + 32) n=8
  copy a0=out1 + 128 o0=out0 n=8
"""


def leaving(h: Expr, c: Expr, x: Expr, reverse: bool = False, both: bool = False) -> Any:
    """Two carried values, and of them rows that leave the graph: what steps begin with, and where
    `both`, of one what they end with too."""

    def after(h: Expr, c: Expr, x: Expr) -> Any:
        found = ops.tanh(h + x), c * h, h, c
        return (*found, found[0]) if both else found

    step = body(after, (8,), (8,), (8,), env=h.builder.env)
    return ops.scan(h, c, x, n_carried=2, reverse=reverse, graphs=(step,))


def test_of_what_steps_begin_with_the_last_step_stands_apart() -> None:
    program = check(build(leaving, (8,), (8,), (5, 8)))
    assert print_program(program) == """program graph, arena 0 B
  copy a0=in0 o0=out2 n=8
  copy a0=in1 o0=out3 n=8
  repeat i1 < 4
    add_tanh a0=out2 + 32*i1 a1=in2 + 32*i1 o0=out2 + (32*i1 + 32) n=8
    mul a0=out3 + 32*i1 a1=out2 + 32*i1 o0=out3 + (32*i1 + 32) n=8
  add_tanh a0=out2 + 128 a1=in2 + 128 o0=out0 n=8
  mul a0=out3 + 128 a1=out2 + 128 o0=out1 n=8
"""


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("rows", [0, 1, 2, 5, None])
def test_rows_that_leave_the_graph(reverse: bool, both: bool, rows: int | None) -> None:
    builder = Builder()
    length = builder.env.new("rows", 5) if rows is None else rows
    h, c, x = (
        Expr(builder, builder.input(TensorType(dtypes.f32, shape)))
        for shape in ((8,), (8,), (length, 8))
    )
    graph = builder.build([value.node for value in leaving(h, c, x, reverse, both)])
    program = compiled(graph)
    copies = [s for s in leaves(program.steps) if isinstance(s, Launch) and s.ops == ("copy",)]
    if rows != 0:
        assert len(copies) <= 2 + 2 * both  # beginnings; in the loop, and in the step apart
    for count in (1, 2, 7) if rows is None else (rows,):
        inputs = [np.random.default_rng(0).random(s, np.float32) for s in ((8,), (8,), (count, 8))]
        dims = (count,) if rows is None else ()
        want = interpret.evaluate(graph, inputs, TABLE, dict.fromkeys(graph.env.hints, count))
        for got in run_program(program, inputs, TABLE), native(graph, inputs, dims):
            for a, b in zip(got, want, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-6)


def test_the_number_of_rows_may_be_a_named_dim() -> None:
    builder = Builder()
    rows = builder.env.new("rows", 5)
    h, w, x = (
        Expr(builder, builder.input(TensorType(dtypes.f32, shape)))
        for shape in ((8,), (8,), (rows, 8))
    )
    graph = builder.build([value.node for value in scanned(h, w, x)])
    program = compiled(graph)
    (loop,) = [s for s in program.steps if isinstance(s, Repeat)]
    assert loop.count == rows - 1  # the first stands apart
    for count in (1, 2, 7):
        inputs = [np.random.default_rng(0).random(s, np.float32) for s in ((8,), (8,), (count, 8))]
        want = interpret.evaluate(graph, inputs, TABLE, {"rows": count})
        for got in run_program(program, inputs, TABLE), native(graph, inputs, [count]):
            for a, b in zip(got, want, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-6)


def trailed(h: Expr, x: Expr, reverse: bool = False) -> tuple[Expr, Expr, Expr]:
    """h = tanh(h + x[t]); what is read of it later: the last one, and what steps begin and end
    with, by a routine each."""
    after = body(
        lambda h, x: (ops.tanh(h + x), h, ops.tanh(h + x)), h.shape, x.shape[1:], env=h.builder.env
    )
    last, began, ended = ops.scan(h, x, n_carried=1, reverse=reverse, graphs=(after,))
    first, second = (
        ops.sort(rows, dim=1, descending=False, stable=True)[0] for rows in (began, ended)
    )
    return last * 2.0, first, second


def test_what_steps_begin_and_end_with_is_stacked_without_copies() -> None:
    program = check(build(trailed, (8,), (5, 8)))
    assert print_program(program) == """program graph, arena 512 B
  copy a0=in0 o0=arena + 320 n=8
  repeat i1 < 5
    add_tanh a0=arena + (32*i1 + 320) a1=in1 + 32*i1 o0=arena + (32*i1 + 352) n=8
  mul a0=arena + 480 o0=out0 n=8
  call sort arena + 320 -> out1, arena
  call sort arena + 352 -> out2, arena
"""


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("rows", [5, None])
def test_rows_of_a_carried_value_in_either_direction(reverse: bool, rows: int | None) -> None:
    builder = Builder()
    length = rows or builder.env.new("rows", 5)
    h, x = (
        Expr(builder, builder.input(TensorType(dtypes.f32, shape))) for shape in ((8,), (length, 8))
    )
    graph = builder.build([value.node for value in trailed(h, x, reverse)])
    program = compiled(graph)
    (loop,) = [s for s in program.steps if isinstance(s, Repeat)]
    assert len(loop.steps) == 1
    for count in (rows,) if rows else (1, 2, 7):
        inputs = [np.random.default_rng(0).random(s, np.float32) for s in ((8,), (count, 8))]
        dims = () if rows else (count,)
        want = interpret.evaluate(graph, inputs, TABLE, dict.fromkeys(graph.env.hints, count))
        for got in run_program(program, inputs, TABLE), native(graph, inputs, dims):
            for a, b in zip(got, want, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-6)


def taken(x: Expr, *region: tuple[int, int], steps: int = 1) -> Expr:
    starts, stops = zip(*region, strict=True)
    return ops.slice(x, starts=starts, stops=stops, steps=(steps,) * len(region))


def test_slices_of_whole_rows_are_parts_of_what_they_are_taken_of() -> None:
    """What a scan begins with and runs over, and what a routine reads of the rows it stacks."""
    def function(h: Expr, x: Expr) -> Any:
        begin = ops.reshape(taken(h, (1, 2), (0, 8)), shape=(8,))
        last, rows, _ = trailed(begin, taken(x, (2, 7), (0, 8)))
        return last, ops.sort(taken(rows, (1, 3), (0, 8)), dim=0, descending=False, stable=True)[0]

    graph = build(function, (2, 8), (8, 8))
    program = check(graph)
    assert print_program(program) == """program graph, arena 704 B
  copy a0=in0 + 32 o0=arena + 320 n=8
  repeat i1 < 5
    add_tanh a0=arena + (32*i1 + 320) a1=in1 + (32*i1 + 64) o0=arena + (32*i1 + 352) n=8
  mul a0=arena + 480 o0=out0 n=8
  call sort arena + 320 -> arena + 512, arena
  call sort arena + 544 -> out1, arena
"""
    inputs = arrays(graph)
    want = interpret.evaluate(graph, inputs, TABLE)
    for got in run_program(program, inputs, TABLE), native(graph, inputs):
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("region", [((0, 4), (1, 3)), ((1, 4), (0, 1))])
def test_other_slices_are_copies(region: Any) -> None:
    def function(x: Expr) -> Any:
        return ops.sort(taken(x, *region), dim=0, descending=False, stable=True)[0]

    (first, _) = check(build(function, (4, 6))).steps
    assert isinstance(first, Launch) and first.ops == ("slice",)


def test_of_an_input_that_is_written_to_a_slice_is_a_copy() -> None:
    """The routine reads it as it was before."""
    def function(x: Expr) -> Any:
        rows = ops.sort(taken(x, (1, 3), (0, 8)), dim=1, descending=False, stable=True)[0]
        return rows, x * 2.0

    graph = build(function, (4, 8))
    first = check(graph, mutated={1: 0}).steps[0]
    assert isinstance(first, Launch) and first.ops == ("slice",)


def test_values_that_end_alike_have_rows_of_their_own() -> None:
    """Two carried values with one new value: only one of them is what is stacked."""
    after = body(lambda a, b, x: (a + x, a + x, a * b, a + x), (4,), (4,), (4,))

    def function(a: Expr, b: Expr, x: Expr) -> Any:
        one, other, products, sums = ops.scan(
            a, b, x, n_carried=2, reverse=False, graphs=(after,)
        )
        return ops.sort(sums, dim=1, descending=False, stable=True)[0], products, one * other

    graph = build(function, (4,), (4,), (3, 4))
    inputs = arrays(graph)
    want = interpret.evaluate(graph, inputs, TABLE)
    for got in run_program(check(graph), inputs, TABLE), native(graph, inputs):
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)


def native(graph: Graph, inputs: Sequence[Any], dims: Sequence[int] = ()) -> list[Any]:
    """The outputs of native code."""
    built = pipeline.build(graph, config=QUIET)
    env = dict(zip(built.program.dims, dims, strict=True))
    outputs = [np.empty_like(x) for x in interpret.evaluate(graph, list(inputs), TABLE, env)]
    built.run(inputs, outputs, dims)
    return outputs


def test_values_that_change_places_keep_their_own_buffers() -> None:
    turn = body(lambda n, a, b, c: (n - 1, b, c, a), TensorType(i64, ()), (3,), (3,), (3,))
    test = body(lambda n, a, b, c: ops.gt(n, 0), TensorType(i64, ()), (3,), (3,), (3,))

    def turned(n: Expr, *values: Expr) -> Any:
        return ops.while_loop(n, *values, graphs=(test, turn))[1:]

    graph = build(turned, (i64, ()), (3,), (3,), (3,))
    program = compiled(graph)
    for count in range(5):
        inputs = [np.array(count), *(np.full(3, i, np.float32) for i in range(3))]
        want = [(i + count) % 3 for i in range(3)]
        for got in run_program(program, inputs, TABLE), native(graph, inputs):
            assert [int(x[0]) for x in got] == want


def test_the_arms_of_a_branch_share_their_scratch() -> None:
    def sort(x: Expr, dim: int) -> Expr:
        return ops.sort(x, dim=dim, descending=False, stable=True)[0]

    many = body(lambda x: sort(total(x, (1,)), 0), (64, 4))
    plain = body(lambda x: total(sort(x, 1), (1,)), (64, 4))

    def chosen(p: Expr, x: Expr) -> Any:
        return ops.cond(ops.gt(p, 0), x, graphs=(many, plain))

    graph = build(chosen, (i64, ()), (64, 4))
    program = compiled(graph)
    (branch,) = [s for s in program.steps if isinstance(s, Branch)]
    assert len(branch.then) == len(branch.otherwise) == 2
    assert program.arena_bytes == 64 + 64 * 4 * (4 + 8)  # the flag, and the larger arm
    x = arrays(graph)[1]
    for p in (0, 1):
        want = interpret.evaluate(graph, [np.array(p), x], TABLE)
        got = native(graph, [np.array(p), x])
        np.testing.assert_allclose(got[0], want[0], rtol=1e-6, atol=1e-6)


def test_a_loop_in_a_loop_has_a_variable_of_its_own() -> None:
    inner = body(lambda c, x: (c + x, c * x), (4,), (4,))

    def outer_body(c: Expr, x: Expr) -> Any:
        last, rows = scan_of(inner, c, x)
        again, more = scan_of(inner, last, x, reverse=True)
        return again, rows + more

    outer = body(outer_body, (4,), (3, 4))
    graph = build(lambda c, x: scan_of(outer, c, x), (4,), (2, 3, 4))
    program = check(graph)
    (loop,) = [s for s in program.steps if isinstance(s, Repeat)]
    assert loop.var == "i2"
    assert [s.var for s in loop.steps if isinstance(s, Repeat)] == ["i1", "i1"]
    inputs = arrays(graph)
    for got, want in zip(
        native(graph, inputs), interpret.evaluate(graph, inputs, TABLE), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_routines_run_inside_loops() -> None:
    step = body(
        lambda c, x: (ops.sort(c + x, dim=0, descending=False, stable=True)[0], c), (6,), (6,)
    )
    graph = build(lambda c, x: scan_of(step, c, x), (6,), (4, 6))
    program = check(graph)
    assert {s.op for s in leaves(program.steps) if isinstance(s, Routine)} == {"sort"}
    inputs = arrays(graph)
    want = interpret.evaluate(graph, inputs, TABLE)
    for got, expected in zip(native(graph, inputs), want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_nothing_visible_is_written_before_a_check_in_a_loop() -> None:
    def function(p: Expr, table: Expr, ids: Expr, zero: Expr) -> Any:
        step = body(
            lambda c, t, i: (c + ops.index(t, i, dim=0), t),
            (3,), (5, 3), TensorType(i64, ()),
        )
        return p * 2.0, ops.scan(zero, table, ids, n_carried=2, reverse=False, graphs=(step,))[0]

    graph = build(function, (8,), (5, 3), (i64, (4,)), (3,))
    program = compiled(graph, {0: 0})
    steps = program.steps[program.first_visible_write:]
    assert all(isinstance(s, Launch) for s in steps)
    inputs = arrays(graph)
    inputs[2][...] = (0, 4, 1, 7)
    before = inputs[0].copy()
    with pytest.raises(CheckFailed, match="index 7 is out of bounds for dimension 0 with size 5"):
        run_program(program, inputs, TABLE)
    np.testing.assert_array_equal(inputs[0], before)
    built = pipeline.build(graph, config=QUIET, mutated={0: 0})
    with pytest.raises(IndexError, match="index 7 is out of bounds"):
        built.run(inputs, [inputs[0], np.empty(3, np.float32)])
    np.testing.assert_array_equal(inputs[0], before)


def test_every_step_of_every_iteration_is_checked_natively(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """GRAPHC_CHECK=2 follows loops and branches."""
    seen: list[int] = []

    def function(x: Any, h: Any) -> Any:
        def step(h: Any, row: Any) -> Any:
            new = cond(row.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (h + row,))
            return new, new * 2

        h, rows = scan(step, h, x)
        start = (graphc.tensor(0), h)
        return while_loop(lambda n, h: n < 3, lambda n, h: (n + 1, h * 2), start), rows

    x = graphc.tensor([[1.0, 2.0], [-3.0, 1.0], [0.5, 0.5]])
    graph = graphc.compile(function).version(x, graphc.zeros(2)).engine.built.graph
    real = Executable.trace

    def counting(self: Any, inputs: Any, outputs: Any, before: Any, after: Any, dims: Any) -> None:
        def told(number: int, step: Any, fetch: Any) -> None:
            seen.append(number)
            after(number, step, fetch)

        real(self, inputs, outputs, before, told, dims)

    monkeypatch.setattr(Executable, "trace", counting)
    example = [np.asarray(x.numpy()), np.zeros(2, np.float32)]
    built = pipeline.build(graph, config=QUIET._replace(check=VALUES), example=example)
    each = [sum(number == n for number in seen) for n in range(max(seen) + 1)]
    assert each.count(3) >= 4  # the loops' steps, three times each
    assert len(list(leaves(built.program.steps))) >= len(each)


def test_a_loop_without_an_end_can_be_interrupted() -> None:
    endless = graphc.compile(
        lambda x: while_loop(lambda x: x.sum() > 0, lambda x: (x + 1.0,), (x,))[0]
    )
    with pytest.raises(KeyboardInterrupt):
        assert threading.current_thread() is threading.main_thread()
        timer = threading.Timer(1.0, lambda: signal.raise_signal(signal.SIGINT))
        handler = signal.signal(signal.SIGINT, signal.default_int_handler)
        timer.start()
        try:
            endless(graphc.ones(3))
        finally:
            timer.cancel()
            timer.join()
            signal.signal(signal.SIGINT, handler)
    short = graphc.compile(
        lambda x: while_loop(lambda x: x.sum() < 90, lambda x: (x + 1.0,), (x,))[0]
    )
    np.testing.assert_array_equal(short(graphc.ones(3)).numpy(), [30, 30, 30])


def test_explain_says_how_often_a_step_runs() -> None:
    def function(x: Any, n: Any) -> Any:
        h, rows = scan(lambda h, row: (h.tanh() + row, h), graphc.zeros(2), x)
        return while_loop(lambda i, h: i < n, lambda i, h: (i + 1, h * 2), (n * 0, h)), rows

    explanation = graphc.explain(function, graphc.ones(7, 2), graphc.tensor(3))
    steps = [(step.name, step.times) for step in explanation.steps]
    assert {("tanh_add", 6), ("tanh_add", 1)} < set(steps)  # the last one stands apart
    assert "6 times" in str(explanation)
    assert "as often as data say" in str(explanation)
    assert not explanation.callbacks
    assert f"{__file__.rsplit('/', 1)[1]}:" in str(explanation).split("tanh add")[1][:80]
