"""Complex arithmetic in real and imaginary parts."""

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


def special(*shape: int) -> np.ndarray:
    """Complex numbers of which some have zeros, infinities and NaNs."""
    parts = [0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan, 1e30]
    found = np.array([complex(a, b) for a in parts for b in parts], np.complex64)
    return np.resize(np.random.default_rng(3).permutation(found), shape)


RULES: dict[str, Any] = {
    "quotient": lambda x, y: x / y,
    "reciprocal": lambda x, y: ops.reciprocal(x),
    "exponential": lambda x, y: ops.exp(x),
    "size": lambda x, y: ops.complex_abs(x * y),
    "direction": lambda x, y: ops.complex_sign(x),
    "square": lambda x, y: ops.square(x),
    "choice": lambda x, y: ops.where(ops.gt(ops.complex_abs(x), 1.0), x, y),
    "equal": lambda x, y: ops.eq(x * 1.0, y),
    "unequal": lambda x, y: ops.ne(x, y * 1.0),
    "sum": lambda x, y: ops.sum(x * y, dims=(0,), keepdim=False),
    "sum of what is given": lambda x, y: ops.sum(x, dims=(1,), keepdim=True),
    "product of matrices": lambda x, y: ops.dot_general(
        x, y, batch_a=(), batch_b=(), contract_a=(1,), contract_b=(1,)
    ),
    "wider": lambda x, y: ops.cast(x, dtype=dtypes.c128) * 2.0,
    "real": lambda x, y: ops.cast(x * y, dtype=f64),
    "truth": lambda x, y: ops.cast(x, dtype=dtypes.bool_),
    "of reals": lambda x, y: ops.cast(ops.complex_abs(x), dtype=c64) - y,
    "padding": lambda x, y: ops.pad(x, low=(1, 0), high=(0, 2), interior=(0, 1), value=0),
    "other padding": lambda x, y: ops.pad(x, low=(1, 0), high=(0, 0), interior=(0, 0), value=2j),
    "joined": lambda x, y: ops.concat(x * y, y, dim=1),
    "turned": lambda x, y: ops.flip(x, dims=(1,)),
    "updated": lambda x, y: ops.slice_update(
        x, ops.slice(y, starts=(0, 1), stops=(2, 5), steps=(1, 2)),
        starts=(4, 0), stops=(6, 2), steps=(1, 1),
    ),
    "a number": lambda x, y: x + (2 - 3j),
}


# what comes of infinities there is another matter in each library
BY_LIBRARY = ("product of matrices", "exponential", "direction", "square")


@pytest.mark.parametrize("name", RULES)
def test_each_operator_gives_numbers_of_complex_arithmetic(name: str) -> None:
    rng = np.random.default_rng(2)
    graph = build(RULES[name], (c64, (8, 8)), (c64, (8, 8)))
    changed = pairs(graph)
    rest = {"input", "const", "view_as_complex", *(["pad"] if name == "other padding" else [])}
    assert {*complex_names(changed)} <= rest
    plain = [(rng.standard_normal((8, 8)) + 1j * rng.standard_normal((8, 8))).astype(c64.numpy)
             for _ in range(2)]
    plain[1][::3] = plain[0][::3]
    for inputs in (plain, [special(8, 8), plain[1]], [plain[0], special(8, 8)]):
        if inputs is not plain and name in BY_LIBRARY:
            continue
        with np.errstate(all="ignore"):
            (want,) = interpret.evaluate(graph, inputs, TABLE)
            (got,) = interpret.evaluate(changed, inputs, TABLE)
        assert got.dtype == want.dtype
        for part in ("real", "imag"):  # one may be infinite where the other is NaN
            np.testing.assert_allclose(
                getattr(got, part), getattr(want, part), rtol=2e-6, atol=1e-5
            )


def test_the_exponential_of_a_large_real_number_is_infinite() -> None:
    graph = build(lambda x: ops.exp(x), (c64, (3,)))
    x = np.array([200, complex(200, -0.0), complex(-np.inf, 0)], np.complex64)
    with np.errstate(all="ignore"):
        (got,) = interpret.evaluate(pairs(graph), [x], TABLE)
    assert got.real.tolist() == [np.inf, np.inf, 0] and got.imag.tolist() == [0, 0, 0]
    assert np.signbit(got.imag).tolist() == [False, True, False]


