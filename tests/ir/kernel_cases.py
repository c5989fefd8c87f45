"""Small graphs and what compiles and runs them, shared by the tests of fusion and lowering."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from graphc.backends.host.machine import CPU
from graphc.backends.numpy import TABLE
from graphc.ir import dtypes, interpret, ops
from graphc.ir.dim import Size
from graphc.ir.graph import Builder, Expr, Graph
from graphc.ir.kernel import Kernel, Launch, Program, leaves
from graphc.ir.kernel.interpret import run_program
from graphc.ir.kernel.text import parse_kernel, print_kernel
from graphc.ir.kernel.verify import verify_kernel
from graphc.ir.machine import Machine
from graphc.ir.passes.fuse import fuse
from graphc.ir.passes.lower import lower
from graphc.ir.passes.plan import plan
from graphc.ir.types import TensorType

f32, i64 = dtypes.f32, dtypes.i64


def build(function: Callable[..., Any], *inputs: Any, dims: dict[str, int] | None = None) -> Graph:
    """The graph of function(*values); an input is a shape (f32) or a (dtype, shape)."""
    builder = Builder()
    for name, hint in (dims or {}).items():
        builder.env.new(name, hint)
    values = []
    for spec in inputs:
        dtype, shape = spec if isinstance(spec[0] if spec else 0, dtypes.DType) else (f32, spec)
        values.append(Expr(builder, builder.input(TensorType(dtype, tuple(shape)))))
    results = function(*values)
    results = results if isinstance(results, (tuple, list)) else (results,)
    return builder.build([r.node for r in results])


def arrays(graph: Graph, seed: int = 0) -> list[np.ndarray]:
    """Random inputs: floats in [-2, 2), integers 0 to 3."""
    rng = np.random.default_rng(seed)
    result = []
    for node in graph.inputs:
        shape = tuple(graph.env.hint(s) for s in node.shape)
        if node.dtype.is_float:
            result.append(rng.uniform(-2, 2, shape).astype(node.dtype.numpy))
        else:
            result.append(rng.integers(0, 4, shape).astype(node.dtype.numpy))
    return result


def assert_close(got: Any, want: Any, dtype: dtypes.DType) -> None:
    tolerance = {"bf16": 0.05, "f16": 0.01, "f32": 2e-4}.get(dtype.name, 1e-9)
    np.testing.assert_allclose(
        np.asarray(got, np.float64), np.asarray(want, np.float64), rtol=tolerance, atol=tolerance
    )


def compiled(
    graph: Graph, mutated: Mapping[int, int] | None = None, machine: Machine = CPU
) -> Program:
    """The program of a graph, for a machine."""
    fused = fuse(graph, machine, mutated=tuple(mutated or ()))
    return plan(fused, lower(fused, machine), machine, mutated=mutated)


def check(
    graph: Graph, mutated: Mapping[int, int] | None = None,
    inputs: list[np.ndarray] | None = None, machine: Machine = CPU,
) -> Program:
    """Fuse, lower, plan, verify and run; results agree with the graph's at every stage."""
    inputs = arrays(graph) if inputs is None else inputs
    want = interpret.evaluate(graph, [x.copy() for x in inputs], TABLE)
    fused = fuse(graph, machine, mutated=tuple(mutated or ()))
    got = interpret.evaluate(fused, [x.copy() for x in inputs], TABLE)
    for g, w, node in zip(got, want, graph.outputs, strict=True):
        assert_close(g, w, node.dtype)
    program = plan(fused, lower(fused, machine), machine, mutated=mutated)
    for kernel in kernels(program):
        verify_kernel(kernel)
        text = print_kernel(kernel)
        assert print_kernel(parse_kernel(text)) == text
    got = run_program(program, [x.copy() for x in inputs], TABLE)
    for g, w, node in zip(got, want, graph.outputs, strict=True):
        assert_close(g, w, node.dtype)
    return program


def kernels(program: Program) -> list[Kernel]:
    """The program's distinct kernels, in order of first use."""
    found: dict[str, Kernel] = {}
    for step in leaves(program.steps):
        if isinstance(step, Launch):
            found.setdefault(print_kernel(step.kernel, name=False), step.kernel)
    return list(found.values())


def only_kernel(function: Callable[..., Any], *inputs: Any, machine: Machine = CPU) -> Kernel:
    """The one kernel that a function is compiled to; its results are checked."""
    program = check(build(function, *inputs), machine=machine)
    assert len(program.steps) == 1, [getattr(s, "ops", s) for s in program.steps]
    (kernel,) = kernels(program)
    return kernel


# --- functions --------------------------------------------------------------------------------


def dot(a: Any, b: Any) -> Any:
    """a @ b.T for matrices."""
    return ops.dot_general(a, b, batch_a=(), batch_b=(), contract_a=(1,), contract_b=(1,))


def total(x: Any, dims: tuple[int, ...], keepdim: bool = False) -> Any:
    return ops.sum(x, dims=dims, keepdim=keepdim)


def softmax(x: Any, dim: int) -> Any:
    e = ops.exp(x - ops.amax(x, dims=(dim,), keepdim=True))
    return e / total(e, (dim,), True)


def layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    last = len(x.shape) - 1
    n: Size = x.shape[last]
    centred = x - total(x, (last,), True) / float(n)  # type: ignore[arg-type]
    variance = total(centred * centred, (last,), True) / float(n)  # type: ignore[arg-type]
    return centred * ops.rsqrt(variance + 1e-5) * weight + bias


def gelu(x: Any) -> Any:
    return x * 0.5 * (ops.erf(x * 0.7071067811865476) + 1.0)


def cross_entropy(x: Any, target: Any) -> Any:
    """Loss per row, and its gradient for the logits."""
    rows, classes = x.shape
    peak = ops.amax(x, dims=(1,), keepdim=True)
    e = ops.exp(x - peak)
    sums = total(e, (1,), True)
    column = ops.reshape(target, shape=(rows, 1))
    loss = ops.log(sums) + peak - ops.gather(x, column, dim=1)
    index = ops.iota.like(x, shape=(rows, classes), dim=1, dtype=i64)
    return ops.reshape(loss, shape=(rows,)), e / sums - ops.cast(ops.eq(index, column), dtype=f32)
