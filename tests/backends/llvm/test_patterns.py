"""erf(x) + 1 as one: where it may be, what it is to the last bits, on this machine and others."""

import math

import numpy as np
import pytest

from graphc.backends.llvm.emit import emit
from graphc.backends.llvm.patterns import erf_plus_one, joined
from graphc.backends.llvm.target import Target, host_target, make_target
from graphc.ir import dtypes
from graphc.ir.dim import Dim
from graphc.ir.kernel import (
    Apply,
    Kernel,
    Let,
    Literal,
    Load,
    Loop,
    Param,
    Scalar,
    Stmt,
    Store,
    Var,
)

from .native import Native

F32, F64, V = dtypes.f32, dtypes.f64, Dim.var("v")
X, E, Y = Var("x", F32), Var("e", F32), Var("y", F32)
ONE, ERF = Literal(1.0, F32), Apply("erf", (X,), F32)


def targets() -> list[Target]:
    """This machine and, of its kind, one without AVX-512 and one without anything."""
    host = host_target()
    if host.arch != "x86_64":
        return [host]
    found = [host, make_target(host.triple, "x86-64", "")]
    if "+avx2" in host.features and "+fma" in host.features:
        found.append(make_target(host.triple, "x86-64-v3", "+avx2,+fma,+f16c,+bmi,+bmi2"))
    return found


def kernel(*lets: Stmt, result: Scalar) -> Kernel:
    body = (Let("x", Load("a", V, F32)), *lets, Store("out", V, result))
    loop = Loop("vector", "v", Dim.var("n"), body)
    params = (Param("a", F32, Dim.var("n"), "in"), Param("out", F32, Dim.var("n"), "out"))
    return Kernel("k", params, ("n",), ((loop,),))


def run(made: Kernel, target: Target, x: np.ndarray) -> np.ndarray:
    """What a kernel writes."""
    out = np.empty_like(x)
    Native(made, target)([x, out], (len(x),))
    return out


def sum_of(x: Scalar, y: Scalar) -> Apply:
    return Apply("add", (x, y), F32)


@pytest.mark.parametrize("swapped", [False, True])
def test_what_is_joined(swapped: bool) -> None:
    total = sum_of(ONE, E) if swapped else sum_of(E, ONE)
    half = Apply("mul", (Y, Literal(0.5, F32)), F32)
    (loop,) = joined((Loop("vector", "v", 8, (Let("e", ERF), Let("y", total), Let("h", half))),))
    assert isinstance(loop, Loop)
    first, second = loop.body
    assert isinstance(first, Let) and first.name == "y" and erf_plus_one(first.value) is X
    assert second == Let("h", half)


@pytest.mark.parametrize(
    "more",
    [
        (Let("z", Apply("mul", (E, E), F32)),),
        (Store("out", V, E),),
        (Loop("serial", "i", 4, (Let("z", sum_of(E, ONE)),)),),
        (Let("z", sum_of(E, Literal(2.0, F32))),),
        (Let("z", Load("a", V, F32, Apply("lt", (E, ONE), dtypes.bool_), ONE)),),
    ],
    ids=["product", "stored", "inside", "two", "mask"],
)
def test_what_is_read_otherwise_stays(more: tuple[Stmt, ...]) -> None:
    body = (Let("e", ERF), Let("y", sum_of(E, ONE)), *more)
    assert joined(body) == body
    assert joined((Let("e", ERF), *more[:1]))[0] == Let("e", ERF)


def test_other_dtypes_stay() -> None:
    e = Apply("erf", (Var("x", F64),), F64)
    body = (Let("e", e), Let("y", Apply("add", (Var("e", F64), Literal(1.0, F64)), F64)))
    assert joined(body) == body


def arguments() -> np.ndarray:
    rng = np.random.default_rng(3)
    special = [0.0, -0.0, 1e-40, -1e-40, math.inf, -math.inf, math.nan, 4.0, -4.0, 1e30, -1e30]
    spread = [rng.uniform(-6, 6, 200_000), rng.normal(size=50_000) * 1e-3, special]
    return np.concatenate(spread).astype(np.float32)


@pytest.mark.parametrize("target", targets(), ids=lambda target: target.cpu)
def test_numbers(target: Target) -> None:
    """Within 3 2^-24 of 1 + erf(x), which rounding alone takes one of, in every lane and at the
    end, and 0 or 2 where erf is 1 to the last bit; the sign of 0 does not matter."""
    x = arguments()
    made = kernel(Let("e", ERF), Let("y", sum_of(E, ONE)), result=Y)
    out = run(made, target, x)
    expected = np.array([1.0 + math.erf(v) for v in x.astype(float)])
    np.testing.assert_array_equal(np.isnan(out), np.isnan(expected))
    assert np.nanmax(np.abs(out - expected)) <= 3 * 2.0**-24
    far = np.abs(x) >= 4
    np.testing.assert_array_equal(out[far], np.where(x[far] > 0, 2.0, 0.0))
    assert out[x == 0].tolist() == [1.0, 1.0]
    for count in (1, 3, 7, 9, 15, 17):  # ends of loops give the same bits
        np.testing.assert_array_equal(run(made, target, x[:count].copy()), out[:count])


@pytest.mark.parametrize("target", targets(), ids=lambda target: target.cpu)
def test_erf_itself_is_exact_to_the_last_bit(target: Target) -> None:
    """Where erf is read, too, the sum is the one of what is read."""
    product = Apply("mul", (Y, E), F32)
    x = arguments()
    lets = (Let("e", ERF), Let("y", sum_of(E, ONE)))
    out = run(kernel(*lets, result=product), target, x)
    erf = run(kernel(lets[0], result=E), target, x)
    np.testing.assert_array_equal(out, (erf + np.float32(1)) * erf)


def test_text() -> None:
    """With 16 registers: an exponential, and no other fit near 0 to choose from."""
    avx2 = make_target("x86_64-unknown-linux-gnu", "x86-64-v3", "+avx2,+fma,+f16c,+bmi,+bmi2")
    text = emit(kernel(Let("e", ERF), Let("y", sum_of(E, ONE)), result=Y), avx2)
    apart = emit(kernel(Let("e", ERF), Let("y", sum_of(E, ONE)), result=sum_of(Y, E)), avx2)
    assert 0 < text.count("@llvm.fma") < apart.count("@llvm.fma")
    assert 0 < text.count("fcmp") < apart.count("fcmp")
