"""torch.special against PyTorch: values and gradients, eager and compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc
from tests.linalg.compare import compare, torch

WIDE = np.array([-4.0, -1.2, 0.3, 1.7, 3, 8])
POSITIVE = np.array([0.5, 1.5, 2.5, 4.0, 0.1, 9])
FAR = np.array([1e-3, 0.3, 1, 2.5, 7, 12, 24.5, 26, 40, 100])
PART = np.array([0.01, 0.2, 0.5, 0.9, 0.999])
BESSEL = [n for n in dir(torch.special) if "bessel" in n and "spherical" not in n] + ["airy_ai"]

TABLE: dict[str, tuple[Any, tuple[Any, ...]]] = {
    **{
        name: (lambda t, a, n=name: getattr(t.special, n)(a), (WIDE,))
        for name in "i0 i0e i1 i1e erfcx log_ndtr ndtr sinc erf erfc expit expm1 exp2".split()
    },
    **{
        name: (lambda t, a, n=name: getattr(t.special, n)(a), (PART,))
        for name in "ndtri logit erfinv entr log1p psi gammaln".split()
    },
    "zeta": (lambda t, a: t.special.zeta(2.5, a), (POSITIVE,)),
    "gammainc": (
        lambda t, a: (
            t.special.gammainc(t.tensor(POSITIVE), a), t.special.gammaincc(t.tensor(POSITIVE), a),
            t.igamma(t.tensor(POSITIVE), a),
        ),
        (POSITIVE[::-1].copy(),),
    ),
    "polygamma": (
        lambda t, a: [t.polygamma(n, a) for n in range(4)] + [a.polygamma(2)], (POSITIVE,)
    ),
    "multigammaln": (
        lambda t, a: (t.mvlgamma(a, 3), t.special.multigammaln(a, 2)), (POSITIVE + 3,)
    ),
    "xlog1py": (
        lambda t, a, b: (t.special.xlog1py(a, b), t.special.xlogy(a, b), t.special.xlog1py(0.0, b)),
        (POSITIVE, POSITIVE[::-1].copy()),
    ),
    "softmax": (
        lambda t, a: (
            t.special.softmax(a, 0), t.special.log_softmax(a, 0), t.special.logsumexp(a, 0)
        ),
        (POSITIVE,),
    ),
}
COMPILED = {"i0", "ndtri", "gammainc", "polygamma", "zeta"}


@pytest.mark.parametrize("name", sorted(TABLE))
def test_eager(name: str) -> None:
    function, arrays = TABLE[name]
    compare(function, *arrays, twice=True)


@pytest.mark.parametrize(
    "name", [n if n in COMPILED else pytest.param(n, marks=pytest.mark.slow) for n in sorted(TABLE)]
)
def test_compiled(name: str) -> None:
    function, arrays = TABLE[name]
    compare(function, *arrays, compiled=True)


@pytest.mark.parametrize("name", BESSEL)
def test_without_gradients(name: str) -> None:
    # torch's own float64 polynomials are good to 1e-7 only
    compare(
        lambda t, a: getattr(t.special, name)(a), FAR, grad=False,
        tolerance=1e-6 if "k" not in name else 1e-10,
    )


def test_bessel_functions_at_known_values() -> None:
    """Abramowitz and Stegun, tables 9.1 and 10.11."""
    at = graphc.tensor([7.0], dtype=graphc.float64)
    known = {"bessel_j0": 0.3000792705195556, "bessel_j1": -0.004682823482345833,
             "bessel_y0": -0.02594974396720926, "bessel_y1": -0.3026672370241849}
    for name, value in known.items():
        assert abs(getattr(graphc.special, name)(at).item() - value) < 1e-14
    airy = graphc.special.airy_ai(graphc.tensor([-3.0, 1.0], dtype=graphc.float64))
    np.testing.assert_allclose(airy.numpy(), [-0.37881429367765823, 0.13529241631288141], 1e-13)


@pytest.mark.parametrize("name", [n for n in dir(torch.special) if "polynomial" in n])
def test_polynomials(name: str) -> None:
    def function(t: Any, a: Any) -> Any:
        polynomial = getattr(t.special, name)
        return [*(polynomial(a, t.tensor(d)) for d in (0, 1, 2, 5)), polynomial(a, 3)]

    compare(function, np.linspace(-0.9, 1.5, 7), grad=False)


def test_dtypes() -> None:
    compare(
        lambda t, a: (t.special.i0(a), t.special.erfcx(a), t.i0(a), a.i0()),
        POSITIVE.astype(np.float32), tolerance=1e-5,
    )
    compare(
        lambda t, a: (t.special.i0(a), t.special.zeta(a, 2), t.special.entr(a)), np.arange(1, 5),
        grad=False, tolerance=1e-5,
    )


def test_every_name_is_there() -> None:
    for space in ("special", "fft"):
        theirs = getattr(torch, space)
        names = [n for n in dir(theirs) if not n.startswith("_") and "common" not in n]
        ours = getattr(graphc, space)
        assert [n for n in names if not hasattr(ours, n)] in ([], ["torch"], ["Tensor", "torch"])


def test_polygamma_and_zeta_far_out() -> None:
    values = np.array([np.inf, 1.5])
    for order in (1, 2):
        found = graphc.polygamma(order, graphc.from_numpy(values)).numpy()
        wanted = torch.polygamma(order, torch.from_numpy(values)).numpy()
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert np.isnan(graphc.special.zeta(graphc.tensor(2.0), graphc.tensor(float("inf"))).item())


def test_entr_is_steep_at_zero() -> None:
    for compiled in (False, True):
        found = []
        for m in (torch, graphc):
            x = m.tensor([-0.5, 0.0, 0.3, 1.0, 2.0], requires_grad=True)
            entr = m.special.entr
            y = (graphc.compile(entr) if compiled and m is graphc else entr)(x)
            y.sum().backward()
            found.append((y.detach().numpy(), x.grad.numpy()))
        np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-6)
        np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-6)


def test_spherical_bessel_of_infinities() -> None:
    for compiled in (False, True):
        far = np.array([-np.inf, -0.0, 2.0, np.inf, np.nan])
        function = graphc.special.spherical_bessel_j0
        have = (graphc.compile(function) if compiled else function)(graphc.tensor(far))
        want = torch.special.spherical_bessel_j0(torch.tensor(far))
        np.testing.assert_allclose(have.numpy(), want.numpy())


def test_the_zeros_of_lgamma_have_no_sign() -> None:
    """That at 1 was -0.0 where NumPy computes, and 0.0 in compiled code."""
    for size in (1, 1000):
        for zero in (1.0, 2.0):
            found = graphc.full((size,), zero).lgamma().numpy()
            np.testing.assert_array_equal(found, 0)
            assert not np.signbit(found).any()
