"""Sorts and running sums side by side: what NumPy's have, places among equals and NaN included."""

from __future__ import annotations

import numpy as np
import pytest

import graphc
from graphc.backends.cuda.machine import GPU
from graphc.backends.host.machine import CPU
from graphc.backends.numpy import TABLE
from graphc.ir import dtypes, interpret, ops
from graphc.ir.dim import Dim
from graphc.ir.kernel import Launch
from graphc.ir.kernel.interpret import run_program
from graphc.ir.kernel.text import parse_kernel, print_kernel
from graphc.ir.kernel.verify import verify_kernel
from graphc.ir.machine import Machine

from . import kernel_cases as cases
from .kernel_cases import build, compiled, f32
from .machines import FEW_IN_TURN, SORTS, SORTS_IN_TURN

RNG = np.random.default_rng(0)
DTYPES = (f32, dtypes.f64, dtypes.bf16, dtypes.f16, dtypes.i32, dtypes.i64, dtypes.bool_)


def values(shape: tuple[int, ...], dtype: dtypes.DType) -> np.ndarray:
    """With equals, zeros of both signs, infinities and NaN."""
    x = RNG.integers(0, 2 if dtype is dtypes.bool_ else 7, shape).astype(dtype.numpy)
    if dtype.is_float:
        special = np.array([np.nan, -np.inf, np.inf, -0.0, 0.0]).astype(dtype.numpy)
        x.flat[RNG.permutation(x.size)[:5]] = special[: x.size]
    return x


def same(graph, inputs: list[np.ndarray], machine: Machine = SORTS) -> None:
    """Exactly what the graph means, in kernels alone."""
    program = compiled(graph, machine=machine)
    assert all(isinstance(step, Launch) for step in program.steps)
    for kernel in cases.kernels(program):
        verify_kernel(kernel)
        assert print_kernel(parse_kernel(print_kernel(kernel))) == print_kernel(kernel)
    want = interpret.evaluate(graph, inputs, TABLE)
    got = run_program(program, [x.copy() for x in inputs], TABLE)
    for a, b in zip(got, want, strict=True):
        assert a.tobytes() == b.tobytes()


MACHINES = pytest.mark.parametrize(
    "machine", (SORTS, SORTS_IN_TURN, FEW_IN_TURN), ids=("beside", "in_turn", "few")
)


@MACHINES
@pytest.mark.parametrize("descending", (False, True))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sorts_of_every_dtype(dtype: dtypes.DType, descending: bool, machine: Machine) -> None:
    for length in (1, 4, 9, 37):
        graph = build(
            lambda x: ops.sort(x, dim=1, descending=descending, stable=True), (dtype, (3, length))
        )
        same(graph, [values((3, length), dtype)], machine)


