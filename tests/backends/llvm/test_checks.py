"""Data-dependent positions and divisors in compiled graphs: what is wrong raises before anything
that the caller sees is written, and nothing is read or written outside the buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from graphc import config
from graphc.backends.host.machine import CPU
from graphc.backends.numpy import TABLE
from graphc.engine import pipeline
from graphc.ir import dtypes, interpret, ops
from graphc.ir.graph import Builder, Expr, Graph
from graphc.ir.kernel import Launch
from graphc.ir.passes.lower.body import Body
from graphc.ir.passes.lower.kinds import SCATTER_UNCHECKED
from graphc.ir.types import TensorType

from .native import GUARD, Native

f32, i64 = dtypes.f32, dtypes.i64
RNG = np.random.default_rng(12)
WILD = (1 << 20, 1 << 40, -(1 << 40), -(1 << 62), (1 << 63) - 1)


class Case(NamedTuple):
    """A graph over float inputs and one i64 input, the last, whose values are positions (below
    `size`) or divisors (`size` 0)."""

    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    size: int
    wraps: bool = False
    mutated: dict[int, int] = {}


def graph_of(case: Case) -> Graph:
    builder = Builder()
    values = []
    for number, shape in enumerate(case.shapes):
        dtype = i64 if number == len(case.shapes) - 1 else f32
        values.append(Expr(builder, builder.input(TensorType(dtype, shape))))
    results = case.function(*values)
    results = results if isinstance(results, tuple) else (results,)
    return builder.build([r.node for r in results])


def inputs_of(case: Case) -> list[np.ndarray]:
    *floats, last = case.shapes
    high = case.size or 5
    made = [RNG.standard_normal(shape).astype("f4") for shape in floats]
    return [*made, RNG.integers(1 if case.size == 0 else 0, high, last)]


class Guarded:
    """An array between bytes that a write outside it would change."""

    MARGIN = 4096

    def __init__(self, array: np.ndarray) -> None:
        self.memory = np.full(array.nbytes + 2 * self.MARGIN, GUARD, np.uint8)
        inner = self.memory[self.MARGIN : self.MARGIN + array.nbytes]
        self.array = inner.view(array.dtype).reshape(array.shape)
        self.array[...] = array

    def check(self) -> None:
        outside = self.memory[: self.MARGIN], self.memory[self.memory.size - self.MARGIN :]
        assert all((part == GUARD).all() for part in outside), "a write outside a buffer"


def run(built: Any, arrays: list[np.ndarray], mutated: dict[int, int]) -> list[np.ndarray]:
    """A call over guarded copies; the results, or what it raises when inputs are as they were."""
    inputs = [Guarded(a) for a in arrays]
    types = built.program.output_types
    fresh = [
        Guarded(np.zeros(t.shape, t.dtype.numpy)) if i not in mutated else inputs[mutated[i]]
        for i, t in enumerate(types)
    ]
    try:
        built.run([g.array for g in inputs], [g.array for g in fresh])
    except Exception:
        for guarded, before in zip(inputs, arrays, strict=True):
            assert guarded.array.tobytes() == before.tobytes(), "an input was written"
        raise
    finally:
        for guarded in (*inputs, *fresh):
            guarded.check()
    return [g.array for g in fresh]


def _row(i: Any, shape: tuple[int, ...]) -> Any:
    return ops.expand(ops.reshape(i, shape=(shape[0], 1)), shape=shape)


def _dot(a: Any, b: Any) -> Any:
    return ops.dot_general(a, b, batch_a=(), batch_b=(), contract_a=(1,), contract_b=(0,))


def _as_float(x: Any) -> Any:
    return ops.cast(x, dtype=f32)


def _sum(x: Any, *dims: int) -> Any:
    return ops.sum(x, dims=dims, keepdim=False)


def _embedding(w: Any, g: Any, i: Any) -> Any:
    zeros = ops.full.like(w, shape=w.shape, value=0.0, dtype=f32)
    return ops.index_put(zeros, g, i, dim=0, accumulate=True)


def _trained(w: Any, i: Any) -> Any:
    """An embedding and its gradient in one graph, with the table written back."""
    rows = ops.index(w, i, dim=0)
    return _sum(ops.exp(rows), 0, 1), w - _embedding(w, ops.exp(rows), i)


def _sgd(w: Any, x: Any, i: Any) -> Any:
    """A product's gradient written into w, beside a lookup that may fail."""
    picked = ops.gather(x, ops.reshape(i, shape=(i.shape[0], 1)), dim=1)
    gradient = ops.dot_general(
        x, x, batch_a=(), batch_b=(), contract_a=(0,), contract_b=(0,)
    )
    return _sum(picked, 0, 1), w - gradient * 0.1


