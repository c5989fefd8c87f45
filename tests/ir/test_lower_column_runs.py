"""Long sums over rows: whole rows, some at a time, in pieces that a second stage adds up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphc.backends.host.machine import CPU
from graphc.backends.llvm.emit import emit
from graphc.backends.llvm.prefetch import distances
from graphc.backends.llvm.target import make_target
from graphc.ir import dtypes, ops
from graphc.ir.dim import Dim
from graphc.ir.kernel import Kernel
from graphc.ir.kernel.text import print_kernel
from graphc.ir.kernel.verify import verify_kernel
from graphc.ir.passes.lower.column_runs import LONG, ROWS
from graphc.ir.record import replaced

from .kernel_cases import build, check, compiled, kernels, total

# Runs of 16 columns, and pieces from little on.
SHORT = replaced(CPU, column_run=16, columns=8, split_least=64, chunk_least=4, chunk_most=64)


def sums(*shape: int) -> Kernel:
    """The kernel of a matrix's sums over rows."""
    (kernel,) = kernels(compiled(build(lambda x: total(x, (0,)), shape)))
    verify_kernel(kernel)
    return kernel


def scratch(kernel: Kernel) -> int:
    (found,) = (p.size for p in kernel.params if p.access == "scratch")
    assert isinstance(found, int)
    return found


def test_rows_are_gone_along_whole_and_cut_in_pieces() -> None:
    kernel = sums(4096, 1024)
    assert "local run0: f32[1024]" in print_kernel(kernel)
    assert scratch(kernel) == 8 * 1024 and len(kernel.stages) == 2


def test_of_enough_columns_each_iteration_has_all_rows() -> None:
    kernel = sums(LONG, 8 * CPU.column_run)
    assert len(kernel.stages) == 1
    assert f"parallel p in [8] chunk [1] {{\n      local run0: f32[{CPU.column_run}]" in (
        print_kernel(kernel)
    )


@pytest.mark.parametrize("rows", [LONG, 2 * LONG + ROWS, 5 * LONG - 1])
@pytest.mark.parametrize("columns", [8, 17, 40])
def test_any_number_of_rows_and_columns(rows: int, columns: int) -> None:
    check(build(lambda x: total(x, (0,)), (rows, columns)), machine=SHORT)


def test_between_other_axes() -> None:
    for outer in (1, 3, 9):
        check(build(lambda x: total(x, (1,)), (outer, 150, 24)), machine=SHORT)


def test_several_sums_and_what_is_made_of_them() -> None:
    def function(x: Any, y: Any, weight: Any) -> tuple[Any, ...]:
        return (
            total(x * y, (0,)) * weight, ops.amax(x, dims=(0,), keepdim=False),
            ops.exp(total(y, (0,)) / 300.0),
        )

    assert len(check(
        build(function, (300, 24), (300, 24), (24,)), machine=SHORT
    ).steps) == 1


@pytest.mark.parametrize("dtype", [dtypes.f64, dtypes.bf16, dtypes.i64, dtypes.i8])
def test_other_numbers(dtype: dtypes.DType) -> None:
    names = ("sum", "amax", "amin") if dtype is not dtypes.i8 else ("amax", "amin")
    for name in names:
        def function(x: Any, name: str = name) -> Any:
            return getattr(ops, name)(x, dims=(0,), keepdim=False)

        check(build(function, (dtype, (300, 24))), machine=SHORT)


def test_flags() -> None:
    for op in (ops.any, ops.all):
        check(
            build(lambda x, op=op: op(ops.lt(x, x * 0.9), dims=(0,), keepdim=False), (300, 24)),
            machine=SHORT,
        )


@pytest.mark.parametrize("rows", [2, ROWS, 63, 40 * ROWS, 500])
def test_rows_of_a_symbolic_number(rows: int) -> None:
    graph = build(lambda x: total(x, (0,)), (Dim.var("s0"), 24), dims={"s0": rows})
    check(graph, machine=SHORT)


def test_not_a_number_and_infinities_stay_in_their_columns() -> None:
    x = np.ones((300, 24), np.float32)
    x[7, 3], x[290, 5], x[150, 9] = np.nan, np.inf, -np.inf
    check(build(lambda x: total(x, (0,)), (300, 24)), inputs=[x], machine=SHORT)


def test_the_next_rows_are_asked_for_ahead() -> None:
    kernel = sums(4096, 1024)
    found = distances(kernel, kernel.stages[0])
    assert [(name, ahead) for (name, _), ahead in found.items()] == [("a0", ROWS * 1024)]
    text = emit(kernel, make_target("x86_64-unknown-linux-gnu", features="+sse2"))
    assert text.count("call void @llvm.prefetch") == 2  # the lines of 8 registers of 16 bytes


def test_nothing_is_asked_for_of_what_is_near() -> None:
    """What the second cache holds, or rows that are neighbours."""
    for shape in ((512, 256), (40000, 64)):
        kernel = sums(*shape)
        assert not any(distances(kernel, stage) for stage in kernel.stages)
