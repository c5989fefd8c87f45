"""Complex arithmetic between view_as_complex and view_as_real, in real and imaginary parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc
from graphc.backends.numpy import TABLE
from graphc.ir import dtypes, interpret, ops
from graphc.ir.graph import Graph
from graphc.ir.passes.pairs import pairs

from .kernel_cases import build

X, F = (6, 4, 5, 2), (4, 1)
c64, f32, f64 = dtypes.c64, dtypes.f32, dtypes.f64


def turned(x: Any, y: Any) -> Any:
    return ops.view_as_real(ops.view_as_complex(x) * y)


def moved(x: Any, y: Any) -> Any:
    """Every operator with parts of its own."""
    z = ops.view_as_complex(x)
    flat = ops.reshape(ops.permute(z, dims=(1, 0, 2)), shape=(4, 30))
    cut = ops.slice(flat, starts=(0, 3), stops=(4, 27), steps=(1, 2))
    wide = ops.expand(y, shape=(4, 12))
    found = (cut * ops.conj(wide) - cut) + ops.neg(cut)
    return ops.view_as_real(found)


def names(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes]


def complex_names(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes if node.dtype.is_complex]


@pytest.mark.parametrize("function", [turned, moved])
@pytest.mark.parametrize("real", [f32, f64], ids=lambda d: d.name)
def test_numbers_are_those_of_complex_arithmetic(function: Any, real: dtypes.DType) -> None:
    number = dtypes.complex_of(real)
    graph = build(function, (real, X), (number, F))
    rng = np.random.default_rng(0)
    x = rng.standard_normal(X).astype(real.numpy)
    y = (rng.standard_normal(F) + 1j * rng.standard_normal(F)).astype(number.numpy)
    x[0, 0] = [[0.0, -0.0], [np.inf, 1.0], [-np.inf, 0.0], [np.nan, 2.0], [1e-45, -3.0]]
    y[1] = complex(0.0, np.inf)
    changed = pairs(graph)
    assert complex_names(changed) == ["input"] and "mul" in names(changed)
    with np.errstate(all="ignore"):
        (want,) = interpret.evaluate(graph, [x, y], TABLE)
        (got,) = interpret.evaluate(changed, [x, y], TABLE)
    tolerance = 4 * np.finfo(real.numpy).eps  # NumPy's loops round some products once less
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=16 * tolerance)


def test_what_is_read_as_a_complex_number_stays_one() -> None:
    """The product is asked for itself, or of its absolute value: there is nothing to be gained."""
    for function in (
        lambda x, y: ops.view_as_complex(x) * y,
        lambda x, y: ops.complex_abs(ops.view_as_complex(x) * y),
    ):
        graph = build(function, (f32, X), (c64, F))
        assert pairs(graph) is graph


def test_moves_alone_are_not_worth_parts() -> None:
    def function(x: Any) -> Any:
        return ops.view_as_real(ops.permute(ops.view_as_complex(x), dims=(2, 1, 0)))

    graph = build(function, (f32, X))
    assert pairs(graph) is graph


def test_one_reader_of_several_wants_the_number() -> None:
    """Then it is computed once, as a number; what only its parts are read of is in parts."""

    def function(x: Any, y: Any) -> tuple[Any, Any, Any]:
        both = ops.view_as_complex(x) * y
        return ops.view_as_real(both), both, ops.view_as_real(both * y)

    graph = build(function, (f32, X), (c64, F))
    changed = pairs(graph)
    assert complex_names(changed).count("mul") == 1
    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal(X).astype(np.float32), rng.standard_normal(F) + 1j]
    inputs[1] = inputs[1].astype(np.complex64)
    results = [interpret.evaluate(each, inputs, TABLE) for each in (changed, graph)]
    for got, want in zip(*results, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-5)


def test_rotary_embeddings_of_a_compiled_function_are_one_kernel() -> None:
    def turn(x: Any, y: Any) -> Any:
        z = graphc.view_as_complex(x.reshape(*x.shape[:-1], -1, 2)) * y
        return graphc.view_as_real(z).flatten(3) + 0.5

    x = graphc.randn(2, 7, 3, 16, requires_grad=True)
    y = graphc.polar(graphc.ones(7, 1, 8), graphc.randn(7, 1, 8))
    want = turn(x, y)
    want.square().sum().backward()
    assert x.grad is not None
    slope, x.grad = x.grad, None
    compiled = graphc.compile(turn)
    got = compiled(x, y)
    assert graphc.allclose(got, want, rtol=1e-6, atol=1e-6)
    got.square().sum().backward()
    assert graphc.allclose(x.grad, slope, rtol=1e-5, atol=1e-6)
    assert "NumPy runs mul" not in str(graphc.explain(compiled, x, y))
