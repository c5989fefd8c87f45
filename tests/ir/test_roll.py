"""Unrolled loops as scans: the same operators on the same values, in the same order."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphc.backends.host.machine import CPU as HOST
from graphc.backends.numpy import TABLE
from graphc.config import Config
from graphc.engine import pipeline
from graphc.ir import dtypes, interpret, ops, verify
from graphc.ir.autodiff import joint_graph
from graphc.ir.graph import Builder, Expr, Graph, Node
from graphc.ir.passes.roll import roll
from graphc.ir.passes.roll.beside import read_before
from graphc.ir.passes.roll.parts import joined_parts
from graphc.ir.record import replaced
from graphc.ir.text import print_graph
from graphc.ir.types import TensorType

from .terms import terms
from .unrolled_graphs import Unrolled, arrays_for

CPU = replaced(HOST, unrolled_steps=16, unrolled_light=512)
EAGER = replaced(CPU, unrolled_steps=4, unrolled_light=0)  # rolls whatever it can
QUIET = Config()._replace(cache_dir=None, check=0, threads=1, debug=0, dump=None)


def scans(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if node.op.name == "scan"]


def made(function: Callable[..., Any], *shapes: tuple[Any, ...], env: Any = None) -> Graph:
    builder = Builder(env)
    results = function(*(Expr(builder, builder.input(TensorType(dtypes.f32, s))) for s in shapes))
    results = results if isinstance(results, tuple) else (results,)
    return builder.build([x.node for x in results], "loop")


def times(x: Expr, w: Expr) -> Expr:
    return ops.dot_general(x, w, batch_a=(), batch_b=(), contract_a=(1,), contract_b=(0,))


def column(x: Expr, i: int) -> Expr:
    return ops.slice(x, starts=(0, i), stops=(x.shape[0], i + 1), steps=(1, 1))


def recurrent(steps: int) -> Callable[..., Any]:
    """h = tanh(x[:, i] + h @ w), all of them beside each other."""

    def function(x: Expr, h: Expr, w: Expr) -> Expr:
        shown = []
        for i in range(steps):
            h = ops.tanh(column(x, i) + times(h, w))
            shown.append(h)
        return ops.concat(*shown, dim=1)

    return function


# --- random loops --------------------------------------------------------------------------------


@pytest.mark.parametrize("start", range(0, 400, 50))
def test_random_loops_compute_the_same_terms(start: int) -> None:
    rolled = 0
    for seed in range(start, start + 50):
        graph = Unrolled(seed).graph()
        result = roll(graph, EAGER)
        verify.verify(result, "roll")
        rolled += bool(scans(result))
        beside = joined_parts(graph, EAGER.unrolled_steps)
        for one, other in zip(terms(beside), terms(result), strict=True):
            np.testing.assert_array_equal(one, other, err_msg=f"seed {seed}")
    assert rolled > 15


@pytest.mark.parametrize("seed", range(30))
def test_random_loops_have_the_same_values(seed: int) -> None:
    graph = Unrolled(seed).graph()
    result = roll(graph, EAGER)
    arrays = arrays_for(graph, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # squares of squares
        old = interpret.evaluate(graph, arrays, TABLE)
        new = interpret.evaluate(result, arrays, TABLE)
    for one, other in zip(old, new, strict=True):
        assert one.tobytes() == other.tobytes()  # -0.0 too
    built = pipeline.build(result, config=QUIET)
    outputs = [np.empty(x.shape, x.dtype) for x in old]
    built.run(arrays, outputs)
    for one, other in zip(old, outputs, strict=True):
        scale = float(np.abs(one[np.isfinite(one)]).max(initial=1e-3))
        np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-9 * scale)


def test_terms_see_what_differs() -> None:
    def swapped(x: Expr, h: Expr, w: Expr) -> Expr:
        h = ops.tanh(column(x, 1) + times(h, w))
        return ops.concat(h, ops.tanh(column(x, 0) + times(h, w)), dim=1)

    shapes = (2, 2), (2, 3), (3, 3)
    one, other = made(recurrent(2), *shapes), made(swapped, *shapes)
    assert not np.array_equal(terms(one)[0], terms(other)[0])


# --- parts beside each other ----------------------------------------------------------------------


def written(parts: list[tuple[int, int]], wide: int, added: bool) -> Callable[..., Any]:
    """Parts of these starts and widths, added up or written into x."""

    def function(x: Expr, *values: Expr) -> Expr:
        for (start, width), value in zip(parts, values, strict=True):
            if added:
                low, high = (0, start), (0, wide - start - width)
                part = ops.pad(value, low=low, high=high, interior=(0, 0), value=0.0)
                x = ops.add(x, part)
            else:
                x = ops.slice_update(
                    x, value, starts=(0, start), stops=(2, start + width), steps=(1, 1)
                )
        return x

    return function


@pytest.mark.parametrize("added", [False, True])
def test_parts_are_put_beside_each_other(added: bool) -> None:
    parts = [(4, 2), (0, 1), (1, 2), (7, 1)]
    graph = made(written(parts, 9, added), (2, 9), *((2, width) for _, width in parts))
    result = joined_parts(graph, 4)
    assert "concat" in [node.op.name for node in result.nodes]
    assert not {"pad", "slice_update"} & {node.op.name for node in result.nodes}
    values = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.5], np.float32)
    rng = np.random.default_rng(0)
    for _ in range(20):
        arrays = [rng.choice(values, [int(n) for n in x.shape]) for x in graph.inputs]
        (one,), (other,) = (interpret.evaluate(g, arrays, TABLE) for g in (graph, result))
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(np.signbit(one), np.signbit(other))


@pytest.mark.parametrize("added", [False, True])
def test_parts_that_overlap_are_not(added: bool) -> None:
    parts = [(4, 2), (0, 1), (1, 2), (5, 1)]
    graph = made(written(parts, 9, added), (2, 9), *((2, width) for _, width in parts))
    assert joined_parts(graph, 4) is graph


def test_parts_in_the_same_places_are_added_in_their_order() -> None:
    parts = [(4, 2), (0, 1), (4, 2), (1, 2), (7, 1), (1, 2), (0, 1), (7, 1)]
    graph = made(written(parts, 9, True), (2, 9), *((2, width) for _, width in parts))
    assert joined_parts(graph, 5) is graph
    result = joined_parts(graph, 4)
    assert [node.op.name for node in result.nodes].count("concat") == 2
    values = np.array([0.0, -0.0, np.inf, 1e8, 1.0, -1e8, 3e-9], np.float32)
    rng = np.random.default_rng(0)
    for _ in range(50):
        arrays = [rng.choice(values, [int(n) for n in x.shape]) for x in graph.inputs]
        (one,), (other,) = (interpret.evaluate(g, arrays, TABLE) for g in (graph, result))
        assert one.tobytes() == other.tobytes()


def test_parts_are_read_from_before_what_is_written_elsewhere() -> None:
    """As the gradient of `out[:, i] = h` leaves them; the last part was written to before."""
    def function(x: Expr, *values: Expr) -> tuple[Expr, ...]:
        whole, read = x, []
        for i, value in enumerate(values):
            whole = ops.slice_update(
                whole, value, starts=(0, 4 - i), stops=(2, 5 - i), steps=(1, 1)
            )
            read.append(column(whole, 3 - i))
        return *read, column(whole, 4)

    graph = made(function, (2, 5), *[(2, 1)] * 4)
    result = read_before(graph, 4)
    *fresh, last = result.outputs
    assert all(node.inputs[0] is graph.inputs[0] for node in fresh)
    assert last.inputs[0] is not graph.inputs[0]
    for one, other in zip(terms(graph), terms(result), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_sum_that_is_read_on_the_way_is_no_concat() -> None:
    def function(x: Expr, *values: Expr) -> tuple[Expr, Expr]:
        first = written([(0, 1), (1, 1)], 4, True)(x, *values[:2])
        return first, written([(2, 1), (3, 1)], 4, True)(first, *values[2:])

    graph = made(function, (2, 4), *[(2, 1)] * 4)
    assert joined_parts(graph, 4) is graph


# --- the ends of a loop ---------------------------------------------------------------------------


def names(graph: Graph) -> set[str]:
    return {node.op.name for node in graph.nodes}


def steps_of(graph: Graph) -> list[int]:
    return [int(node.inputs[-1].shape[0]) for node in scans(graph)]


def test_the_first_addend_of_a_sum_is_in_the_loop() -> None:
    def function(x: Expr, h: Expr, w: Expr) -> tuple[Expr, Expr]:
        total = None
        for i in range(20):
            h = ops.tanh(column(x, i) + times(h, w))
            total = h if total is None else total + h
        return total, h

    result = roll(made(function, (2, 20), (2, 3), (3, 3)), CPU)
    assert steps_of(result) == [20] and not names(result) & {"add", "tanh"}
    (begin,) = [node for node in result.nodes if node.op.name == "full"]
    assert np.signbit(begin.attrs["value"])  # -0.0 + -0.0 is -0.0
    zeros = [np.full(shape, -0.0, np.float32) for shape in ((2, 20), (2, 3), (3, 3))]
    (total, _) = interpret.evaluate(result, zeros, TABLE)
    (expected, _) = interpret.evaluate(
        made(function, (2, 20), (2, 3), (3, 3)), zeros, TABLE
    )
    assert total.tobytes() == expected.tobytes()


def test_what_the_first_step_alone_needs_is_computed_before() -> None:
    def function(x: Expr, h: Expr, w: Expr, v: Expr) -> Expr:
        for i in range(20):
            h = ops.tanh(column(x, i) + times(h, w) * ops.exp(v))
        return h

    builder_shapes = (2, 20), (2, 3), (3, 3), (2, 3)
    result = roll(made(function, *builder_shapes), CPU)
    assert steps_of(result) == [20]


def test_what_the_last_step_lacks_is_computed_for_nothing() -> None:
    """h is read by the next step alone, through a product."""
    def function(x: Expr, h: Expr, w: Expr) -> Expr:
        carried, shown = times(h, w), []
        for i in range(20):
            shown.append(ops.tanh(column(x, i) + carried))
            carried = times(shown[-1], w)
        return ops.concat(*shown, dim=1)

    graph = made(function, (2, 20), (2, 3), (3, 3))
    result = roll(graph, CPU)
    assert steps_of(result) == [20]
    np.testing.assert_array_equal(terms(graph)[0], terms(result)[0])


def test_random_numbers_are_not_drawn_for_nothing() -> None:
    """The last step's state is handed on, but what it would draw is not asked for."""
    def function(state: Expr, h: Expr, w: Expr) -> tuple[Expr, Expr]:
        for i in range(20):
            h = ops.tanh(times(h, w))
            if i < 19:
                mask, state = ops.rng_uniform(state, shape=(2, 3), dtype=dtypes.f32)
                h = h * mask
        return h, state

    builder = Builder()
    state = Expr(builder, builder.input(TensorType(dtypes.i64, (626,))))
    h, w = (Expr(builder, builder.input(TensorType(dtypes.f32, s))) for s in ((2, 3), (3, 3)))
    graph = builder.build([x.node for x in function(state, h, w)], "drawn")
    result = roll(graph, CPU)
    assert steps_of(result) == [19]
    words = np.zeros(626, np.int64)
    words[:624] = np.random.default_rng(0).integers(0, 2**32, 624)
    words[624] = 624
    arrays = [words, np.ones((2, 3), np.float32), np.eye(3, dtype=np.float32)]
    for one, other in zip(*(interpret.evaluate(g, arrays, TABLE) for g in (graph, result)),
                          strict=True):
        np.testing.assert_array_equal(one, other)


