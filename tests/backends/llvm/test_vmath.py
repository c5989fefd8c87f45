"""Elementary functions: accuracy against wide references, special values, widths, sharing."""

import functools
import math
from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
import pytest

from graphc.backends.llvm.cache import ObjectCache
from graphc.backends.llvm.jit import compile_object
from graphc.backends.llvm.lanes import Dtype
from graphc.backends.llvm.target import Target, host_target, make_target
from graphc.backends.llvm.text import Module
from graphc.backends.llvm.vmath import ULP_BOUNDS, VectorMath

from .native import function_of

Array = np.ndarray
NUMPY = {"f32": np.float32, "f64": np.float64}
BINARY = {"pow": np.power, "atan2": np.arctan2, "fmod": np.fmod}


def by_torch(name: str) -> Callable[[Array], Array]:
    """PyTorch's float64 function; the test that calls it is skipped without PyTorch."""

    def reference(x: Array) -> Array:
        torch: Any = pytest.importorskip("torch")
        return getattr(torch, name)(torch.from_numpy(x)).numpy()

    return reference


REFERENCE: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)),
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "erf": by_torch("erf"),
    "erfc": by_torch("erfc"),
    "erfinv": by_torch("erfinv"),
    "lgamma": by_torch("lgamma"),
    "digamma": by_torch("digamma"),
}
MPMATH = {
    "exp2": lambda x: mp.power(2, x),
    "log2": lambda x: mp.log(x) / mp.log(2),
    "log10": lambda x: mp.log(x) / mp.log(10),
    "sigmoid": lambda x: 1 / (1 + mp.exp(-x)),
    "lgamma": lambda x: mp.log(abs(mp.gamma(x))),
}


@functools.cache
def build(
    name: str, dtype: Dtype, width: int, target: Target | None = None
) -> Callable[..., Array]:
    """A Python function that applies one VectorMath method to whole arrays."""
    target = target or host_target()
    arity = 2 if name in (*BINARY, "copysign") else 1
    module = Module()
    pointers = ", ".join(f"ptr %x{index}" for index in range(arity))
    fn = module.function(f"void @apply(i64 %n, {pointers}, ptr %y)")
    lanes = VectorMath(fn, module, target, dtype, width)
    align = NUMPY[dtype]().itemsize
    with fn.loop(0, "%n", width) as i:
        inputs = [
            fn.load(fn.gep(f"%x{index}", i, lanes.elem), lanes.vtype, align)
            for index in range(arity)
        ]
        result = getattr(lanes, name)(*inputs)
        fn.store(result, lanes.vtype, fn.gep("%y", i, lanes.elem), align)
    fn.ret()
    native = function_of([ObjectCache().compile(module.text(), target)], "apply", target)

    def apply(*arrays: Array) -> Array:
        count = len(arrays[0])
        padding = np.zeros(-count % width)
        padded = [np.concatenate([a, padding]).astype(NUMPY[dtype]) for a in arrays]
        out = np.empty_like(padded[0])
        native(len(out), *(a.ctypes.data for a in padded), out.ctypes.data)
        return out[:count]

    return apply


def either_sign(rng: np.random.Generator, low: float, high: float, count: int) -> Array:
    """Logarithmically spread magnitudes."""
    magnitude = np.exp(rng.uniform(np.log(low), np.log(high), count))
    return magnitude * rng.choice([-1.0, 1.0], count)