W, IDS = (10, 48), (64,)

POSITIONS: dict[str, Case] = {
    "index": Case(lambda w, i: ops.index(w, i, dim=0), (W, IDS), 10, True),
    "index of columns": Case(lambda w, i: ops.index(w, i, dim=1), ((48, 10), IDS), 10, True),
    "index, then rows": Case(
        lambda w, i: _sum(ops.exp(ops.index(w, i, dim=0)), 1), (W, IDS), 10, True,
    ),
    "index, then everything": Case(
        lambda w, i: _sum(ops.index(w, i, dim=0), 0, 1), ((10, 4800), IDS), 10, True,
    ),
    "index, then columns": Case(
        lambda w, i: _sum(ops.index(w, i, dim=0), 0), ((10, 400), (900,)), 10, True,
    ),
    "index of two dims": Case(
        lambda w, i: ops.index(w, i, i, dim=0), ((10, 10, 5), IDS), 10, True,
    ),
    "index on the way into a product": Case(
        lambda w, v, i: _dot(ops.index(w, i, dim=0), v), (W, (48, 30), IDS), 10, True,
    ),
    "index beside a product": Case(
        lambda a, b, w, i: _dot(a, b) + ops.index(w, i, dim=0), ((64, 32), (32, 48), W, IDS), 10,
        True,
    ),
    "index of padding": Case(
        lambda w, i: ops.pad(ops.index(w, i, dim=0), low=(1, 2), high=(2, 1), interior=(0, 0),
                             value=0.0), (W, IDS), 10, True,
    ),
    "index in a concat": Case(
        lambda w, x, i: ops.concat(ops.index(w, i, dim=0), x, dim=0), (W, (5, 48), IDS), 10, True,
    ),
    "index, then a window": Case(
        lambda w, i: ops.max_pool(ops.index(w, i, dim=0), window=(2, 2), stride=(2, 2),
                                  pad_low=(0, 0), pad_high=(0, 0), dilation=(1, 1))[0],
        (W, IDS), 10, True,
    ),
    "index, then a running sum": Case(
        lambda w, i: ops.cumsum(ops.index(w, i, dim=0), dim=1), (W, IDS), 10, True,
    ),
    "gather": Case(lambda w, i: ops.gather(w, _row(i, (64, 48)), dim=0),
                   ((70, 48), IDS), 70),
    "gather of columns": Case(
        lambda w, i: ops.gather(w, _row(i, (64, 3)), dim=1), ((64, 20), IDS), 20,
    ),
    "gather, then everything": Case(
        lambda w, i: _sum(ops.gather(w, _row(i, (64, 300)), dim=0), 0, 1), ((70, 300), IDS), 70,
    ),
    "scatter": Case(
        lambda w, s, i: ops.scatter(w, _row(i, (64, 48)), s, dim=0, reduce=""),
        (W, (64, 48), IDS), 10,
    ),
    "scatter add of columns": Case(
        lambda w, s, i: ops.scatter(w, _row(i, (64, 48)), s, dim=1, reduce="add"),
        ((64, 10), (64, 48), IDS), 10,
    ),
    "index_put": Case(
        lambda w, s, i: ops.index_put(w, s, i, dim=0, accumulate=False), (W, (64, 48), IDS), 10,
        True,
    ),
    "index_put of columns": Case(
        lambda w, s, i: ops.index_put(w, s, i, dim=1, accumulate=True),
        ((48, 10), (48, 64), IDS), 10, True,
    ),
    "index_put, its index seen in part": Case(
        lambda w, s, i: (
            ops.slice(ops.index(w, i, dim=0), starts=(0, 0), stops=(2, 48), steps=(1, 1)),
            ops.index_put(w, s, i, dim=0, accumulate=True),
        ),
        (W, (64, 48), IDS), 10, True,
    ),
    "an embedding's gradient by itself": Case(_embedding, (W, (64, 48), IDS), 10, True),
    "an embedding with its gradient": Case(_trained, (W, IDS), 10, True, {1: 0}),
    "max_pool's gradient": Case(
        lambda g, i: ops.max_pool_grad(
            g, ops.reshape(i, shape=(4, 4, 4)), plane_shape=(8, 8)
        ),
        ((4, 4, 4), IDS), 64,
    ),
    "a step with a lookup": Case(_sgd, ((48, 48), (64, 48), IDS), 48, False, {1: 0}),
    "written in place": Case(
        lambda w, i: ops.index_put(w, ops.full.like(w, shape=(), value=1.0, dtype=f32), i, dim=0,
                                   accumulate=True), (W, IDS), 10, True, {0: 0},
    ),
}


