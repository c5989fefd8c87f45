"""What products in a loop read at every step is laid out once, before the loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphc.backends.host.machine import CPU, cpu
from graphc.backends.numpy import TABLE
from graphc.config import Config
from graphc.engine import pipeline
from graphc.ir import dtypes, interpret, ops
from graphc.ir.graph import Builder, Expr, Graph
from graphc.ir.kernel import Launch, Product, Repeat, leaves
from graphc.ir.kernel.interpret import run_program
from graphc.ir.kernel.templates.operand import Panels, panels_of
from graphc.ir.kernel.text import parse_kernel, print_kernel
from graphc.ir.kernel.verify import verify_kernel
from graphc.ir.passes.fuse import fuse
from graphc.ir.passes.lower import lower
from graphc.ir.passes.pack import pack
from graphc.ir.passes.plan import plan
from graphc.ir.record import replaced
from graphc.ir.text_parse import parse_graph
from graphc.ir.types import TensorType
from graphc.ir.verify import verify

from .kernel_cases import arrays, kernels
from .machines import WIDE

QUIET = Config()._replace(cache_dir=None, check=0, threads=2, debug=0, dump=None)


def product(h: Any, w: Any, contract: tuple[int, ...] = (1,)) -> Any:
    """h [m, k] times w, summed over w's dims `contract`."""
    return ops.dot_general(
        h, w, batch_a=(), batch_b=(), contract_a=tuple(range(1, 1 + len(contract))),
        contract_b=contract,
    )


def loop(
    step: Callable[..., Any], m: int, n: int, k: int, shape: tuple[int, ...], steps: Any = 9,
    dtype: dtypes.DType = dtypes.f32,
) -> Graph:
    """A scan that carries h [m, k] and w, unchanged, over x [steps, m, n]; stacks what step(h, w,
    x) gives, and carries its first columns."""
    outer, inner = Builder(), Builder()
    if steps is None:
        steps = outer.env.new("steps", 9)
    shapes = ((m, k), shape, (m, n))
    h, w, x = (Expr(inner, inner.input(TensorType(dtype, s))) for s in shapes)
    y = step(h, w, x)
    after = ops.tanh(ops.sum(y, dims=(1,), keepdim=True) + h)
    body = inner.build([after.node, w.node, y.node], "body")
    values = [
        Expr(outer, outer.input(TensorType(dtype, s))) for s in ((m, k), shape, (steps, m, n))
    ]
    results = ops.scan(*values, n_carried=2, reverse=False, graphs=(body,))
    return outer.build([result.node for result in results])


def products(graph: Graph) -> list[Product]:
    """The products inside the graph's loop, for the CPU."""
    program = plan(graph, lower(graph, CPU), CPU)
    repeats = [step for step in program.steps if isinstance(step, Repeat)]
    found = [s.kernel for r in repeats for s in leaves(r.steps) if isinstance(s, Launch)]
    return [k.template for k in found if isinstance(k.template, Product)]


def agrees(graph: Graph, dims: tuple[int, ...] = ()) -> Graph:
    """The packed graph: means the same as it is, fused, as kernels, and natively."""
    inputs = arrays(graph)
    if dims:
        inputs[2] = np.random.default_rng(2).random((*dims, *inputs[2].shape[1:]), np.float32)
    env = dict(zip(graph.env.hints, dims, strict=True))
    want = interpret.evaluate(graph, inputs, TABLE, env)
    packed = pack(graph, CPU)
    verify(packed)
    assert str(parse_graph(str(packed))) == str(packed)
    fused = fuse(packed, CPU)
    program = plan(fused, lower(fused, CPU), CPU)
    for kernel in kernels(program):
        verify_kernel(kernel)
        assert parse_kernel(print_kernel(kernel)) == kernel
    built = pipeline.build(graph, config=QUIET)
    native = [np.empty(want[i].shape, want[i].dtype) for i in range(len(want))]
    built.run(inputs, native, dims)
    for got in (
        interpret.evaluate(packed, inputs, TABLE, env), run_program(program, inputs, TABLE), native,
    ):
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4)
    return packed


@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.f64], ids=str)
@pytest.mark.parametrize(("m", "n", "k"), [(32, 512, 128), (3, 128, 7), (1, 192, 500), (40, 64, 9)])
def test_a_weight_along_k_lies_in_panels(m: int, n: int, k: int, dtype: dtypes.DType) -> None:
    graph = loop(lambda h, w, x: product(h, w) + x, m, n, k, (n, k), dtype=dtype)
    (template,) = products(fuse(agrees(graph), CPU))
    columns = 64 if dtype is dtypes.f32 else 32
    if n > columns:
        assert panels_of(template.right.index) == Panels(0, columns, columns * k)


def test_other_widths_are_laid_out_along_n() -> None:
    graph = loop(lambda h, w, x: product(h, w) + x, 5, 200, 30, (200, 30))
    (template,) = products(fuse(agrees(graph), CPU))
    assert str(template.right.index) == "(200*k + n)"