def samples(name: str, dtype: Dtype, count: int) -> Array:
    """Inputs over the whole domain, half of them where the function is most delicate."""
    rng = np.random.default_rng(7)
    f32 = dtype == "f32"
    low, high = (-87.0, 88.7) if f32 else (-708.0, 709.7)
    tiny, huge = (1e-40, 3e38) if f32 else (1e-310, 1e308)
    half = count // 2
    near = either_sign(rng, tiny, 3.0, half)
    positive = np.abs(either_sign(rng, tiny, huge, half))
    wide = {
        "exp": (1.18 * low, high),
        "exp2": (1.7 * low, 1.44 * high),
        "expm1": (-50.0, high),
        "sinh": (-high, high),
        "cosh": (-high, high),
        "tanh": (-12.0, 12.0),
        "sigmoid": (low, 40.0),
        "asinh": (-100.0, 100.0),
        "sin": (-1e5, 1e5),
        "cos": (-1e5, 1e5),
        "tan": (-1e5, 1e5),
        "atan": (-10.0, 10.0),
        "erf": (-6.0, 6.0),
        "erfc": (-6.0, 9.0 if f32 else 26.0),
    }
    if name in wide:
        return np.concatenate([rng.uniform(*wide[name], half), near])
    if name in ("log", "log2", "log10"):
        return np.concatenate([positive, rng.uniform(0.5, 2.0, half)])
    if name == "log1p":
        return np.concatenate([rng.uniform(-1.0, 3.0, half), positive])
    if name == "acosh":
        return np.concatenate([rng.uniform(1.0, 3.0, half), 1.0 + positive[positive > 1.0]])
    if name in ("lgamma", "digamma"):  # away from their zeros, where nothing is relative
        return np.concatenate([rng.uniform(3.0, 50.0, half), rng.uniform(0.01, 0.9, half)])
    return np.concatenate([rng.uniform(-1.0, 1.0, half), near[np.abs(near) < 1.0]])


def ulps(actual: Array, expected: Array, dtype: Dtype) -> Array:
    """The error in units of the last place of the expected value."""
    unit = np.spacing(np.abs(expected).astype(NUMPY[dtype])).astype(np.float64)
    return np.abs(actual.astype(np.float64) - expected) / unit


def exact_ulps(name: str, x: Array, actual: Array) -> float:
    """The largest error of f64 results against 100-bit arithmetic."""
    function = MPMATH.get(name) or getattr(mp, name)
    worst = 0.0
    with mp.workprec(120):
        for value, result in zip(x.tolist(), actual.tolist(), strict=True):
            expected = function(mp.mpf(value))
            if abs(expected) < 1.7e308:
                unit = mp.mpf(float(np.spacing(abs(float(expected)))))
                worst = max(worst, float(abs(mp.mpf(result) - expected) / unit))
            else:
                assert math.isinf(result)
    return worst


@pytest.mark.parametrize("name", REFERENCE)
def test_f32_accuracy(name: str) -> None:
    x = samples(name, "f32", 20000).astype(np.float32).astype(np.float64)
    with np.errstate(all="ignore"):
        expected = REFERENCE[name](x)
        finite = np.isfinite(expected.astype(np.float32))
    actual = build(name, "f32", 16)(x)
    assert np.array_equal(finite, np.isfinite(actual))
    assert ulps(actual, expected, "f32")[finite].max() <= ULP_BOUNDS[name][0]


@pytest.mark.parametrize("name", REFERENCE)
def test_f64_accuracy(name: str) -> None:
    x = samples(name, "f64", 400)
    assert exact_ulps(name, x, build(name, "f64", 8)(x)) <= ULP_BOUNDS[name][1]


def test_f64_accuracy_of_two_arguments() -> None:
    rng = np.random.default_rng(3)
    x, y = np.exp(rng.uniform(-50, 50, 1000)), rng.uniform(-14, 14, 1000)
    x[:300], y[:300] = rng.uniform(0.9, 1.1, 300), rng.uniform(-5000, 5000, 300)
    actual = build("pow", "f64", 8)(x, y)
    with mp.workprec(160):
        for a, b, result in zip(x.tolist(), y.tolist(), actual.tolist(), strict=True):
            expected = mp.power(mp.mpf(a), mp.mpf(b))
            assert abs(result - expected) <= ULP_BOUNDS["pow"][1] * np.spacing(float(expected))
    y, x = either_sign(rng, 1e-5, 1e5, 1000), either_sign(rng, 1e-5, 1e5, 1000)
    actual = build("atan2", "f64", 8)(y, x)
    for a, b, result in zip(y.tolist(), x.tolist(), actual.tolist(), strict=True):
        error = abs(result - mp.atan2(a, b)) / np.spacing(abs(result))
        assert error <= ULP_BOUNDS["atan2"][1]


