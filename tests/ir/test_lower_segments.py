"""Scatters of many updates: sorted by position, each place's updates combined in their order."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from graphc.backends.cuda.machine import GPU
from graphc.backends.host.machine import CPU
from graphc.backends.numpy import TABLE
from graphc.ir import dtypes, interpret, ops
from graphc.ir.dim import Dim
from graphc.ir.graph import Graph
from graphc.ir.kernel.interpret import CheckFailed, run_program

from . import kernel_cases as cases
from .kernel_cases import build, compiled, f32, i64
from .machines import SORTS

RNG = np.random.default_rng(0)


def positions(count: int, size: int, hot: int, shape: tuple[int, ...] = ()) -> np.ndarray:
    """Positions of which the first `hot` are one and the same."""
    found = RNG.integers(0, size, count)
    found[:hot] = size // 2
    return RNG.permutation(found).reshape(shape or (count,))


def check(graph: Graph, inputs: list[np.ndarray], stages: int = 5) -> list[np.ndarray]:
    """See kernel_cases.check; at least so many stages, so positions were sorted."""
    program = cases.check(graph, inputs=inputs, machine=SORTS)
    assert max(len(kernel.stages) for kernel in cases.kernels(program)) >= stages
    return run_program(program, [x.copy() for x in inputs], TABLE)


@pytest.mark.parametrize("count,hot", [(3, 0), (13, 0), (40, 24), (41, 41)])
@pytest.mark.parametrize("dtype", [f32, dtypes.bf16, dtypes.f64, i64], ids=str)
def test_rows_at_positions(count: int, hot: int, dtype: dtypes.DType) -> None:
    """An embedding's gradient: zeros, to which rows are added."""
    def function(g, ids):
        zeros = ops.full.like(g, shape=(7, 9), value=0, dtype=dtype)
        return ops.index_put(zeros, g, ids, dim=0, accumulate=True)

    g = RNG.integers(-8, 8, (count, 9)).astype(dtype.numpy)
    check(build(function, (dtype, (count, 9)), (i64, (count,))), [g, positions(count, 7, hot)])


@pytest.mark.parametrize("accumulate", (True, False))
@pytest.mark.parametrize(
    "shape,places,dim,k",
    [((5, 4, 3), (11,), 0, 1), ((3, 6, 5), (12,), 1, 1), ((2, 3, 4, 5), (3, 4), 1, 2),
     ((6, 5), (20,), 1, 1), ((6,), (20,), 0, 1)],
)
def test_several_indices_anywhere(
    shape: tuple[int, ...], places: tuple[int, ...], dim: int, k: int, accumulate: bool
) -> None:
    def function(x, source, *indices):
        return ops.index_put(x, source * 2.0, *indices, dim=dim, accumulate=accumulate)

    source = (*shape[:dim], *places, *shape[dim + k :])
    count = int(np.prod(places))
    indices = [
        positions(count, shape[dim + i], 5, places) - RNG.integers(0, 2, places) * shape[dim + i]
        for i in range(k)
    ]
    inputs = [RNG.standard_normal(s).astype("f4") for s in (shape, source)]
    check(build(function, shape, source, *[(i64, places)] * k), [*inputs, *indices])


@pytest.mark.parametrize("reduce", ("", "add", "mul", "amax", "amin"))
@pytest.mark.parametrize("dim", (0, 1, 2))
def test_each_line_has_its_own_positions(dim: int, reduce: str) -> None:
    def function(x, index, source):
        return ops.scatter(x, index, source, dim=dim, reduce=reduce)

    shape, spots = (4, 5, 3), tuple(9 if d == dim else 2 for d in range(3))
    index = RNG.integers(0, shape[dim], spots)
    x, source = (RNG.standard_normal(s).astype("f4") for s in (shape, spots))
    source.flat[3] = np.nan
    check(build(function, shape, (i64, spots), spots), [x, index, source])


def test_gradients_of_pooling() -> None:
    def function(x):
        y, at = ops.max_pool(
            x, window=(3, 3), stride=(1, 1), pad_low=(1, 1), pad_high=(1, 1), dilation=(1, 1)
        )
        return ops.max_pool_grad(y, at, plane_shape=(4, 5))

    check(build(function, (2, 3, 4, 5)), [RNG.standard_normal((2, 3, 4, 5)).astype("f4")])


