"""Every elementwise operator has a line in every backend's table, for every dtype that its type
rule takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest

from graphc.backends.cuda import scalar as cuda
from graphc.backends.llvm.emit import emit
from graphc.backends.llvm.target import host_target
from graphc.backends.numpy.ops import TABLE
from graphc.ir import dtypes
from graphc.ir.dim import Dim
from graphc.ir.dtypes import DType
from graphc.ir.kernel import Apply, Kernel, Load, Loop, Param, Store
from graphc.ir.op import Op

from .cells import ELEMENTWISE, Cell, cells

V = Dim.var("v")


def numpy_line(cell: Cell) -> None:
    """Raises KeyError without one."""
    _ = TABLE[cell.op.name]


def llvm_line(cell: Cell) -> None:
    """Raises NotImplementedError without one."""
    params = [Param(f"a{n}", dtype, 8, "in") for n, dtype in enumerate(cell.inputs)]
    loads = tuple(Load(f"a{n}", V, dtype) for n, dtype in enumerate(cell.inputs))
    store = Store("o", V, Apply(cell.op.name, loads, cell.result))
    stages = ((Loop("vector", "v", 8, (store,)),),)
    emit(Kernel("k", (*params, Param("o", cell.result, 8, "out")), (), stages), host_target())


def cuda_line(cell: Cell) -> None:
    """Raises NotImplementedError without one."""
    cuda.apply(cell.op.name, cell.result, cell.inputs, list("abc"[: len(cell.inputs)]))


class Table(NamedTuple):
    """Where a backend has its lines, the dtypes that it has, and what asks for a line."""

    file: str
    kinds: Sequence[DType]
    line: Callable[[Cell], None]


REAL = [dtype for dtype in dtypes.ALL if not dtype.is_complex]
TABLES = {
    "numpy": Table("graphc/backends/numpy/elementwise.py", dtypes.ALL, numpy_line),
    "llvm": Table("graphc/backends/llvm/scalar.py or scalar_integer.py", REAL, llvm_line),
    "cuda": Table(
        "graphc/backends/cuda/scalar.py", [d for d in REAL if d.name in cuda.C_TYPES], cuda_line
    ),
}


@pytest.mark.parametrize("op", ELEMENTWISE, ids=lambda op: op.name)
@pytest.mark.parametrize("backend", TABLES)
def test_every_cell_has_a_line(backend: str, op: Op) -> None:
    table = TABLES[backend]
    found = cells(op, table.kinds)
    assert found
    missing = []
    for cell in found:
        try:
            table.line(cell)
        except (KeyError, NotImplementedError):
            missing.append(" x ".join(dtype.name for dtype in cell.inputs))
    assert not missing, f"{table.file} has no line for {op.name} of {', '.join(missing)}"
