"""Values and gradients at ties, infinities and NaN, and the rounding of half precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc

torch = pytest.importorskip("torch")

inf, nan = float("inf"), float("nan")
COMPILED = pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])


def _run(m: Any, call: Callable[..., Any], arrays: list[Any], dtype: str, compiled: bool) -> Any:
    """The result and the gradients of a weighted sum of it, as float64."""
    given = [m.tensor(a, dtype=m.float32).to(getattr(m, dtype)).requires_grad_() for a in arrays]
    function: Any = lambda *xs: call(m, *xs)  # noqa: E731
    result = (graphc.compile(function) if compiled else function)(*given)
    weights = np.cos(np.arange(result.numel())).reshape(tuple(result.shape)).tolist()
    result.backward(m.tensor(weights, dtype=m.float32).to(result.dtype))
    return [np.array(t.detach().double().numpy()) for t in (result, *(x.grad for x in given))]


ROWS: dict[str, list[Any]] = {
    "ties": [1.0, 2, 2, 3, 2], "even": [1.0, 2, 2, 2, 2, 3], "equal": [3.0] * 5,
    "one nan": [nan, 1, 1, 2, 2], "nans": [nan, nan, 1.0], "only nans": [nan, nan],
    "infinite": [1.0, inf, inf, inf, -inf], "negative": [-inf, -inf, 1, -inf], "none": [],
}


@COMPILED
@pytest.mark.parametrize("name", ["median", "nanmedian"])
@pytest.mark.parametrize("row", list(ROWS))
def test_median_at_ties(name: str, row: str, compiled: bool) -> None:
    """Over all elements, those equal to the median share its gradient."""
    call = lambda m, x: getattr(x, name)()  # noqa: E731
    want, have = (
        _run(m, call, [ROWS[row]], "float32", compiled and m is graphc) for m in (torch, graphc)
    )
    for h, w in zip(have, want, strict=True):
        np.testing.assert_allclose(h, w, rtol=1e-6)


SUMS: dict[str, Callable[..., Any]] = {
    "logcumsumexp": lambda m, x: x.logcumsumexp(0),
    "logsumexp": lambda m, x: x.logsumexp(0),
    "logaddexp": lambda m, x: m.logaddexp(x, x.flip(0)),
    "logaddexp2": lambda m, x: m.logaddexp2(x, x.flip(0)),
}
INFINITE = (
    [1.0, inf, 2, 3], [-inf, -inf, 1, 2], [inf, -inf, inf, 1], [-inf, 1, inf, inf],
    [nan, 1, inf, 2], [1, nan, inf, 2], [inf] * 4, [-inf] * 4, [0.5, 0.5, -1, 3],
)


@COMPILED
@pytest.mark.parametrize("name", list(SUMS))
def test_logarithms_of_sums_at_infinity(name: str, compiled: bool) -> None:
    for row in INFINITE:
        want, have = (
            _run(m, SUMS[name], [row], "float32", compiled and m is graphc)
            for m in (torch, graphc)
        )
        for h, w in zip(have, want, strict=True):
            np.testing.assert_allclose(h, w, rtol=5e-5, err_msg=str(row))


BOUNDS = ({"min": nan}, {"max": nan}, {"min": nan, "max": 1.0}, {"min": 0.0, "max": nan},
          {"min": nan, "max": nan}, {"min": 1.0, "max": -1.0}, {"min": inf}, {"max": -inf},
          {"min": -0.5, "max": 0.5}, {"min": -inf, "max": inf})
BOUND_KINDS: dict[str, Callable[[Any, float], Any]] = {
    "number": lambda m, v: v,
    "scalar tensor": lambda m, v: m.tensor(v),
    "tensor": lambda m, v: m.full((8,), v),
}


@COMPILED
@pytest.mark.parametrize("kind", list(BOUND_KINDS))
def test_clamp_to_nan_and_infinity(kind: str, compiled: bool) -> None:
    for bounds in BOUNDS:
        def call(m: Any, x: Any, bounds: dict[str, float] = bounds) -> Any:
            made = {name: BOUND_KINDS[kind](m, value) for name, value in bounds.items()}
            return (x * 1).clamp_(**made) + x.clamp(**made)

        row = [1.0, -2, nan, inf, -inf, 3, 0.5, -0.5]
        want, have = (
            _run(m, call, [row], "float32", compiled and m is graphc) for m in (torch, graphc)
        )
        for h, w in zip(have, want, strict=True):
            np.testing.assert_array_equal(h, w, str(bounds))


def _attention(m: Any, x: Any, wi: Any, bi: Any, wo: Any, bo: Any) -> Any:
    return m.nn.functional.multi_head_attention_forward(
        x, x, x, 32, 4, wi, bi, None, None, False, 0.0, wo, bo
    )[0]


# (call, shapes); correctly rounded sums of products and the bias
ROUNDED: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "linear": (lambda m, x, w, b: m.nn.functional.linear(x, w, b), [(16, 64), (32, 64), (32,)]),
    "linear 3d": (lambda m, x, w, b: m.nn.functional.linear(x, w, b),
                  [(2, 8, 64), (32, 64), (32,)]),
    "linear 1d": (lambda m, x, w, b: m.nn.functional.linear(x, w, b), [(64,), (32, 64), (32,)]),
    "addmm": (lambda m, b, x, w: m.addmm(b, x, w), [(32,), (16, 64), (64, 32)]),
    "baddbmm": (lambda m, b, x, w: m.baddbmm(b, x, w), [(4, 16, 32), (4, 16, 64), (4, 64, 32)]),
    "addmv": (lambda m, b, x, w: m.addmv(b, x, w), [(16,), (16, 64), (64,)]),
    "addr": (lambda m, b, x, w: m.addr(b, x, w), [(16, 32), (16,), (32,)]),
    "conv1d": (lambda m, x, w, b: m.nn.functional.conv1d(x, w, b), [(2, 16, 20), (8, 16, 3), (8,)]),
    "conv2d": (lambda m, x, w, b: m.nn.functional.conv2d(x, w, b, padding=1),
               [(2, 16, 10, 10), (8, 16, 3, 3), (8,)]),
    "conv_transpose2d": (lambda m, x, w, b: m.nn.functional.conv_transpose2d(x, w, b),
                         [(2, 16, 6, 6), (16, 8, 3, 3), (8,)]),
    "attention": (_attention, [(6, 3, 32), (96, 32), (96,), (32, 32), (32,)]),
    "add alpha": (lambda m, x, y: m.add(x, y, alpha=0.3), [(64,), (64,)]),
    "sub alpha": (lambda m, x, y: m.sub(x, y, alpha=0.3), [(64,), (64,)]),
}


def _rounded_once(call: Callable[..., Any], arrays: list[Any]) -> list[np.ndarray]:
    """The result in float64, rounded to bfloat16."""
    given = [torch.tensor(a).bfloat16().double() for a in arrays]
    return [call(torch, *given).bfloat16().double().numpy()]


@COMPILED
@pytest.mark.parametrize("name", list(ROUNDED))
def test_half_precision_is_rounded_once(name: str, compiled: bool) -> None:
    """The sums of the two libraries differ in order: a few of a thousand may be a unit off."""
    call, shapes = ROUNDED[name]
    draw = np.random.default_rng(0)
    arrays = [(draw.standard_normal(shape) * 0.5).astype(np.float32).tolist() for shape in shapes]
    want, have = (
        _run(m, call, arrays, "bfloat16", compiled and m is graphc) for m in (torch, graphc)
    )
    if name == "conv_transpose2d" and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        want = _rounded_once(call, arrays)  # PyTorch rounds each of its sums' parts on such a CPU
    assert np.mean(have[0] != want[0]) < 0.01
    np.testing.assert_allclose(have[0], want[0], rtol=2.0**-7, atol=1e-6)


def test_alpha_in_the_dtype_of_the_result() -> None:
    """float32 + alpha * bfloat16: the product is not rounded to bfloat16."""
    found = []
    for m in (torch, graphc):
        x, y = m.linspace(0, 1, 50), m.linspace(-1, 1, 50).bfloat16()
        found.append([
            v.numpy() for v in (x.add(y, alpha=-0.026), x.sub(y, alpha=0.7), m.rsub(y, x, alpha=3))
        ])
    for have, want in zip(found[1], found[0], strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-6, atol=1e-7)


@COMPILED
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_powers_that_are_roots(dtype: str, compiled: bool) -> None:
    """x ** 0.5 and x ** -0.5 are sqrt and rsqrt, whose zeros have signs, but go by pow's name."""
    row = [-inf, -2.0, -0.0, 0.0, 1e-30, 2.0, inf, nan]
    for exponent in (0.5, -0.5):
        call = lambda m, x, exponent=exponent: x**exponent  # noqa: E731
        want, have = (
            _run(m, call, [row], dtype, compiled and m is graphc) for m in (torch, graphc)
        )
        np.testing.assert_allclose(have[0], want[0], rtol=1e-6)
        number = ~np.isnan(want[0])
        np.testing.assert_array_equal(np.signbit(have[0])[number], np.signbit(want[0])[number])
        x = graphc.ones(2, requires_grad=True)
        assert type((x**exponent).grad_fn).__name__ == "PowBackward0"


