"""Every elementwise operator on every element type, special values included, against NumPy."""

import re
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.backends.llvm.emit import emit
from graphc.backends.llvm.scalar import FLOAT
from graphc.backends.llvm.scalar_integer import INTEGER
from graphc.backends.llvm.target import host_target, make_target
from graphc.backends.numpy.elementwise import TABLE, cast_array
from graphc.ir import dtypes
from graphc.ir.dim import Dim
from graphc.ir.dtypes import DType
from graphc.ir.kernel import Apply, IndexValue, Kernel, Let, Load, Loop, Param, Store

from .native import Native

RNG = np.random.default_rng(2)
V = Dim.var("v")
ARITY = {"clamp": 3, "fma": 3, "where": 3} | dict.fromkeys(
    "add sub mul div floor_divide remainder trunc_divide fmod pow maximum minimum fmax fmin atan2 "
    "copysign hypot bitwise_and bitwise_or bitwise_xor shift_left shift_right logical_and "
    "logical_or logical_xor eq ne lt le gt ge".split(),
    2,
)
TO_BOOL = set("isnan isinf isfinite logical_not logical_and logical_or logical_xor".split()) | set(
    "eq ne lt le gt ge".split()
)
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, np.inf, -np.inf, np.nan, 1e-30, -1e-30, 88.0,
           -100.0, 3e38, 1e-45, 7.0, -3.0, 1e10]


def operand(dtype: DType, size: int, seed: int) -> np.ndarray:
    """Ordinary and special values of a dtype."""
    rng = np.random.default_rng(seed)
    if dtype is dtypes.bool_:
        return rng.integers(0, 2, size).astype(bool)
    if dtype.is_float:
        x = rng.standard_normal(size) * rng.choice([0.3, 1, 20], size)
        x[rng.random(size) < 0.3] = rng.choice(SPECIAL, 1)[0]
        pick = rng.random(size) < 0.4
        x[pick] = rng.choice(SPECIAL, int(pick.sum()))
        with np.errstate(all="ignore"):
            return x.astype(dtype.numpy)
    info = np.iinfo(dtype.numpy)
    x = rng.integers(-9 if info.min else 0, 12, size).astype(dtype.numpy)
    pick = rng.random(size) < 0.3
    edges = np.array([info.min, info.max, info.min + 1, info.max - 1, 0, 1], dtype.numpy)
    x[pick] = rng.choice(edges, int(pick.sum()))
    return x


def kernel(op: str, args: list[DType], result: DType, size: int) -> Kernel:
    params = [Param(f"a{n}", d, size, "in") for n, d in enumerate(args)]
    loads = tuple(Load(f"a{n}", V, d) for n, d in enumerate(args))
    body = (Store("o", V, Apply(op, loads, result)),)
    stages = ((Loop("vector", "v", size, body),),)
    return Kernel("k", (*params, Param("o", result, size, "out")), (), stages)


def run(op: str, inputs: list[np.ndarray], result: DType) -> np.ndarray:
    args = [dtypes.from_numpy(x.dtype) for x in inputs]
    o = np.zeros(inputs[0].size, result.numpy)
    Native(kernel(op, args, result, o.size))([*inputs, o])
    return o


def close(got: np.ndarray, want: np.ndarray, dtype: DType, ulps: float) -> np.ndarray:
    """Where two results agree: the same NaNs and infinities, else within so many ulps."""
    if not dtype.is_float:
        return got == want
    with np.errstate(all="ignore"):
        g, w = got.astype(np.float64), want.astype(np.float64)
    eps = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-23, "f64": 2.0**-52}[dtype.name]
    tiny = {"f16": 6e-8, "bf16": 1e-38, "f32": 1.2e-38, "f64": 2.3e-308}[dtype.name]
    with np.errstate(all="ignore"):
        bound = ulps * eps * np.abs(w) + (tiny if ulps else 0.0)
        near = np.abs(g - w) <= bound
    return (g == w) | (np.isnan(g) & np.isnan(w)) | near


# A NumPy reference in float64, rounded, where NumPy's own float32 is no better than ours.
WIDE = set(
    "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh "
    "atanh erf erfc erfinv lgamma digamma sigmoid pow atan2 hypot rsqrt".split()
)
ULPS = dict.fromkeys(WIDE, 6.0) | {"erfinv": 40.0, "digamma": 60.0, "lgamma": 40.0}


def reference(op: str, inputs: list[np.ndarray], dtype: DType) -> np.ndarray:
    with np.errstate(all="ignore"):
        if op in WIDE and dtype.is_float:
            wide = [x.astype(np.float64) for x in inputs]
            return np.asarray(TABLE[op](*wide)).astype(dtype.numpy)
        return np.asarray(TABLE[op](*inputs))