def test_two_reads_of_one_sequence_have_one_backward_loop() -> None:
    def function(x: Expr, h: Expr, w: Expr) -> Expr:
        for i in range(20):
            h = ops.tanh(column(x, i) + times(h, w)) * ops.sigmoid(column(x, i))
        return h

    result = roll(joint_graph(made(function, (2, 20), (2, 3), (3, 3))), CPU)
    assert steps_of(result) == [20, 20]
    assert not names(result) & {"dot_general", "tanh", "pad"}


def test_steps_may_read_the_same_number() -> None:
    """1.0 is one node, which belongs to none of the steps that read it."""
    def function(h: Expr, w: Expr) -> Expr:
        for i in range(20):
            number = 1.0 if i % 6 == 0 else 2.0**i
            h = times(h, w) * Expr(h.builder, h.builder.const(number, dtypes.f32))
        return h

    result = roll(made(function, (2, 3), (3, 3)), CPU)
    assert steps_of(result) == [20]


# --- what becomes a loop --------------------------------------------------------------------------


def test_the_text_of_a_recurrence(golden: Callable[[str, str], None]) -> None:
    graph = joint_graph(made(recurrent(20), (2, 20), (2, 3), (3, 3)), wrt=[1, 2])
    result = roll(graph, CPU)
    assert [bool(node.attrs["reverse"]) for node in scans(result)] == [False, True]
    golden("passes/roll.txt", print_graph(result))


