"""Rows whose numbers are looked up are read along themselves; numbers are no code of a kernel."""

from __future__ import annotations

from typing import Any

import pytest

from graphc.ir import dtypes, ops
from graphc.ir.kernel.text import print_kernel

from .kernel_cases import build, check, f32, kernels
from .machines import TINY, WIDE

ROWS, PAIRS = (40, 64), (dtypes.i64, (300,))


def distances(x: Any, first: Any, second: Any) -> Any:
    apart = ops.index(x, first, dim=0) - ops.index(x, second, dim=0)
    return ops.sqrt(ops.sum(apart * apart, dims=(1,), keepdim=False))


def test_pairs_of_rows_are_read_row_by_row() -> None:
    """A lane for each pair read numbers from all over: ten times as slow."""
    program = check(build(distances, ROWS, PAIRS, PAIRS))
    text = "\n".join(print_kernel(k) for k in kernels(program))
    assert "vector v in [64] carry" in text and "serial r0" not in text


@pytest.mark.parametrize("machine", [TINY, WIDE], ids=["tiny", "wide"])
def test_on_another_machine(machine: Any) -> None:
    check(build(distances, ROWS, PAIRS, PAIRS), machine=machine)


def test_a_bag_goes_along_what_it_keeps() -> None:
    def bags(x: Any, places: Any) -> Any:
        return ops.sum(ops.index(x, places, dim=0), dims=(1,), keepdim=False)

    program = check(build(bags, ROWS, (dtypes.i64, (30, 50))))
    assert "vector v in [64] {" in "\n".join(print_kernel(k) for k in kernels(program))


def test_numbers_are_in_the_kernels_that_read_them_however_many_these_compute() -> None:
    """Each had a kernel of its own, which wrote it to memory."""

    def much(x: Any) -> Any:
        for i in range(60):
            x = ops.maximum(x * (1.0 + i / 64), -x)
        return x

    program = check(build(much, (f32, (64,))))
    assert not any("fill" in k.name for k in kernels(program))
    assert not any(p.size == 1 for k in kernels(program) for p in k.params)
