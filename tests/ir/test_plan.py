"""Programs: where values live, what is written in place, and in which order."""

import numpy as np
import pytest

from graphc.backends.numpy import TABLE
from graphc.ir import ops
from graphc.ir.graph import Graph
from graphc.ir.kernel import BufferRef, Launch, Program
from graphc.ir.kernel.interpret import CheckFailed, run_program

from . import kernel_cases as cases
from .kernel_cases import arrays, build, check, compiled, dot, i64, total
from .random_graphs import random_graph


def launches(program: Program) -> list[Launch]:
    return [s for s in program.steps if isinstance(s, Launch)]


def copies(program: Program) -> int:
    return sum(s.ops == ("copy",) for s in launches(program))


def test_updates_are_written_in_place() -> None:
    graph = build(lambda p, g: (p - g * 0.1, total(p * g, (0,))), (8,), (8,))
    program = check(graph, {0: 0})
    assert copies(program) == 0
    last = launches(program)[-1]  # after the sum, which reads the old value
    assert BufferRef("input", 0) in last.buffers
    assert [p.access for p in last.kernel.params] == ["in", "inout"]
    p, g = arrays(graph)
    before = p.copy()
    results = run_program(program, [p, g], TABLE)
    assert results[0] is p
    np.testing.assert_allclose(p, before - g * np.float32(0.1), rtol=1e-6)


def test_swapped_buffers_are_saved_first() -> None:
    check(build(lambda a, b: (b + 0.0, a * 2.0), (8,), (8,)), {0: 0, 1: 1})
    check(build(lambda a, b: (b, a), (8,), (8,)), {0: 0, 1: 1})
    check(build(lambda a, b: (a + b, a - b), (8,), (8,)), {0: 1, 1: 0})


def test_a_value_read_elsewhere_is_copied_at_the_end() -> None:
    # the new value is not made element by element of the old one
    graph = build(lambda p, g: ops.permute(p, dims=(1, 0)) * 2.0 + g, (6, 6), (6, 6))
    program = check(graph, {0: 0})
    assert copies(program) == 1
    assert launches(program)[-1].ops == ("copy",)


def test_the_same_value_twice() -> None:
    check(build(lambda p: (p * 2.0, p * 2.0, p), (8,)), {0: 0})
    check(build(lambda p: (p, p), (8,)), {0: 0})


def _checked_update(p, g, x, ids):
    return p - g, total(ops.index(x, ids, dim=0), (0, 1))


def test_nothing_visible_is_written_before_the_last_check() -> None:
    graph = build(_checked_update, (8,), (8,), (5, 3), (i64, (2,)))
    program = compiled(graph, {0: 0})
    visible = [i for i, s in enumerate(launches(program)) if BufferRef("input", 0) in s.buffers]
    assert visible == [program.first_visible_write]
    inputs = arrays(graph)
    inputs[3][...] = 9
    before = inputs[0].copy()
    with pytest.raises(CheckFailed, match="index 9 is out of bounds for dimension 0 with size 5"):
        run_program(program, inputs, TABLE)
    np.testing.assert_array_equal(inputs[0], before)


def test_a_kernel_with_a_check_writes_to_the_arena() -> None:
    graph = build(lambda p, ids: p + ops.index(p, ids, dim=0), (4,), (i64, (4,)))
    program = check(graph, {0: 0})
    assert copies(program) == 1


def test_reshapes_of_whole_buffers_are_free() -> None:
    graph = build(
        lambda x, w: ops.reshape(ops.relu(dot(x, w)), shape=(2, 4, 5)), (8, 6), (5, 6)
    )
    program = check(graph)
    assert len(program.steps) == 1 and program.arena_bytes == 0


def _chain(count: int) -> Graph:
    def function(x, w):
        for _ in range(count):
            x = dot(x, w)
        return x

    return build(function, (16, 16), (16, 16))


def test_the_arena_is_reused() -> None:
    assert check(_chain(9)).arena_bytes == 2 * 16 * 16 * 4


def _assert_aligned(program: Program) -> None:
    for step in launches(program):
        for ref in step.buffers:
            assert ref.space != "arena" or (isinstance(ref.offset, int) and ref.offset % 64 == 0)


def test_random_programs_are_aligned_and_run_twice() -> None:
    for seed in range(300, 310):
        maker = random_graph(seed)
        graph = maker.graph()
        program = compiled(graph)
        _assert_aligned(program)
        inputs = maker.arrays(seed)
        first = run_program(program, inputs, TABLE)
        again = run_program(program, inputs, TABLE)
        for a, b in zip(first, again, strict=True):
            np.testing.assert_array_equal(a, b)


def test_gradients_are_applied_as_soon_as_they_are_there() -> None:
    def step(x, *weights):
        y, results = x, []
        for w in weights:
            y = dot(y, w) * 0.1
        for w in weights:
            gradient = ops.dot_general(
                y, x, batch_a=(), batch_b=(), contract_a=(0,), contract_b=(0,)
            )
            results.append(w - gradient * 0.1 * w)
        return results

    graph = build(step, (16, 64), *[(64, 64)] * 6)
    program = check(graph, {i: i + 1 for i in range(6)})
    # one gradient at a time, not six
    assert program.arena_bytes < 3 * 64 * 64 * 4


def test_what_is_needed_late_is_computed_late() -> None:
    """Eight products of inputs, each of which one step of a chain reads."""
    def function(g, w, *xs):
        for x in xs:
            g = dot(g, ops.tanh(dot(x, w)) * 0.01)
        return g

    size = 32
    program = check(build(function, *[(size, size)] * 10))
    assert program.arena_bytes <= 4 * size * size * 4


def test_constants_and_callbacks() -> None:
    def function(x):
        values, order = ops.sort(x * 2.0, dim=1, descending=True, stable=True)
        return values + 1.0, order

    program = check(build(function, (4, 6)))
    assert [getattr(s, "op", "launch") for s in program.steps] == ["launch", "sort", "launch"]
    table = np.arange(6, dtype=np.float32)

    def constant(x):
        weight = type(x)(x.builder, x.builder.const(table))
        return x + weight

    program = check(build(constant, (4, 6)))
    np.testing.assert_array_equal(program.constants[0], table)
    assert program.dims == ()


def test_provenance_names_the_operators() -> None:
    program = check(build(lambda x: cases.softmax(x, 1), (4, 6)))
    assert launches(program)[0].ops == ("amax", "sub", "exp", "sum", "div")