@COMPILED
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sinc_near_nothing(dtype: str, compiled: bool) -> None:
    """Its slope is -pi^2 x / 3, not what is left of 1 / x - 1 / x (PyTorch's is off by 1e-3)."""
    row = [0.0, -0.0, 1e-45, -1e-40, 1e-38, 1e-30, 1e-12, 1e-4, 1.9e-3, -0.03, 0.049, 0.06, -3.0]
    x = np.array(row, np.float32).astype(np.longdouble)
    a = np.where(x == 0, 1, np.pi * x)
    direct = (a * np.cos(a) - np.sin(a)) / a**2
    slope = np.pi * np.where(np.abs(x) < 1e-2, -np.pi * x / 3 + (np.pi * x) ** 3 / 30, direct)
    value, gradient = _run(graphc, lambda m, x: m.sinc(x), [row], dtype, compiled)
    np.testing.assert_allclose(value, np.sinc(x).astype(float), rtol=3e-7, atol=2e-8)
    wanted = (slope * np.cos(np.arange(len(row)))).astype(float)
    np.testing.assert_allclose(gradient, wanted, atol={"float32": 5e-6, "float64": 2e-7}[dtype])


def test_median_of_no_integers() -> None:
    for dtype in ("int32", "uint8", "int64"):
        want, have = (m.ones(0, dtype=getattr(m, dtype)).median() for m in (torch, graphc))
        assert str(have.dtype) == str(want.dtype) and have.item() == want.item()


