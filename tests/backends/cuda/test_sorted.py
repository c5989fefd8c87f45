"""What has an order, on the emulator: sorts, running sums, scatters of many updates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from graphc.backends.cuda.emulator import Schedule
from graphc.backends.cuda.machine import GPU
from graphc.backends.numpy import TABLE
from graphc.ir import dtypes, ops
from graphc.ir.graph import Graph
from graphc.ir.kernel.interpret import run_program
from graphc.ir.machine import Machine
from graphc.ir.passes.fuse import fuse
from graphc.ir.passes.lower import lower
from graphc.ir.passes.plan import plan

from ...ir.kernel_cases import build, f32, i64
from ...ir.machines import SORTS
from .emulated import SCHEDULES, EmulatedBackend, Executable

RNG = np.random.default_rng(0)


def embedding_gradient(rows: int, columns: int, count: int, dtype: dtypes.DType = f32) -> Graph:
    def function(g, ids):
        zeros = ops.full.like(g, shape=(rows, columns), value=0.0, dtype=dtype)
        return ops.index_put(zeros, g, ids, dim=0, accumulate=True)

    return build(function, (dtype, (count, columns)), (i64, (count,)))


def lines(reduce: str) -> Graph:
    def function(x, index, source):
        return ops.scatter(x, index, source, dim=1, reduce=reduce)

    return build(function, (3, 20, 2), (i64, (3, 90, 2)), (3, 90, 2))


def tokens(count: int, size: int, hot: int) -> np.ndarray:
    found = RNG.integers(0, size, count)
    found[:hot] = 3
    return RNG.permutation(found)


def inputs_of(graph: Graph, indices: Sequence[np.ndarray]) -> list[np.ndarray]:
    left = list(indices)
    return [
        left.pop(0) if node.dtype is i64 else
        RNG.standard_normal(node.shape).astype(node.dtype.numpy) for node in graph.inputs
    ]


def in_order(length: int, descending: bool, dtype: dtypes.DType) -> Graph:
    def function(x):
        return ops.sort(x, dim=1, descending=descending, stable=True)

    return build(function, (dtype, (3, length)))


CASES: dict[str, tuple[Graph, Machine, list[np.ndarray]]] = {
    "embedding": (embedding_gradient(100, 40, 300), GPU, [tokens(300, 100, 140)]),
    "16 bits": (
        embedding_gradient(9, 5, 70, dtypes.bf16), SORTS, [tokens(70, 9, 30)]
    ),
    "added lines": (lines("add"), GPU, [RNG.integers(0, 20, (3, 90, 2))]),
    "the last of equals": (lines(""), SORTS, [RNG.integers(0, 20, (3, 90, 2))]),
    "one tile": (in_order(70, False, f32), GPU, []),
    "merged tiles": (in_order(700, True, f32), GPU, []),
    "merged little tiles": (in_order(13, False, dtypes.bf16), SORTS, []),
    "the first": (build(lambda x: ops.topk(x, k=3, dim=0, largest=True), (300, 2)), GPU, []),
    "a running sum": (build(lambda x: ops.cumsum(x, dim=1), (2, 9000)), GPU, []),
    "a running maximum": (build(lambda x: ops.cummax(x, dim=0), (23, 2)), SORTS, []),
}


@pytest.mark.parametrize("name", CASES)
def test_what_the_interpreter_computes(name: str, emulated: EmulatedBackend) -> None:
    """Bit for bit, whoever runs first."""
    graph, machine, indices = CASES[name]
    fused = fuse(graph, machine)
    program = plan(fused, lower(fused, machine), machine)
    inputs = inputs_of(graph, indices)
    wants = run_program(program, [x.copy() for x in inputs], TABLE)
    executable = Executable(program, emulated)
    for schedule in SCHEDULES:
        emulated.schedule = schedule
        gots = [np.empty_like(want) for want in wants]
        executable.run(inputs, gots)
        for got, want in zip(gots, wants, strict=True):
            np.testing.assert_array_equal(got.view("u1"), want.view("u1"), err_msg=str(schedule))
    emulated.schedule = Schedule()
