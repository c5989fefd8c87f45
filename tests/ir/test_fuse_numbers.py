"""Kernels that are equal but for numbers are one, which reads them."""

from __future__ import annotations

import numpy as np

from graphc.backends.host.machine import CPU
from graphc.config import current
from graphc.engine.pipeline import build as compiled
from graphc.ir import dtypes, ops
from graphc.ir.graph import Graph
from graphc.ir.passes.fuse import fuse
from graphc.ir.passes.fuse.numbers import share_numbers

from . import kernel_cases as cases
from .kernel_cases import build, check


def moving(*counts: int) -> Graph:
    """A moving mean of a sum over each of the counts."""

    def step(*tensors):
        pairs = zip(tensors[::2], tensors[1::2], counts, strict=True)
        return [kept * 0.9 + total / float(n) * (n / (n - 1)) * 0.1 for kept, total, n in pairs]

    return build(step, *[(size,) for i in range(len(counts)) for size in (5 + i,) * 2])


def test_numbers_that_differ_are_read() -> None:
    graph = moving(243, 147, 12)
    mutated = {0: 0, 1: 2, 2: 4}
    program = check(graph, mutated)
    assert len(cases.kernels(program)) == 1
    assert len(program.constants) == 6  # 0.9 and 0.1 are in the code
    assert program.outputs_in_place == mutated


def test_numbers_that_are_the_same_stay_in_the_code() -> None:
    program = check(moving(243, 243))
    assert len(cases.kernels(program)) == 1
    assert not program.constants


def test_numbers_that_decide_about_code_stay_there() -> None:
    graph = build(lambda a, b: [ops.pow(a, 2.0), ops.pow(b, 3.0)], (4,), (5,))
    fused = fuse(graph, CPU)
    assert share_numbers(fused) is fused
    assert len(cases.kernels(check(graph))) == 2


def test_other_operators_are_other_kernels() -> None:
    graph = build(lambda a, b: [a * 3.0 + 1.0, b * 4.0 - 1.0], (4,), (5,))
    program = check(graph)
    assert len(cases.kernels(program)) == 2
    assert not program.constants


def test_a_double_is_not_a_float() -> None:
    graph = build(
        lambda a, b: [a * 3.0, ops.cast(ops.cast(b, dtype=dtypes.f64) * 4.0, dtype=cases.f32)],
        (4,), (5,),
    )
    assert len(cases.kernels(check(graph))) == 2


def test_bits_are_those_of_numbers_in_the_code() -> None:
    counts = (243, 147, 49 * 4096)
    arrays = cases.arrays(moving(*counts))
    for i, (count, result) in enumerate(zip(counts, native(moving(*counts), arrays), strict=True)):
        graph = build(lambda kept, total, n=count: [
            kept * 0.9 + total / float(n) * (n / (n - 1)) * 0.1
        ], (5 + i,), (5 + i,))
        (alone,) = native(graph, arrays[2 * i : 2 * i + 2])
        np.testing.assert_array_equal(result, alone)


def native(graph: Graph, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """The results of native code."""
    results = [np.empty(node.tensor_type.static_shape, np.float32) for node in graph.outputs]
    compiled(graph, config=current()).run(arrays, results)
    return results


def test_many_numbers_stay_in_the_code() -> None:
    def many(x, factors):
        for factor in factors:
            x = (x * factor) / (factor + 1.0)
        return x

    graph = build(lambda a, b: [many(a, (3.0, 5.0, 7.0)), many(b, (11.0, 13.0, 17.0))], (4,), (5,))
    program = check(graph)
    assert len(cases.kernels(program)) == 2
    assert not program.constants
