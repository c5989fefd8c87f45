"""Products in front of a loop become part of the loop's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphc.backends.host.machine import CPU
from graphc.backends.numpy import TABLE
from graphc.config import Config
from graphc.engine import pipeline
from graphc.ir import dtypes, interpret, ops
from graphc.ir.graph import Builder, Expr, Graph
from graphc.ir.passes.absorb import absorb
from graphc.ir.record import replaced
from graphc.ir.text_parse import parse_graph
from graphc.ir.types import TensorType
from graphc.ir.verify import verify

from .kernel_cases import arrays
from .machines import WIDE

QUIET = Config()._replace(cache_dir=None, check=0, threads=2, debug=0, dump=None)
M, N, K = 32, 64, 24


def product(x: Any, w: Any, contract: int = 1) -> Any:
    """x, its last dim summed with dim `contract` of w."""
    return ops.dot_general(
        x, w, batch_a=(), batch_b=(), contract_a=(len(x.shape) - 1,), contract_b=(contract,)
    )


def step(row: Any, h: Any, v: Any) -> Any:
    return row + product(h, v)


def in_front(x: Any, u: Any, b: Any) -> Any:
    return product(x, u) + b


def loop(
    front: Callable[..., Any] = in_front, step: Callable[..., Any] = step, *, rows: int = M,
    steps: Any = 9, k: int = 40, u: tuple[int, ...] | None = None, keep: bool = False,
    dtype: dtypes.DType = dtypes.f32, reverse: bool = False,
) -> Graph:
    """A scan that carries h [rows, K] and v [N, K], unchanged, over front(x [steps, rows, k], u
    [N, k], b [N]), and stacks step(row, h, v); with `keep` the sequence is a result, too."""
    outer, inner = Builder(), Builder()
    if steps is None:
        steps = outer.env.new("steps", 9)
    h, v, row = (
        Expr(inner, inner.input(TensorType(dtype, s))) for s in ((rows, K), (N, K), (rows, N))
    )
    y = step(row, h, v)
    body = inner.build([_next(y).node, v.node, y.node], "body")
    shapes = ((rows, K), (N, K), (steps, rows, k), u or (N, k), (N,))
    hs, vs, x, us, b = (Expr(outer, outer.input(TensorType(dtype, s))) for s in shapes)
    sequence = front(x, us, b)
    results = ops.scan(hs, vs, sequence, n_carried=2, reverse=reverse, graphs=(body,))
    return outer.build([r.node for r in results] + ([sequence.node] if keep else []))


def _next(y: Any) -> Any:
    """What a step hands on: so little that rounding errors die out."""
    rows = y.shape[0]
    return ops.tanh(ops.slice(y, starts=(0, 0), stops=(rows, K), steps=(1, 1)) * 0.01)


def agrees(graph: Graph, dims: tuple[int, ...] = ()) -> Graph:
    """The graph with its products absorbed, which means the same, and natively."""
    inputs = arrays(graph)
    if dims:
        inputs[2] = np.random.default_rng(2).random((*dims, *inputs[2].shape[1:]), np.float32)
    env = dict(zip(graph.env.hints, dims, strict=True))
    want = interpret.evaluate(graph, inputs, TABLE, env)
    absorbed = absorb(graph, CPU)
    verify(absorbed)
    assert str(parse_graph(str(absorbed))) == str(absorbed)
    built = pipeline.build(graph, config=QUIET)
    native = [np.empty(x.shape, x.dtype) for x in want]
    built.run(inputs, native, dims)
    for got in (interpret.evaluate(absorbed, inputs, TABLE, env), native):
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    return absorbed


def products(graph: Graph) -> list[tuple[int, ...]]:
    """The shapes of the left operands of products in front of the loop, and in it."""
    (scan,) = [node for node in graph.nodes if node.op.name == "scan"]
    nodes = (*graph.nodes, *scan.graphs[0].nodes)
    return [node.inputs[0].shape for node in nodes if node.op.name == "dot_general"]


@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.f64], ids=str)
@pytest.mark.parametrize("reverse", [False, True])
def test_both_products_are_one(dtype: dtypes.DType, reverse: bool) -> None:
    graph = loop(dtype=dtype, reverse=reverse)
    assert products(agrees(graph)) == [(M, 40 + K)]


def test_without_an_offset_and_with_the_sum_the_other_way_round() -> None:
    graph = loop(lambda x, u, b: product(x, u), lambda row, h, v: product(h, v) + row)
    assert products(agrees(graph)) == [(M, 40 + K)]


def test_the_weight_may_lie_the_other_way() -> None:
    graph = loop(lambda x, u, b: b + product(x, u, 0), u=(40, N))
    assert products(agrees(graph)) == [(M, 40 + K)]


def test_the_number_of_steps_may_be_a_named_dim() -> None:
    graph = loop(steps=None)
    for steps in (1, 2, 9):
        assert products(agrees(graph, (steps,))) == [(M, 40 + K)]


def test_two_sequences_of_one_sum_give_one_joint() -> None:
    """What is added to a product that has absorbed one is added as before."""
    outer, inner = Builder(), Builder()
    shapes = ((M, K), (N, K), (M, N), (M, N))
    h, v, first, second = (Expr(inner, inner.input(TensorType(dtypes.f32, s))) for s in shapes)
    y = (first + product(h, v)) + second
    body = inner.build([_next(y).node, v.node, y.node], "body")
    given = ((M, K), (N, K), (9, M, 40), (N, 40))
    hs, vs, x, u = (Expr(outer, outer.input(TensorType(dtypes.f32, s))) for s in given)
    sequences = product(x, u), product(ops.tanh(x), u)
    results = ops.scan(hs, vs, *sequences, n_carried=2, reverse=False, graphs=(body,))
    graph = outer.build([r.node for r in results])
    assert products(agrees(graph)) == [(9, M, 40), (M, 40 + K)]


KEPT: dict[str, dict[str, Any]] = {
    "a result": {"keep": True},
    "few rows": {"rows": CPU.tiling.joint_rows - 1 if CPU.tiling else 0},
    "few steps": {"steps": 7},
    "wide rows": {"k": N + 1},
    "two readers": {"step": lambda row, h, v: row * (row + product(h, v))},
    "no sum": {"step": lambda row, h, v: row * product(h, v)},
    "the product is read": {"step": lambda row, h, v: (p := product(h, v)) * (row + p)},
    "an offset of each step": {"front": lambda x, u, b: (p := product(x, u)) + ops.tanh(p)},
    "no product": {"front": lambda x, u, b: ops.tanh(product(x, u))},
}


@pytest.mark.parametrize("case", KEPT)
def test_what_stays(case: str) -> None:
    graph = loop(**KEPT[case])
    assert agrees(graph) is graph


def test_a_weight_that_fits_no_cache_stays() -> None:
    assert CPU.tiling is not None
    small = replaced(CPU, tiling=replaced(CPU.tiling, in_place_bytes=N * (40 + K) * 4 - 1))
    graph = loop()
    assert absorb(graph, small) is graph and absorb(graph, CPU) is not graph


def test_a_machine_without_tiles_absorbs_nothing() -> None:
    graph = loop()
    assert absorb(graph, WIDE) is graph and absorb(graph, replaced(CPU, tiling=None)) is graph