@MACHINES
@pytest.mark.parametrize("dim", (0, 1, 2))
@pytest.mark.parametrize("largest", (False, True))
def test_the_first_of_any_dim(dim: int, largest: bool, machine: Machine) -> None:
    shape = tuple(19 if d == dim else 2 + d // 2 for d in range(3))
    for k in (1, 5, 12):
        def function(x, k=k):
            return ops.topk(x, k=k, dim=dim, largest=largest)

        same(build(function, shape), [values(shape, f32)], machine)


@MACHINES
def test_what_is_sorted_may_be_no_buffer(machine: Machine) -> None:
    def function(x):
        order = ops.flip(ops.iota.like(x, shape=(2, 9), dim=1, dtype=dtypes.i64), dims=(1,))
        return x, ops.sort(order, dim=1, descending=False, stable=True)[1]

    same(build(function, (2,)), [values((2,), f32)], machine)


@MACHINES
def test_a_sort_of_a_symbolic_length(machine: Machine) -> None:
    graph = build(
        lambda x: (
            *ops.sort(x, dim=0, descending=False, stable=True),
            *ops.topk(x, k=2, dim=0, largest=True),
        ), (Dim.var("n"),), dims={"n": 9},
    )
    program = compiled(graph, machine=machine)
    for kernel in cases.kernels(program):
        verify_kernel(kernel)
    for count in (2, 8, 9, 17, 75):
        x = values((count,), f32)
        for a, b in zip(
            run_program(program, [x], TABLE), interpret.evaluate(graph, [x], TABLE), strict=True
        ):
            assert a.tobytes() == b.tobytes()


def test_updates_of_a_symbolic_number() -> None:
    """Their places may be more than an i32 counts to."""
    n = Dim.var("n")
    graph = build(
        lambda x, i, g: ops.index_put(x, g, i, dim=0, accumulate=True),
        (40, 3), (dtypes.i64, (n,)), (n, 3), dims={"n": 60},
    )
    program = compiled(graph, machine=SORTS)
    for kernel in cases.kernels(program):
        verify_kernel(kernel)
    assert any("s2" in print_kernel(kernel) for kernel in cases.kernels(program))
    for count in (2, 60, 301):
        x, g = (values((rows, 3), dtypes.f64).astype("f4") for rows in (40, count))
        x, g = np.nan_to_num(x, posinf=1, neginf=2), np.nan_to_num(g, posinf=1, neginf=2)
        inputs = [x, RNG.integers(0, 40, count), g]
        got = run_program(program, [each.copy() for each in inputs], TABLE)
        want = interpret.evaluate(graph, inputs, TABLE)
        np.testing.assert_array_equal(got[0], want[0])


def test_a_sort_is_a_routine_on_a_cpu() -> None:
    graph = build(lambda x: ops.sort(x, dim=0, descending=False, stable=True), (40,))
    (step,) = compiled(graph, machine=CPU).steps
    assert not isinstance(step, Launch)


@pytest.mark.parametrize("name", ("cumsum", "cumprod", "cummax", "cummin"))
@pytest.mark.parametrize("dtype", (f32, dtypes.bf16, i64 := dtypes.i64), ids=str)
@pytest.mark.parametrize("shape,dim", [((3, 50), 1), ((50, 3), 0), ((2, 9, 3), 1), ((130,), 0)])
def test_running_sums(
    name: str, dtype: dtypes.DType, shape: tuple[int, ...], dim: int
) -> None:
    """Of whole numbers, which are exact in any order."""
    graph = build(lambda x: getattr(ops, name)(x, dim=dim), (dtype, shape))
    x = RNG.integers(1, 3 if name != "cumprod" else 2, shape).astype(dtype.numpy)
    if name == "cumprod":
        x.flat[:: 17] = 2
    if dtype is not i64 and name in ("cummax", "cummin"):
        x.flat[5] = np.nan
    same(graph, [x])
    (kernel,) = cases.kernels(compiled(graph, machine=SORTS))
    assert len(kernel.stages) >= (3 if shape[dim] > 8 else 1)


def test_what_runs_side_by_side() -> None:
    """A long row does; where there are enough rows, each goes by itself."""
    def stages(shape: tuple[int, ...], dim: int) -> int:
        graph = build(lambda x: ops.cumsum(x, dim=dim), shape)
        (kernel,) = cases.kernels(compiled(graph, machine=GPU))
        return len(kernel.stages)

    assert stages((8, 1 << 20), 1) == 3
    assert stages((8, 4096), 1) == 1
    assert stages((64, 1 << 16), 0) == 1


def test_the_first_of_few_numbers_are_found_by_a_kernel() -> None:
    """A routine takes longer to begin: 130 us of 5000 numbers, of which a kernel looks at most
    but once."""
    for shape, kernel in (((8, 64), True), ((43, 1016), True), ((43, 1017), False)):
        x = graphc.randn(shape)
        text = graphc.explain(lambda x: x.topk(3), x).kernels_text
        assert ("kernel topk" in text) is kernel
        found, want = graphc.compile(lambda x: x.topk(3))(x), x.topk(3)
        assert found.values.tolist() == want.values.tolist()
        assert found.indices.tolist() == want.indices.tolist()
    for x in (graphc.arange(999.0), -graphc.arange(999.0), graphc.arange(999.0) // 7 % 5):
        found, want = graphc.compile(lambda x: x.topk(30))(x), x.topk(30)
        assert found.values.tolist() == want.values.tolist()
        assert found.indices.tolist() == want.indices.tolist()
    nan = float("nan")
    for row in ([1.0, nan, 3.0, nan], [0.0, -0.0, 0.0, -1.0], [2, 2, 1, 2]):
        for largest in (True, False):
            x = graphc.tensor(row)
            found = graphc.compile(lambda x, largest=largest: x.topk(3, largest=largest))(x)
            want = x.topk(3, largest=largest)
            assert found.indices.tolist() == want.indices.tolist()
            assert found.values.numpy().tobytes() == want.values.numpy().tobytes()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("largest", (False, True))
def test_equals_stay_in_their_order_where_they_make_room(
    largest: bool, dtype: dtypes.DType
) -> None:
    shape = (3, 40)
    graph = build(lambda x: ops.topk(x, k=6, dim=1, largest=largest), (dtype, shape))
    for numbers in (values(shape, dtype), np.sort(values(shape, dtype), 1),
                    np.ones(shape, dtype.numpy)):
        same(graph, [numbers], FEW_IN_TURN)
    (kernel,) = cases.kernels(compiled(graph, machine=FEW_IN_TURN))
    assert "kept" in print_kernel(kernel)