def test_f32_accuracy_of_two_arguments() -> None:
    rng = np.random.default_rng(4)
    x = np.exp(rng.uniform(-20, 20, 20000)).astype(np.float32).astype(np.float64)
    y = rng.uniform(-5, 5, 20000).astype(np.float32).astype(np.float64)
    actual, expected = build("pow", "f32", 16)(x, y), np.power(x, y)
    finite = np.abs(expected) < 3.4e38
    assert ulps(actual[finite], expected[finite], "f32").max() <= ULP_BOUNDS["pow"][0]
    signed = x * rng.choice([-1.0, 1.0], x.shape)
    actual, expected = build("atan2", "f32", 16)(y, signed), np.arctan2(y, signed)
    assert ulps(actual, expected, "f32").max() <= ULP_BOUNDS["atan2"][0]


def specials(dtype: Dtype) -> Array:
    info = np.finfo(NUMPY[dtype])
    values = [0.0, math.inf, math.nan, 1.0, 0.5, 2.0, 3.0, 10.0, 150.0, 1e5, 3e6, 1e30]
    values += [float(info.smallest_subnormal), float(info.tiny), float(info.max), 40.0]
    below_one = np.nextafter(info.dtype.type(1), info.dtype.type(0))
    values += [float(below_one), 1e-6, 1e-30, 0.99, 700.0]
    return np.array([sign * value for value in values for sign in (1.0, -1.0)])


def assert_same(actual: Array, expected: Array, dtype: Dtype, bound: float, x: Any) -> None:
    """Equal NaNs, infinities and signs of zero; the rest within the bound."""
    with np.errstate(all="ignore"):
        narrow = expected.astype(NUMPY[dtype])
        error = ulps(actual, expected, dtype)
    for index in range(len(actual)):
        a, e = actual[index], narrow[index]
        where = f"{x[index]}: {a!r}, expected {e!r}, {error[index]} ulp"
        assert np.isnan(a) == np.isnan(e), where
        if not np.isnan(e):
            assert np.signbit(a) == np.signbit(e), where
            if np.isinf(e) or np.isinf(a):
                assert a == e, where
            else:
                assert error[index] <= bound, where


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", REFERENCE)
def test_special_values(name: str, dtype: Dtype) -> None:
    x = specials(dtype).astype(NUMPY[dtype]).astype(np.float64)
    if name in ("lgamma", "digamma"):  # far left, references themselves disagree
        x = x[~(x < -1e4) & (x != -0.5)]  # -0.5 is next to a zero
    with np.errstate(all="ignore"):
        expected = REFERENCE[name](x)
    bound = ULP_BOUNDS[name][dtype == "f64"] + (4.0 if dtype == "f64" else 0.0)
    assert_same(build(name, dtype, 8)(x), expected, dtype, bound, x)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", BINARY)