def test_what_no_rule_has_reads_the_number() -> None:
    """It is put together for that reader, once."""

    def function(x: Any, y: Any) -> tuple[Any, Any, Any]:
        both = ops.view_as_complex(x) * y
        return ops.view_as_real(both), ops.sin(both), ops.sqrt(both)

    graph = build(function, (f32, X), (c64, F))
    changed = pairs(graph)
    assert complex_names(changed) == ["input", "view_as_complex", "sin", "sqrt"]
    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal(X).astype(np.float32), rng.standard_normal(F) + 1j]
    inputs[1] = inputs[1].astype(np.complex64)
    results = [interpret.evaluate(each, inputs, TABLE) for each in (changed, graph)]
    for got, want in zip(*results, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_a_graph_without_rules_stays_itself() -> None:
    for function in (lambda x: ops.sin(x), lambda x: ops.view_as_real(x)):
        graph = build(function, (c64, F))
        assert pairs(graph) is graph


def test_a_row_of_complex_numbers_is_a_part_of_their_memory() -> None:
    """A loop over rows reads each where it lies: at that many parts, not numbers."""

    def steps(x: Any, y: Any) -> Any:
        state = x[0]
        for i in range(8):
            state = state * y[i] + x[i]
        return state

    x, y = (graphc.randn(8, 4, dtype=graphc.complex64) for _ in range(2))
    assert graphc.allclose(graphc.compile(steps)(x, y), steps(x, y), rtol=1e-4, atol=1e-4)


def test_parts_of_results_are_stored_side_by_side() -> None:
    """One loop computes both parts, whatever follows: other rows, an odd count of numbers."""
    for shape in ((3, 5), (7,), (2, 1), (130,), (0, 4)):
        x, y = (graphc.randn(*shape, dtype=graphc.complex64) for _ in range(2))
        compiled = graphc.compile(lambda x, y: (x * y + 1j, x / y))
        for got, want in zip(compiled(x, y), (x * y + 1j, x / y), strict=True):
            assert graphc.allclose(got, want, rtol=1e-4, atol=1e-5)
        for dtype in (graphc.float32, graphc.float64, graphc.int64, graphc.bfloat16):
            a, b = (graphc.randn(*shape).to(dtype) for _ in range(2))
            paired = graphc.compile(lambda a, b: graphc.stack([a * b, a + b], -1))(a, b)
            assert graphc.equal(paired, graphc.stack([a * b, a + b], -1))


UPDATES: dict[str, Any] = {
    "product": lambda z, w, x: z.mul_(w),
    "conjugate": lambda z, w, x: z.copy_(z.conj() * w),
    "real of imaginary": lambda z, w, x: z.real.add_(z.imag),
    "parts swapped": lambda z, w, x: x.copy_(graphc.stack([x[..., 1], x[..., 0]], -1)),
    "turned around": lambda z, w, x: z.copy_(z.flip(0) * w),
    "through views": lambda z, w, x: graphc.view_as_complex(x).mul_(w),
    "one after the other": lambda z, w, x: (z.mul_(w), w.add_(z)),
    "a row": lambda z, w, x: z[0].mul_(w[-1]),
}


@pytest.mark.parametrize("name", UPDATES)
@pytest.mark.parametrize("shape", [(3, 5), (1, 2), (300, 70)])
def test_parts_are_read_before_they_are_written_over(name: str, shape: tuple[int, ...]) -> None:
    """What is updated is given, and may be computed straight into its memory."""
    graphc.manual_seed(1)
    z, w = (graphc.randn(*shape, dtype=graphc.complex64) for _ in range(2))
    want = z, w, graphc.randn(*shape, 2)
    got = tuple(x.clone() for x in want)
    UPDATES[name](*want)

    def update(*given: Any) -> None:
        UPDATES[name](*given)

    graphc.compile(update)(*got)
    for a, b in zip(got, want, strict=True):
        assert graphc.allclose(a, b, rtol=1e-4, atol=1e-4)


def test_spectral_products_are_kernels() -> None:
    """A Fourier layer: what stands between transforms is no routine."""
    x = graphc.randn(2, 3, 16, 16, requires_grad=True)
    w = graphc.randn(3, 4, 4, 4, dtype=graphc.complex64, requires_grad=True)

    def layer(x: Any, w: Any) -> Any:
        found = graphc.fft.rfft2(x)
        out = graphc.zeros(2, 4, 16, 9, dtype=graphc.complex64)
        out[:, :, :4, :4] = graphc.einsum("bixy,ioxy->boxy", found[:, :, :4, :4], w)
        return graphc.fft.irfft2(out, s=(16, 16))

    slopes = []
    for function in (layer, graphc.compile(layer)):
        x.grad = w.grad = None
        layer_result = function(x, w)
        layer_result.square().sum().backward()
        assert x.grad is not None and w.grad is not None
        slopes.append((layer_result.detach(), x.grad, w.grad))
    for want, got in zip(*slopes, strict=True):
        assert graphc.allclose(got, want, rtol=1e-3, atol=1e-3 * float(want.abs().max()))
    text = str(graphc.explain(graphc.compile(layer), x, w))
    host = {line.split()[2] for line in text.splitlines() if line.startswith("NumPy runs")}
    assert host <= {"fft_real", "fft_complex", "fft_inverse_real"}


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