def _divided(x: Any, i: Any) -> Any:
    return ops.floor_divide(ops.cast(x, dtype=i64), i)


D = (40, 40)

DIVISORS: dict[str, Case] = {
    **{
        name: Case(
            lambda x, i, op=op: getattr(ops, op)(ops.cast(x, dtype=i64), i), (D, D), 0
        )
        for name, op in (("//", "floor_divide"), ("%", "remainder"),
                         ("trunc", "trunc_divide"), ("fmod", "fmod"))
    },
    "row sums": Case(lambda x, i: _sum(_divided(x, i), 1), (D, D), 0),
    "everything": Case(lambda x, i: _sum(_divided(x, i), 0, 1), ((300, 300), (300, 300)), 0),
    "after a product": Case(lambda a, b, i: _divided(_dot(a, b), i), (D, D, D), 0),
    "after a product, as a float": Case(
        lambda a, b, i: _as_float(_divided(_dot(a, b), i)) * 2.0, (D, D, D), 0,
    ),
    "beside a product": Case(
        lambda a, b, i: _dot(a, b) * _as_float(_divided(a, i)), (D, D, D), 0,
    ),
    "after a convolution": Case(
        lambda a, w, i: _divided(
            ops.reshape(
                ops.conv(ops.reshape(a, shape=(1, 1, 40, 40)), w, stride=(1, 1), pad_low=(1, 1),
                         pad_high=(1, 1), dilation=(1, 1), groups=1), shape=D,
            ), i,
        ), (D, (1, 1, 3, 3), D), 0,
    ),
    "into a product": Case(lambda a, i: _dot(_as_float(_divided(a, i)), a), (D, D), 0),
    "into a window": Case(
        lambda a, i: ops.window_sum(_as_float(_divided(a, i)), window=(2, 2), stride=(1, 1),
                                    pad_low=(0, 0), pad_high=(0, 0), dilation=(1, 1)), (D, D), 0,
    ),
    "into a running sum": Case(lambda a, i: ops.cumsum(_divided(a, i), dim=0), (D, D), 0),
    "a maximum's place": Case(
        lambda a, i: ops.argmax(_divided(a, i), dim=1, keepdim=False), (D, D), 0,
    ),
    "into a buffer": Case(
        lambda w, i: (w + _as_float(_divided(w, i)), w * 2.0), (D, D), 0, False, {0: 0},
    ),
    "beside a buffer's update": Case(
        lambda w, v, i: (w * 2.0, _sum(_divided(v, i), 0, 1)), (D, D, D), 0, False, {0: 0},
    ),
    "beside a product written back": Case(
        lambda w, v, i: (w - _dot(w, v) * 0.1, _sum(_divided(v, i), 0, 1)), (D, D, D), 0, False,
        {0: 0},
    ),
}


def compiled(case: Case) -> tuple[Graph, Any]:
    graph = graph_of(case)
    return graph, pipeline.build(graph, config=config.current(), mutated=case.mutated)


def compare(case: Case, graph: Graph, built: Any, arrays: list[np.ndarray]) -> None:
    want = interpret.evaluate(graph, [a.copy() for a in arrays], TABLE)
    for have, expected in zip(run(built, arrays, case.mutated), want, strict=True):
        np.testing.assert_allclose(have, expected, rtol=2e-3, atol=2e-4)