def test_a_short_run_has_the_bits_of_a_serial_walk() -> None:
    """From what is there, one after another; -0.0 stays what it is."""
    def function(x, g, ids):
        return ops.index_put(x, g, ids, dim=0, accumulate=True)

    count = 40
    graph = build(function, (20, 6), (count, 6), (i64, (count,)))
    x, g = (RNG.standard_normal((n, 6)).astype("f4") for n in (20, count))
    ids = np.repeat(np.arange(10), 4)
    x[:, 0] = g[:, 0] = -0.0
    inputs = [x, g, RNG.permutation(ids)]
    (got,) = check(graph, inputs)
    (want,) = run_program(compiled(graph, machine=CPU), [a.copy() for a in inputs], TABLE)
    np.testing.assert_array_equal(got.view("u4"), want.view("u4"))


def test_a_place_does_not_depend_on_the_others() -> None:
    """A cut run is cut from its own start: what is in front of it moves nothing."""
    def function(g, ids):
        zeros = ops.full.like(g, shape=(9, 1), value=0.0, dtype=f32)
        return ops.index_put(zeros, g, ids, dim=0, accumulate=True)

    count, found = 48, []
    for before in (0, 5, 11):
        graph = build(function, (count, 1), (i64, (count,)))
        ids = np.array([0] * before + [4] * 30 + [8] * (count - before - 30))
        g = np.zeros((count, 1), "f4")
        g[before : before + 30, 0] = np.random.default_rng(3).standard_normal(30)
        found.append(check(graph, [g, ids])[0][4, 0])
    assert len(set(found)) == 1


def test_sixteen_bits_are_rounded_once() -> None:
    def function(g, ids):
        zeros = ops.full.like(g, shape=(3, 4), value=0.0, dtype=dtypes.bf16)
        return ops.index_put(zeros, g, ids, dim=0, accumulate=True)

    count = 60
    graph = build(function, (dtypes.bf16, (count, 4)), (i64, (count,)))
    g = np.full((count, 4), 1 / 256, ml_dtypes.bfloat16)
    g[0] = 1
    (got,) = check(graph, [g, np.zeros(count, np.int64)])
    assert (got[0].astype("f4") == np.float32(1.234375)).all()  # 1.23046875, rounded


def test_sizes_may_be_symbolic() -> None:
    def function(g, ids):
        zeros = ops.full.like(g, shape=(7, 5), value=0.0, dtype=f32)
        return ops.index_put(zeros, g, ids, dim=0, accumulate=True)

    n = Dim.var("n")
    graph = build(function, (n, 5), (i64, (n,)), dims={"n": 50})
    program = cases.check(
        graph, inputs=[RNG.standard_normal((50, 5)).astype("f4"), positions(50, 7, 20)],
        machine=SORTS,
    )
    for count in (2, 3, 17, 90):
        inputs = [RNG.standard_normal((count, 5)).astype("f4"), positions(count, 7, 2)]
        (want,) = interpret.evaluate(graph, inputs, TABLE)
        (got,) = run_program(program, inputs, TABLE)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("bad", (7, -8))
def test_positions_are_checked(bad: int) -> None:
    def function(g, ids):
        zeros = ops.full.like(g, shape=(7, 5), value=0.0, dtype=f32)
        return ops.index_put(zeros, g, ids, dim=0, accumulate=True)

    graph = build(function, (20, 5), (i64, (20,)))
    ids = positions(20, 7, 4)
    ids[11] = bad
    with pytest.raises(CheckFailed, match=f"index {bad} is out of bounds for dimension 0"):
        run_program(compiled(graph, machine=SORTS), [np.ones((20, 5), "f4"), ids], TABLE)


def test_what_is_worth_a_sort() -> None:
    """Many updates that may meet, unless there is enough to do beside; never on a CPU."""
    def stages(machine: Any, shape: tuple[int, ...], count: int) -> int:
        def function(x, g, ids):
            return ops.index_put(x, g, ids, dim=0, accumulate=True)

        graph = build(function, shape, (count, *shape[1:]), (i64, (count,)))
        (kernel,) = cases.kernels(compiled(graph, machine=machine))
        return len(kernel.stages)

    assert stages(CPU, (50257, 768), 8192) == 2
    assert stages(GPU, (50257, 768), 8192) == 1 + 3 * 3 + 3
    assert stages(GPU, (50257, 768), 64) == 2
    assert stages(GPU, (100, 1 << 16), 8192) == 2
