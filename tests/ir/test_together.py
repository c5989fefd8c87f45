"""Launches gathered in batches: whatever runs first within one, the results are the program's."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from graphc.backends.cuda.machine import GPU
from graphc.backends.numpy import TABLE
from graphc.ir import ops
from graphc.ir.dim import Dim, evaluate, parse
from graphc.ir.kernel import Launch, Program, leaves
from graphc.ir.kernel.interpret import CheckFailed, run_program
from graphc.ir.passes.plan.ruler import Ruler
from graphc.ir.passes.plan.together import Batch, together
from graphc.ir.record import replaced

from . import kernel_cases as cases
from .machines import SORTS
from .random_graphs import random_graph


def reordered(program: Program, batches: list[Batch], backwards: bool) -> Program:
    """The program with each batch as one launch would run it: stage after stage, those of a stage
    in either order."""
    def steps() -> Iterator[object]:
        for batch in batches:
            if len(batch) == 1:
                yield batch[0]
                continue
            kernel = batch[0].kernel
            assert all(isinstance(x, Launch) and x.kernel is kernel for x in batch)
            for stage in kernel.stages:
                part = replaced(kernel, stages=(stage,))
                for launch in reversed(batch) if backwards else batch:
                    yield replaced(launch, kernel=part)

    return replaced(program, steps=tuple(steps()))


def check(program: Program, inputs: list[np.ndarray], dims: dict[str, int]) -> int:
    """Returns how many launches were saved."""
    batches = together(program, dims)
    before = list(leaves(program.steps))
    after = [step for batch in batches for step in leaves(batch)]
    assert len(after) == len(before) and {id(x) for x in after} == {id(x) for x in before}
    first = run_program(program, [x.copy() for x in inputs], TABLE)
    for backwards in (False, True):
        other = reordered(program, batches, backwards)
        found = run_program(other, [x.copy() for x in inputs], TABLE)
        for got, want in zip(found, first, strict=True):
            np.testing.assert_array_equal(got, want)
    return sum(len(batch) - 1 for batch in batches)


def updates(count: int, mutated: bool) -> tuple[Program, list[np.ndarray]]:
    """Parameters of several sizes, each with a chain of steps that are those of the others."""
    shapes = [(3 + 7 * i % 5, 4) for i in range(count)]

    def function(*values):
        results = []
        for p, g in zip(values[:count], values[count:], strict=True):
            results.append(p - ops.cumsum(ops.cumsum(g, dim=1) * 0.5, dim=0))
        return results

    graph = cases.build(function, *shapes, *shapes)
    pairs = {i: i for i in range(count)} if mutated else {}
    return cases.compiled(graph, pairs, GPU), cases.arrays(graph)


@pytest.mark.parametrize("mutated", (False, True))
def test_updates_of_parameters_are_one_launch_each(mutated: bool) -> None:
    program, inputs = updates(9, mutated)
    saved = check(program, inputs, {})
    kernels = len({id(step.kernel) for step in program.steps})
    assert len(program.steps) >= 18 and len(program.steps) - saved == kernels


def test_one_after_another_stays_so() -> None:
    """Equal launches, of which each reads what the last one wrote."""
    def function(x):
        for _ in range(4):
            x = ops.softmax(x * 1.25, dim=1)
        return x

    graph = cases.build(function, (5, 300))
    program = cases.compiled(graph, machine=GPU)
    assert check(program, cases.arrays(graph), {}) == 0


def test_what_lies_in_the_same_bytes_waits() -> None:
    """An arena as small as it gets: buffers are used again, and batches end there."""
    def function(*xs):
        return [cases.total(ops.exp(x - cases.total(x, (1,), True)), (1,)) for x in xs]

    graph = cases.build(function, *[(4, 3000)] * 5)
    program = cases.compiled(graph, machine=GPU)
    check(program, cases.arrays(graph), {})


def test_checks_come_before_what_is_seen() -> None:
    def function(p, q, x, ids):
        found = ops.index(x, ids, dim=0)
        return p + 1.0, q + 1.0, found

    graph = cases.build(function, (8,), (8,), (6, 2), (cases.i64, (3,)))
    program = cases.compiled(graph, {0: 0, 1: 1}, GPU)
    batches = together(program, {})
    assert any(len(batch) > 1 for batch in batches)
    inputs = [np.zeros(8, "f4"), np.zeros(8, "f4"), np.zeros((6, 2), "f4"), np.array([0, 9, 1])]
    with pytest.raises(CheckFailed):
        run_program(reordered(program, batches, True), inputs, TABLE)
    assert not inputs[0].any() and not inputs[1].any()


@pytest.mark.parametrize("symbolic", (False, True))
def test_random_graphs(symbolic: bool) -> None:
    saved = 0
    # one of the symbolic ones would be interpreted for 10 seconds
    for seed in (24, *range(26, 36)) if symbolic else range(40):
        maker = random_graph(seed, 24, symbolic)
        graph = maker.builder.build([value.node for value in maker.values[-6:]])
        inputs = cases.arrays(graph, seed)
        program = cases.compiled(graph, machine=SORTS)
        try:
            run_program(program, [x.copy() for x in inputs], TABLE)
        except CheckFailed:
            continue
        known = symbolic and seed % 2  # else for every size
        saved += check(program, inputs, {"s0": 6} if known else {})
    assert saved > 0


def test_rulers_know_what_never_meets() -> None:
    """Offsets of an arena, each behind the last buffer, rounded up."""
    sizes = [parse(text) for text in ("0", "4*n", "64*((4*n + 63) // 64)", "n*m", "4*n - 1",
             "64*((4*n + 63) // 64) + 64*((8*n*m + 63) // 64)", "n % 7", "64*(n // 64)", "n")]
    ruler = Ruler(sizes)
    rows = np.array([ruler.row(size) for size in sizes])
    found = {
        (i, j) for i, a in enumerate(sizes) for j, b in enumerate(sizes)
        if ruler.least((rows[i] - rows[j])[None])[0] >= 0
    }
    for i, j in found:
        for n, m in itertools.product((0, 1, 2, 15, 16, 17, 63, 64, 65), (0, 1, 5)):
            a, b = (evaluate(sizes[k], {"n": n, "m": m}) for k in (i, j))
            assert a >= b, (sizes[i], sizes[j], n, m)
    assert {(2, 1), (1, 0), (5, 2), (5, 1), (6, 0), (8, 7), (1, 4)} <= found


def test_updates_beside_symbolic_sizes_are_one_launch_each() -> None:
    """Gradients in an arena whose buffers are as long as the batch is."""
    count = 5

    def function(x, *values):
        results = []
        for i, p in enumerate(values):
            slope = cases.total(ops.exp(x * float(i + 1)), (0,))
            results.append(p - ops.cumsum(slope * 0.5, dim=0))
        return results

    shapes = [(Dim.var("s0"), 8), *[(8,)] * count]
    graph = cases.build(function, *shapes, dims={"s0": 6})
    program = cases.compiled(graph, machine=GPU)
    assert program.dims
    assert check(program, cases.arrays(graph), {}) >= count - 1