def places(shape: tuple[int, ...]) -> list[int]:
    """The first, the last and one position between, of a flat tensor."""
    size = int(np.prod(shape))
    return sorted({0, size // 3, size - 1})


@pytest.mark.parametrize("name", POSITIONS)
def test_positions_out_of_range_raise_and_write_nothing(name: str) -> None:
    case = POSITIONS[name]
    graph, built = compiled(case)
    arrays = inputs_of(case)
    compare(case, graph, built, arrays)
    below = -case.size - 1 if case.wraps else -1
    for place in places(case.shapes[-1]):
        for bad in (case.size, below, *WILD):
            wrong = [*arrays[:-1], arrays[-1].copy()]
            wrong[-1].reshape(-1)[place] = bad
            with pytest.raises(IndexError, match=rf"(index|Index) {bad} is out of bounds"):
                run(built, wrong, case.mutated)
    compare(case, graph, built, arrays)  # and the next call is as good as ever
    if case.wraps:
        negative = [*arrays[:-1], arrays[-1] - case.size]
        compare(case, graph, built, negative)


@pytest.mark.parametrize("name", DIVISORS)
def test_divisions_by_zero_raise_and_write_nothing(name: str) -> None:
    case = DIVISORS[name]
    graph, built = compiled(case)
    arrays = inputs_of(case)
    compare(case, graph, built, arrays)
    for place in places(case.shapes[-1]):
        wrong = [*arrays[:-1], arrays[-1].copy()]
        wrong[-1].reshape(-1)[place] = 0
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            run(built, wrong, case.mutated)
    compare(case, graph, built, arrays)


def test_a_product_with_a_harmless_division_stays_one_kernel() -> None:
    case = Case(
        lambda a, b, i: ops.floor_divide(
            ops.cast(_dot(a, b), dtype=i64), ops.full.like(a, shape=(), value=3, dtype=i64)
        ) + i, (D, D, D), 0,
    )
    graph, built = compiled(case)
    compare(case, graph, built, inputs_of(case))
    assert len([s for s in built.program.steps if isinstance(s, Launch)]) == 1


def kinds(built: Any) -> set[str]:
    return {n.attrs["kind"] for n in built.fused.nodes if n.op.name == "fusion"}


def test_which_scatters_are_not_checked() -> None:
    """Those whose positions some other kernel of the graph looks up, every one of them."""
    for name, expected in (
        ("an embedding with its gradient", "scatter_unchecked"),
        ("an embedding's gradient by itself", "scatter"),
        ("index_put, its index seen in part", "scatter"),
        ("max_pool's gradient", "scatter"),
    ):
        _, built = compiled(POSITIONS[name])
        assert expected in kinds(built), name
        assert not kinds(built) & ({"scatter", "scatter_unchecked"} - {expected}), name


UNCHECKED: dict[str, Case] = {
    "index_put": POSITIONS["index_put"],
    "index_put of columns": POSITIONS["index_put of columns"],
    "scatter": POSITIONS["scatter"],
    "scatter add of columns": POSITIONS["scatter add of columns"],
    "max_pool_grad": POSITIONS["max_pool's gradient"],
}


@pytest.mark.parametrize("name", UNCHECKED)
def test_scatters_without_checks_leave_out_what_is_out_of_range(name: str) -> None:
    """Were their positions ever wrong, they would still write inside their buffers only."""
    case = UNCHECKED[name]
    graph = graph_of(case)
    kernel = SCATTER_UNCHECKED.kernel(Body(graph, CPU))
    native = Native(kernel)
    arrays = inputs_of(case)
    flat = arrays[-1].reshape(-1)
    wild = np.array([*WILD, case.size, -case.size - 1])
    flat[RNG.choice(flat.size, wild.size, replace=False)] = wild
    result = Guarded(np.zeros(graph.outputs[0].shape, np.float32))
    buffers = {f"a{n}": Guarded(a) for n, a in enumerate(arrays)} | {"o0": result}
    native([buffers[p.name].array for p in kernel.params])
    for buffer in buffers.values():
        buffer.check()
    assert np.isfinite(result.array).all()
