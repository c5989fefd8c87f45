"""Products whose right operand lies in panels of words: laid out by operators, read as it lies."""

from __future__ import annotations

import numpy as np
import pytest

from graphc.backends.llvm.target import Target, host_target
from graphc.backends.numpy import TABLE
from graphc.ir import dtypes, interpret, ops
from graphc.ir.dtypes import DType
from graphc.ir.graph import Builder, Expr
from graphc.ir.kernel import Kernel, Product
from graphc.ir.kernel.steps import step_of
from graphc.ir.kernel.templates.operand import panels_of
from graphc.ir.kernel.text import parse_kernel, print_kernel
from graphc.ir.kernel.verify import verify_kernel
from graphc.ir.passes.fuse import fuse
from graphc.ir.passes.lower import lower
from graphc.ir.passes.panels import Panels, panels_for
from graphc.ir.types import TensorType

from .contractions import guarded, run, unharmed

HOST = host_target()._replace(cpu="znver5")  # whose pairs are fast
SLOW = HOST._replace(cpu="emeraldrapids")
TARGETS = [HOST, HOST._replace(matrix="emulated")]
SHAPES = [  # rows, columns, k
    (7, 65, 9),
    (1, 300, 129),
    (50, 10, 70),  # less than a panel
    (33, 64, 3),
    (40, 130, 1805),  # k in blocks, the last word ragged
    (23, 67, 8203),  # k split between chunks
    (300, 200, 301),
    (70, 33, 2048),
]
has_pairs = pytest.mark.skipif(
    HOST.machine.tiling is None or "bf16" not in HOST.machine.tiling.steps,
    reason="this CPU multiplies no pairs of bfloat16",
)


def laid_out(
    rows: int, columns: int, k: int, dtype: DType, target: Target, wide: bool = False
) -> tuple[Kernel, Panels]:
    """The kernel of a product with panels, and what they are like. `wide`: operands are halves that
    are widened, as a layer with a bias has them."""
    probe, builder = Builder(), Builder()
    types = TensorType(dtype, (rows, k)), TensorType(dtype, (columns, k))
    attrs = {"batch_a": (), "batch_b": (), "contract_a": (1,), "contract_b": (1,)}
    a, w = (Expr(probe, probe.input(type_)) for type_ in types)
    assert target.machine.tiling is not None
    panels = panels_for(ops.dot_general(a, w, **attrs).node, target.machine.tiling, rows)
    assert panels is not None
    made = panels.made(probe, w.node)
    left, packed = builder.input(types[0]), builder.input(made.tensor_type)
    x, y = Expr(builder, left), Expr(builder, panels.rows(builder, packed, w.node))
    if wide:
        x, y = (ops.cast(each, dtype=dtypes.f32) for each in (x, y))
    graph = builder.build([ops.dot_general(x, y, **attrs).node])
    fused = fuse(graph, target.machine, lambda node: False)
    (found,) = lower(fused, target.machine).values()
    return found.kernel, panels


def packed_by(panels: Panels, weight: np.ndarray, dtype: DType) -> np.ndarray:
    """A weight in panels, as the operators mean it."""
    builder = Builder()
    node = builder.input(TensorType(dtype, weight.shape))
    graph = builder.build([panels.made(builder, node)])
    (found,) = interpret.evaluate(graph, [weight], TABLE)
    return np.ascontiguousarray(found)


def check(shape: tuple[int, int, int], dtype: DType, target: Target, wide: bool = False) -> bytes:
    rows, columns, k = shape
    kernel, panels = laid_out(rows, columns, k, dtype, target, wide)
    verify_kernel(kernel)
    assert parse_kernel(print_kernel(kernel)) == kernel
    template = kernel.template
    assert isinstance(template, Product) and target.machine.tiling is not None
    step = step_of(template, target.machine.tiling)
    found = panels_of(template.right.index)
    assert found is not None and (found.columns, found.group) == panels.shape
    assert step.group == panels.shape.group
    rng = np.random.default_rng(rows)
    a, w = (rng.standard_normal(s).astype(dtype.numpy) for s in ((rows, k), (columns, k)))
    whole, left = guarded(a.size, dtype.numpy)
    whole[:] = np.nan  # what lies beside is not multiplied, not even by zero
    left[:] = a.ravel()
    packed = packed_by(panels, w, dtype)
    beside, right = guarded(packed.size, dtype.numpy)
    beside[:] = np.nan
    right[:] = packed.ravel()
    memory, result = guarded(rows * columns, dtypes.f32.numpy if wide else dtype.numpy)
    operands = {template.left.buffer: left, template.right.buffer: right}
    buffers = [operands.get(param.name, result) for param in kernel.params]
    run(kernel, buffers, target=target, threads=3)
    assert unharmed(memory)
    exact = a.astype(np.float64) @ w.astype(np.float64).T
    bound = np.abs(a.astype(np.float64)) @ np.abs(w.astype(np.float64)).T
    unit = 2e-6 if wide or dtype is dtypes.f32 else 2.0**-8
    assert (np.abs(result.reshape(rows, columns) - exact) <= unit * bound + 1e-30).all()
    return result.tobytes()


@has_pairs
@pytest.mark.parametrize("target", TARGETS, ids=["registers", "a matrix unit"])
def test_pairs_of_every_shape(target: Target) -> None:
    for shape in SHAPES:
        check(shape, dtypes.bf16, target)
    check(SHAPES[1], dtypes.bf16, target, wide=True)
    check(SHAPES[6], dtypes.bf16, target, wide=True)


@has_pairs
@pytest.mark.parametrize("matrix", ["", "emulated"])
def test_slow_pairs_are_for_few_rows_or_a_matrix_unit(matrix: str) -> None:
    target = SLOW._replace(matrix=matrix)
    for shape in SHAPES:
        if shape[0] <= 32 or (matrix and shape[1] > 16):
            check(shape, dtypes.bf16, target)
        else:
            with pytest.raises(AssertionError):
                laid_out(*shape, dtypes.bf16, target)


@has_pairs
def test_a_matrix_unit_has_panels_of_its_own_tiles() -> None:
    tiling = TARGETS[1].machine.tiling
    assert tiling is not None
    for rows, name in ((64, "bf16m"), (5, "bf16")):  # few rows are too little for it
        kernel, _ = laid_out(rows, 96, 64, dtypes.bf16, TARGETS[1])
        assert isinstance(kernel.template, Product)
        assert step_of(kernel.template, tiling).name == name


def test_single_values() -> None:
    for dtype in (dtypes.f32, dtypes.f64):
        for shape in ((7, 65, 9), (40, 130, 905)):
            kernel, panels = laid_out(*shape, dtype, HOST)
            assert panels.shape.group == 1 and isinstance(kernel.template, Product)
            assert panels_of(kernel.template.right.index) is not None
    check((40, 130, 905), dtypes.f32, HOST)