@COMPILED
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_cosine_of_short_vectors(dtype: str, compiled: bool) -> None:
    """Lengths below eps are eps, but have the gradient of a length."""
    rows = [[3e-9, 4e-9], [0.0, 0.0], [1.0, 2.0], [-5e-9, 0.0], [1e25, 1e25], [1.0, -1e-9]]
    call = lambda m, x, y: m.nn.functional.cosine_similarity(x, y, dim=1)  # noqa: E731
    want, have = (
        _run(m, call, [rows, rows[::-1]], dtype, compiled and m is graphc) for m in (torch, graphc)
    )
    for h, w in zip(have, want, strict=True):
        np.testing.assert_allclose(h, w, rtol=1e-5, atol=1e-6)


@COMPILED
def test_second_gradients_of_sigmoids_at_nothing(compiled: bool) -> None:
    for name in ("logsigmoid", "softplus", "binary_cross_entropy_with_logits"):
        found = []
        for m in (torch, graphc):
            x = m.tensor([0.0, -0.0, 1.0, -2.0, inf, -inf, 90.0], requires_grad=True)
            rest = (m.full((7,), 0.25),) if name.startswith("binary") else ()
            given: Any = getattr(m.nn.functional, name)
            function = graphc.compile(given) if compiled and m is graphc else given
            (first,) = m.autograd.grad(function(x, *rest).sum(), x, create_graph=True)
            (second,) = m.autograd.grad(first[:4].sum(), x)
            found.append([first.detach().numpy(), second.numpy()[:4]])
        for have, want in zip(found[1], found[0], strict=True):
            np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-7)


@COMPILED
@pytest.mark.parametrize("name", ("logaddexp", "logaddexp2"))
def test_second_gradients_of_the_logarithm_of_equals(name: str, compiled: bool) -> None:
    found = []
    for m in (torch, graphc):
        given = [[0.0, 1.0, 1.0, -2.0, 90.0], [0.0, 1.0, 3.0, -7.5, 90.0]]
        a, b = (m.tensor(each, requires_grad=True) for each in given)
        function = getattr(m, name)
        if compiled and m is graphc:
            function = graphc.compile(function)
        made = function(a, b)
        first = m.autograd.grad(made.sum(), (a, b), create_graph=True)
        second = m.autograd.grad((3 * first[0] + 2 * first[1]).sum(), (a, b))
        found.append([each.detach().numpy() for each in (made, *first, *second)])
    for have, want in zip(found[1], found[0], strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-7)