def test_special_values_of_two_arguments(name: str, dtype: Dtype) -> None:
    values = specials(dtype).astype(NUMPY[dtype]).astype(np.float64)
    x, y = (grid.ravel() for grid in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        expected = BINARY[name](x, y)
    pairs = list(zip(x.tolist(), y.tolist(), strict=True))
    bound = ULP_BOUNDS[name][dtype == "f64"] + (1.0 if dtype == "f64" else 0.0)
    assert_same(build(name, dtype, 8)(x, y), expected, dtype, bound, pairs)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_fmod_is_exact(dtype: Dtype) -> None:
    """Also where a quotient rounds up to an integer, and where it has more bits than there are."""
    rng, kind = np.random.default_rng(5), NUMPY[dtype]
    y = either_sign(rng, 1e-3, 1e3, 20000).astype(kind)
    wholes = np.concatenate([rng.integers(1, 100, 10000), 2 ** rng.integers(1, 60, 10000)])
    near = np.nextafter((y * wholes.astype(kind)).astype(kind), kind(0))
    for x in (either_sign(rng, 1e-3, 1e9, 20000).astype(kind), near):
        actual = build("fmod", dtype, 8)(x.astype(np.float64), y.astype(np.float64))
        np.testing.assert_array_equal(actual, np.fmod(x, y))


@pytest.mark.parametrize(
    "dtype,width", [("f32", 1), ("f32", 4), ("f32", 32), ("f64", 1), ("f64", 2)]
)
def test_every_width_gives_the_same_bits(dtype: Dtype, width: int) -> None:
    """Scaling by vscalef or by multiplication, and any split into registers, must agree."""
    for name in REFERENCE:
        x = np.concatenate([samples(name, dtype, 200), specials(dtype)])
        expected = build(name, dtype, 16 if dtype == "f32" else 8)(x)
        np.testing.assert_array_equal(build(name, dtype, width)(x), expected, err_msg=name)


def narrower_targets() -> list[Target]:
    """Targets that the host also runs: AVX2 and bare SSE2, without fused multiply-add."""
    host = host_target()
    if host.arch != "x86_64":
        return []
    targets = [make_target(host.triple, "x86-64")]
    if "+avx2" in host.features and "+fma" in host.features:
        targets.append(make_target(host.triple, "haswell", "+avx,+avx2,+fma,+sse4.1"))
    return targets


@pytest.mark.parametrize("target", narrower_targets(), ids=lambda target: target.cpu)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_narrower_targets(target: Target, dtype: Dtype) -> None:
    for name in REFERENCE:
        x = samples(name, dtype, 2000).astype(NUMPY[dtype]).astype(np.float64)
        expected = build(name, dtype, 8)(x).astype(np.float64)
        actual = build(name, dtype, target.lanes(NUMPY[dtype]().itemsize), target)(x)
        finite = np.isfinite(expected)
        bound = 2 * ULP_BOUNDS[name][dtype == "f64"] + 1.0
        assert ulps(actual, expected, dtype)[finite].max() <= bound, name


@pytest.mark.parametrize(
    "name,function",
    [
        ("sqrt", np.sqrt),
        ("rsqrt", lambda x: 1 / np.sqrt(x)),
        ("floor", np.floor),
        ("ceil", np.ceil),
        ("trunc", np.trunc),
        ("rint", np.rint),
        ("fabs", np.abs),
    ],
)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_instructions_are_exact(name: str, function: Callable[..., Array], dtype: Dtype) -> None:
    x = np.concatenate([samples("asinh", dtype, 500), specials(dtype)]).astype(NUMPY[dtype])
    with np.errstate(all="ignore"):
        expected = function(x)
    np.testing.assert_array_equal(build(name, dtype, 8)(x), expected)


def test_copysign() -> None:
    values = specials("f32")
    actual = build("copysign", "f32", 4)(values, values[::-1])
    np.testing.assert_array_equal(np.signbit(actual), np.signbit(values[::-1].astype(np.float32)))


def test_large_arguments_go_to_libm() -> None:
    x = np.array([1e6, 1e10, 1e22, 1e300, -1e15, 3.0])
    for name in ("sin", "cos", "tan"):
        expected = np.array([float(getattr(mp, name)(mp.mpf(v))) for v in x.tolist()])
        assert ulps(build(name, "f64", 2)(x), expected, "f64").max() <= ULP_BOUNDS[name][1]


def test_repeated_functions_become_calls() -> None:
    module = Module()
    fn = module.function("<16 x float> @five(<16 x float> %x)")
    lanes = VectorMath(fn, module, host_target(), "f32", 16)
    x = "%x"
    for _ in range(5):
        x = lanes.tanh(x)
    fn.ret(f"{lanes.vtype} {x}")
    text = module.text()
    assert text.count("define internal <16 x float> @graphc.tanh.v16f32") == 1
    assert text.count("call <16 x float> @graphc.tanh.v16f32") == 2
    compile_object(text, host_target())


def test_exp_is_scaled_by_integers() -> None:
    """Where no instruction scales, the halves of the exponent are bits, and only the reduction
    takes additions of floats."""
    avx2 = make_target("x86_64-unknown-linux-gnu", "x86-64-v3", "+avx,+avx2,+fma")
    module = Module()
    fn = module.function("<8 x float> @one(<8 x float> %x)")
    lanes = VectorMath(fn, module, avx2, "f32", 8)
    fn.ret(f"{lanes.vtype} {lanes.exp('%x')}")
    text = module.text()
    assert text.count("fsub <8 x float>") == 1 and "fadd" not in text