@pytest.mark.parametrize("dtype", dtypes.FLOATS, ids=lambda d: d.name)
@pytest.mark.parametrize("op", sorted(FLOAT.keys() - {"fma"}))
def test_float_operators(op: str, dtype: DType) -> None:
    inputs = [operand(dtype, 200, seed) for seed in range(ARITY.get(op, 1))]
    if op == "clamp":
        with np.errstate(all="ignore"):
            inputs[1:] = [np.fmin(*inputs[1:]), np.fmax(*inputs[1:])]
    if op in ("digamma", "lgamma"):
        inputs = [np.where(np.abs(x) < 1e4, x, np.ones_like(x)) for x in inputs]
    if op in ("sin", "cos", "tan"):
        inputs = [np.where(np.abs(x.astype("f8")) < 1e6, x, np.ones_like(x)) for x in inputs]
    result = dtypes.bool_ if op in TO_BOOL else dtype
    got = run(op, inputs, result)
    want = reference(op, inputs, dtype)
    good = close(got, want, result, ULPS.get(op, 0.0) if dtype.bits > 16 else 1.0)
    if op == "floor_divide":  # NumPy's differs from torch's where b is infinite or tiny
        good |= ~np.isfinite(inputs[0].astype("f8")) | ~np.isfinite(inputs[1].astype("f8"))
    bad = np.flatnonzero(~good)[:5]
    assert good.all(), [(tuple(x[i] for x in inputs), got[i], want[i]) for i in bad]


@pytest.mark.parametrize("dtype", (dtypes.bool_, *dtypes.INTEGERS), ids=lambda d: d.name)
@pytest.mark.parametrize("op", sorted(INTEGER))
def test_integer_operators(op: str, dtype: DType) -> None:
    if dtype is dtypes.bool_ and op in (
        "neg sub floor_divide trunc_divide remainder fmod shift_left shift_right abs square".split()
    ):
        pytest.skip("not an operator of bool")
    inputs = [operand(dtype, 200, seed) for seed in range(ARITY.get(op, 1))]
    if op in ("floor_divide", "trunc_divide", "remainder", "fmod"):
        inputs[1][inputs[1] == 0] = 1
    if op == "clamp":
        inputs[1:] = [np.minimum(*inputs[1:]), np.maximum(*inputs[1:])]
    result = dtypes.bool_ if op in TO_BOOL else dtype
    got = run(op, inputs, result)
    want = reference(op, inputs, dtype)
    if op in ("shift_left", "shift_right"):  # NumPy's shifts past the width are not defined
        wide = (inputs[1] < 0) | (inputs[1] >= dtype.bits)
        fill = np.where(inputs[0] < 0, -1, 0).astype(dtype.numpy) if op == "shift_right" else 0
        want = np.where(wide, fill, want)
    bad = np.flatnonzero(got != want)[:5]
    assert (got == want).all(), [(tuple(x[i] for x in inputs), got[i], want[i]) for i in bad]


def test_integer_division_never_traps() -> None:
    for dtype in dtypes.INTEGERS:
        info = np.iinfo(dtype.numpy)
        a = np.array([info.min, info.max, 5, 0] * 10, dtype.numpy)
        b = np.array([0, 0, 0, 0, *(-1 if info.min else 1,) * 36], dtype.numpy)
        for op in ("floor_divide", "trunc_divide", "remainder", "fmod"):
            got = run(op, [a, b], dtype)
            if info.min and op == "floor_divide":
                assert got[4] == info.min  # INT_MIN // -1
            if info.min and op in ("remainder", "fmod"):
                assert got[4] == 0


@pytest.mark.parametrize("source", dtypes.ALL, ids=lambda d: d.name)
@pytest.mark.parametrize("target", dtypes.ALL, ids=lambda d: d.name)
def test_casts(source: DType, target: DType) -> None:
    x = operand(source, 300, 5)
    if source.is_float:
        limits = [2.0**31, -(2.0**31), 2.0**63, -(2.0**63), 2.0**64, 300.7, -1.5, 65520.0, 1e-40]
        with np.errstate(all="ignore"):
            x[: len(limits)] = np.array(limits).astype(source.numpy)
    got = run("cast", [x], target)
    with np.errstate(all="ignore"):
        want = cast_array(x, target.numpy)
    good = close(got, want, target, 0.0)
    bad = np.flatnonzero(~good)[:5]
    assert good.all(), [(x[i], got[i], want[i]) for i in bad]