def test_few_steps_stay_unrolled() -> None:
    graph = made(recurrent(CPU.unrolled_steps - 1), (2, 20), (2, 3), (3, 3))
    assert roll(graph, CPU) is graph


def test_elementwise_steps_may_be_one_kernel() -> None:
    def function(x: Expr, y: Expr) -> Expr:
        for _ in range(50):
            x = ops.sin(x) * y
        return x

    graph = made(function, (8,), (8,))
    assert roll(graph, CPU) is graph
    assert len(scans(roll(graph, replaced(CPU, unrolled_light=100)))) == 1


def test_layers_with_weights_of_their_own_are_not_copied_together() -> None:
    def function(x: Expr, *weights: Expr) -> Expr:
        for w in weights:
            x = ops.tanh(times(x, w))
        return x

    graph = made(function, (2, 3), *[(3, 3)] * 20)
    assert not scans(roll(graph, EAGER))


def test_parts_at_uneven_distances_stay() -> None:
    def function(x: Expr, h: Expr, w: Expr) -> Expr:
        for i in range(20):
            h = ops.tanh(column(x, i * i) + times(h, w))
        return h

    assert not scans(roll(made(function, (2, 400), (2, 3), (3, 3)), EAGER))


def test_what_reads_all_states_before_it_stays() -> None:
    def function(h: Expr, w: Expr) -> Expr:
        shown = [h]
        for i in range(20):
            shown.append(ops.tanh(times(shown[-1], w) + shown[i // 2]))
        return shown[-1]

    assert not scans(roll(made(function, (2, 3), (3, 3)), EAGER))


def test_layers_of_loops_and_their_gradients() -> None:
    """The second loop reads what the first one wrote: its gradient is a sum of parts."""

    def function(x: Expr, h: Expr, w: Expr, v: Expr) -> Expr:
        first = recurrent(20)(x, h, w)
        shown = []
        for i in range(20):
            part = ops.slice(first, starts=(0, 3 * i), stops=(2, 3 * i + 3), steps=(1, 1))
            h = ops.tanh(part + times(h, v))
            shown.append(h)
        return ops.concat(*shown, dim=1)

    graph = joint_graph(made(function, (2, 20), (2, 3), (3, 3), (3, 3)))
    result = roll(graph, CPU)
    # two forward; two backward, with the gradients of the weights
    assert len(scans(result)) == 4
    assert len(result.nodes) < 150


def test_a_step_that_differs_cuts_the_loop() -> None:
    def function(h: Expr, w: Expr) -> Expr:
        for i in range(40):
            h = ops.tanh(times(h, w))
            if i == 19:
                h = ops.exp(h)
        return h

    graph = made(function, (2, 3), (3, 3))
    result = roll(graph, CPU)
    assert len(scans(result)) == 2
    np.testing.assert_array_equal(terms(graph)[0], terms(result)[0])


def test_numbers_of_steps_are_rows() -> None:
    def function(h: Expr, w: Expr) -> Expr:
        for i in range(20):
            h = times(h, w) * Expr(h.builder, h.builder.const(i / 7, dtypes.f32))
        return h

    graph = made(function, (2, 3), (3, 3))
    result = roll(graph, CPU)
    (scan,) = scans(result)
    assert len(scan.inputs) - scan.attrs["n_carried"] == 1
    np.testing.assert_array_equal(terms(graph)[0], terms(result)[0])


def test_a_loop_in_a_loop() -> None:
    def function(x: Expr, h: Expr, w: Expr) -> Expr:
        for i in range(20):
            for _ in range(20):
                h = ops.tanh(times(h, w))
            h = h + column(x, i)
        return h

    graph = made(function, (2, 20), (2, 3), (3, 3))
    result = roll(graph, CPU)
    (scan,) = scans(result)
    assert len(scans(scan.graphs[0])) == 1
    np.testing.assert_array_equal(terms(graph)[0], terms(result)[0])


def test_a_size_may_be_symbolic() -> None:
    builder = Builder()
    n = builder.env.new("n", 5)
    graph = made(recurrent(20), (n, 20), (n, 3), (3, 3), env=builder.env)
    result = roll(graph, CPU)
    assert len(scans(result)) == 1
    verify.verify(result, "roll")
    rng = np.random.default_rng(0)
    for size in (5, 2):
        arrays = [
            rng.uniform(-1, 1, shape).astype(np.float32)
            for shape in ((size, 20), (size, 3), (3, 3))
        ]
        (one,), (other,) = (interpret.evaluate(g, arrays, TABLE) for g in (graph, result))
        np.testing.assert_array_equal(one, other)


def test_random_numbers_are_drawn_in_order() -> None:
    def function(state: Expr, h: Expr, w: Expr) -> tuple[Expr, Expr]:
        for _ in range(20):
            mask, state = ops.rng_uniform(state, shape=(2, 3), dtype=dtypes.f32)
            h = times(h, w) * mask
        return h, state

    builder = Builder()
    state = Expr(builder, builder.input(TensorType(dtypes.i64, (626,))))
    h, w = (Expr(builder, builder.input(TensorType(dtypes.f32, s))) for s in ((2, 3), (3, 3)))
    graph = builder.build([x.node for x in function(state, h, w)], "drawn")
    result = roll(graph, CPU)
    assert len(scans(result)) == 1
    words = np.zeros(626, np.int64)
    words[:624] = np.random.default_rng(0).integers(0, 2**32, 624)
    words[624] = 624
    arrays = [words, np.ones((2, 3), np.float32), np.eye(3, dtype=np.float32)]
    old, new = (interpret.evaluate(g, arrays, TABLE) for g in (graph, result))
    for one, other in zip(old, new, strict=True):
        np.testing.assert_array_equal(one, other)