def test_many_weights_along_n_lie_in_panels_too() -> None:
    """More than a block of k, more than is read in place."""
    graph = loop(lambda h, w, x: product(h, w, (0,)) + x, 30, 640, 500, (500, 640), steps=8)
    (template,) = products(fuse(agrees(graph), CPU))
    assert panels_of(template.right.index) == Panels(0, 64, 64 * 500)


@pytest.mark.parametrize(
    ("m", "n", "k", "shape", "contract"),
    [(5, 128, 30, (30, 128), (0,)), (5, 8, 30, (8, 30), (1,))], ids=["along n", "few columns"],
)
def test_what_lies_well_stays(
    m: int, n: int, k: int, shape: tuple[int, ...], contract: tuple[int, ...]
) -> None:
    graph = loop(lambda h, w, x: product(h, w, contract) + x, m, n, k, shape)
    assert agrees(graph) is graph


def test_several_dims_are_summed_and_a_weight_is_read_twice() -> None:
    def step(h: Any, w: Any, x: Any) -> Any:
        split = ops.reshape(h, shape=(6, 4, 8))
        first = product(split, w, (1, 2)) + x
        flat = ops.reshape(w, shape=(128, 32))
        return first + product(h, flat) * product(ops.tanh(split), w, (1, 2))

    graph = loop(step, 6, 128, 32, (128, 4, 8))
    packed = agrees(graph)
    (scan,) = [node for node in packed.nodes if node.op.name == "scan"]
    assert scan.attrs["n_carried"] == 3  # one layout for both products


def test_the_number_of_steps_may_be_a_named_dim() -> None:
    graph = loop(lambda h, w, x: product(h, w) + x, 6, 128, 32, (128, 32), steps=None)
    for steps in (1, 2, 9):
        assert agrees(graph, (steps,)) is not graph


def test_what_the_loop_changes_is_not_packed() -> None:
    outer, inner = Builder(), Builder()
    shapes = ((128, 32), (6, 32))
    w, x = (Expr(inner, inner.input(TensorType(dtypes.f32, s))) for s in shapes)
    body = inner.build([ops.tanh(w).node, product(x, w).node], "body")
    values = [
        Expr(outer, outer.input(TensorType(dtypes.f32, s))) for s in ((128, 32), (9, 6, 32))
    ]
    results = ops.scan(*values, n_carried=1, reverse=False, graphs=(body,))
    graph = outer.build([result.node for result in results])
    assert pack(graph, CPU) is graph


def test_panels_of_a_users_own_are_read_as_they_lie_only_in_the_type_of_sums() -> None:
    for dtype in (dtypes.f32, dtypes.f16, dtypes.bf16):
        for columns in (64, 128, 32):
            builder = Builder()
            h, w = (
                Expr(builder, builder.input(TensorType(dtype, s)))
                for s in ((5, 7), (3, 7, columns))
            )
            graph = builder.build([product(h, w).node])
            built = pipeline.build(graph, config=QUIET)
            inputs = [x.astype(dtype.numpy) for x in arrays(graph)]
            (want,) = interpret.evaluate(graph, inputs, TABLE)
            got = np.empty(want.shape, want.dtype)
            built.run(inputs, [got])
            np.testing.assert_allclose(
                got.astype(np.float32), want.astype(np.float32), rtol=2e-2, atol=2e-2
            )


def test_a_short_loop_packs_nothing() -> None:
    graph = loop(lambda h, w, x: product(h, w) + x, 6, 128, 32, (128, 32), steps=7)
    assert pack(graph, CPU) is graph


def test_a_machine_without_tiles_packs_nothing() -> None:
    graph = loop(lambda h, w, x: product(h, w) + x, 6, 128, 32, (128, 32))
    assert pack(graph, WIDE) is graph and pack(graph, replaced(CPU, tiling=None)) is graph


@pytest.mark.parametrize(("n", "k"), [(512, 128), (70, 9)])
def test_a_weight_of_halves_lies_in_panels_of_pairs(n: int, k: int) -> None:
    """Of any width: none is read where it lies."""
    pairs = cpu(64, 32, ("bf16",))
    graph = loop(lambda h, w, x: product(h, w) + x, 16, n, k, (n, k), dtype=dtypes.bf16)
    inputs = [x.astype(dtypes.bf16.numpy) for x in arrays(graph)]
    packed = pack(graph, pairs)
    verify(packed)
    fused = fuse(packed, pairs)
    program = plan(fused, lower(fused, pairs), pairs)
    (template,) = [
        x.template for x in kernels(program) if isinstance(x.template, Product)
    ]
    found = panels_of(template.right.index)
    assert found is not None and (found.columns, found.group) == (64, 2)
    want = interpret.evaluate(graph, inputs, TABLE, {})
    for got in (interpret.evaluate(packed, inputs, TABLE, {}), run_program(program, inputs, TABLE)):
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(
                a.astype(np.float32), b.astype(np.float32), rtol=2e-2, atol=2e-2
            )