def test_every_bf16_rounding() -> None:
    bits = RNG.integers(0, 1 << 32, 4096, dtype=np.uint64).astype(np.uint32)
    bits[:6] = [0x3F808000, 0x3F818000, 0x7F7FFFFF, 0x00000001, 0x7F800001, 0xFF808000]
    x = bits.view(np.float32)
    got = run("cast", [x], dtypes.bf16)
    with np.errstate(all="ignore"):
        want = cast_array(x, dtypes.bf16.numpy)
    good = close(got, want, dtypes.bf16, 0.0)
    assert good.all()


def test_where_and_fma() -> None:
    c = operand(dtypes.bool_, 100, 1)
    a, b, d = (operand(dtypes.f32, 100, seed) for seed in (2, 3, 4))
    assert close(run("where", [c, a, b], dtypes.f32), np.where(c, a, b), dtypes.f32, 0).all()
    with np.errstate(all="ignore"):
        exact = (a.astype("f8") * b.astype("f8") + d.astype("f8")).astype("f4")
    assert close(run("fma", [a, b, d], dtypes.f32), exact, dtypes.f32, 1).all()


def test_an_unknown_operator_is_named() -> None:
    with pytest.raises(NotImplementedError, match="'no_such'"):
        Native(kernel("no_such", [dtypes.f32], dtypes.f32, 4))


def test_a_chain_of_ten_thousand_operators() -> None:
    x = Load("a0", V, dtypes.f32)
    value: Apply | Load = x
    for _ in range(10_000):
        value = Apply("neg", (value,), dtypes.f32)
    params = (Param("a0", dtypes.f32, 4, "in"), Param("o", dtypes.f32, 4, "out"))
    loop = Loop("vector", "v", 4, (Let("t", value), Store("o", V, value)))

    text = emit(Kernel("k", params, (), ((loop,),)), host_target(), "k_chain")
    assert text.count("fneg") == 10_000


def test_equal_expressions_are_emitted_once() -> None:
    """By value, not by identity: also where the lowering repeats itself."""

    def term() -> Apply:
        return Apply("exp", (Load("a0", V, dtypes.f32),), dtypes.f32)

    both = Apply("add", (term(), term()), dtypes.f32)
    index = Apply("cast", (IndexValue(V, dtypes.i64),), dtypes.f32)
    loop = Loop("vector", "v", 16, (Store("o", V, Apply("mul", (both, index), dtypes.f32)),))
    params = (Param("a0", dtypes.f32, 16, "in"), Param("o", dtypes.f32, 16, "out"))
    native = Native(Kernel("k", params, (), ((loop,),)))
    assert len(re.findall(r"= load <\d+ x float>", native.text)) == 1
    assert native.text.count("scalef.ps.512(<16 x float> %") <= 1


def test_half_precision_without_half_instructions() -> None:
    """Where the target cannot convert f16, integer arithmetic does, and no library is called."""
    host = host_target()
    if host.arch != "x86_64":
        pytest.skip("x86-64 code")
    target = make_target(host.triple, "x86-64", "+sse4.2")
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    native = Native(kernel("cast", [dtypes.f16], dtypes.f32, every.size), target)
    wide = np.zeros(every.size, "f4")
    native([every, wide])
    with np.errstate(all="ignore"):
        expected = every.astype("f4")
    assert close(wide, expected, dtypes.f32, 0).all()
    x = RNG.integers(0, 1 << 32, 4096, dtype=np.uint64).astype(np.uint32).view(np.float32)
    x[:4000] = RNG.standard_normal(4000) * np.exp2(RNG.integers(-30, 18, 4000))
    native = Native(kernel("cast", [dtypes.f32], dtypes.f16, x.size), target)
    narrow = np.zeros(x.size, np.float16)
    native([x, narrow])
    with np.errstate(all="ignore"):
        assert close(narrow, x.astype(np.float16), dtypes.f16, 0).all()


@pytest.mark.parametrize("name", ["atan", "copysign", "fmod"])
@pytest.mark.parametrize("shape", [(), (1,), (3,)], ids=str)
def test_f16_of_a_sign_put_on_in_f64_calls_no_library(name: str, shape: tuple[int, ...]) -> None:
    def f(x: Any, y: Any) -> Any:
        return (graphc.atan(x) if name == "atan" else getattr(graphc, name)(x, y)).half()

    x, y = graphc.full(shape, 1.38, dtype=graphc.float64), graphc.full(shape, -0.5).double()
    assert graphc.compile(f)(x, y).tolist() == f(x, y).tolist()
