"""Bessel, Airy, incomplete gamma, zeta and normal quantile functions, in float64.

Where NumPy has nothing: power series near 0, integrals by the trapezoidal rule (which converges
geometrically for periodic and doubly exponential integrands; Trefethen and Weideman, 2014), and
asymptotic series far out (Abramowitz and Stegun, chapters 6, 9 and 10).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from . import special
from .common import Array, Function, as_array

_EULER = 0.5772156649015329
_ASKED, _NOTHING = 4, 2.0**-55  # after how many terms it is asked, and of a sum what is none
_FAR = 25.0  # from here the asymptotic series of the Bessel functions reach full precision


def _in_double(function: Callable[..., Array]) -> Function:
    def wrapped(*inputs: Array, **attrs: int) -> Array:
        wide = np.broadcast_arrays(*(x.astype(np.float64) for x in inputs))
        shape = wide[0].shape
        found = function(*(np.ravel(x) for x in wide), **attrs)
        return as_array(found).reshape(shape).astype(inputs[0].dtype)

    return wrapped


def _chosen(x: Array, *cases: tuple[Array, Callable[[Array], Array]]) -> Array:
    """Each function on its own elements; NaN elsewhere."""
    out = np.full_like(x, np.nan)
    for mask, function in cases:
        if mask.any():
            out[mask] = function(x[mask])
    return out


# --- modified Bessel, first kind -------------------------------------------------------------


def _i_series(x: Array, order: int) -> Array:
    square = x * x / 4
    term = np.ones_like(x) if order == 0 else x / 2
    total = term.copy()
    for k in range(1, 70):
        term *= square
        term /= k * (k + order)
        total += term
        # from here on terms fall, and none changes a sum
        if k % _ASKED == 0 and not np.greater_equal(term, total * _NOTHING).any():
            break
    return total


def _asymptotic(x: Array, order: int, sign: float) -> Array:
    """1 + sign (mu - 1)/(8x) + (mu - 1)(mu - 9)/(2! (8x)^2) + ..."""
    mu = 4.0 * order * order
    term, total = np.ones_like(x), np.ones_like(x)
    for k in range(1, 30):
        term *= sign
        term *= mu - (2 * k - 1) ** 2
        term /= k * 8 * x
        total += term
    return total


def _i_scaled(x: Array, order: int) -> Array:
    a = np.abs(x)
    found = _chosen(
        a, (a < _FAR, lambda v: _i_series(v, order) * np.exp(-v)),
        (a >= _FAR, lambda v: _asymptotic(v, order, -1.0) / np.sqrt(2 * math.pi * v)),
    )
    return np.where(x < 0, -found, found) if order else found


def _i(x: Array, order: int) -> Array:
    a = np.abs(x)
    half = np.exp(a / 2)  # in two steps, so that exp alone does not overflow first
    return _i_scaled(x, order) * half * half


# --- Bessel ----------------------------------------------------------------------------------


def _j_integral(x: Array, order: int) -> Array:
    """The mean of cos(order t - x sin t) over a period."""
    count = 96
    t = (np.arange(count) + 0.5) * (math.pi / count)
    return as_array(np.cos(order * t - np.multiply.outer(x, np.sin(t))).mean(axis=-1))


def _phases(x: Array, order: int) -> tuple[Array, Array]:
    """P and Q of the asymptotic form."""
    mu = 4.0 * order * order
    term = np.ones_like(x)
    p, q = np.ones_like(x), np.zeros_like(x)
    for k in range(1, 24):
        term = term * (mu - (2 * k - 1) ** 2) / (k * 8 * x)
        sign = 1.0 if k % 4 in (0, 1) else -1.0
        if k % 2:
            q = q + sign * term
        else:
            p = p + sign * term
    return p, q


def _far(x: Array, order: int, second: bool) -> Array:
    p, q = _phases(x, order)
    angle = x - (order / 2 + 0.25) * math.pi
    s, c = np.sin(angle), np.cos(angle)
    return as_array(np.sqrt(2 / (math.pi * x)) * (p * s + q * c if second else p * c - q * s))


def _j(x: Array, order: int) -> Array:
    a = np.abs(x)
    found = _chosen(
        a, (a < _FAR, lambda v: _j_integral(v, order)),
        ((a >= _FAR) & np.isfinite(a), lambda v: _far(v, order, False)),
        (np.isinf(a), np.zeros_like),
    )
    return np.where(x < 0, -found, found) if order else found


def _y_near(x: Array, order: int) -> Array:
    """Neumann's series over Bessel functions of the first kind."""
    log = np.log(x / 2) + _EULER
    total = np.zeros_like(x)
    if order == 0:
        for k in range(1, 40):
            total = total + (-1) ** k / k * _j_integral(x, 2 * k)
        return 2 / math.pi * log * _j_integral(x, 0) - 4 / math.pi * total
    for k in range(1, 40):
        total = total + (-1) ** k * (2 * k + 1) / (k * (k + 1)) * _j_integral(x, 2 * k + 1)
    first = 2 / math.pi * ((log - 1) * _j_integral(x, 1) - _j_integral(x, 0) / x)
    return first - 2 / math.pi * total


def _y(x: Array, order: int) -> Array:
    return _chosen(
        x, ((x > 0) & (x < _FAR), lambda v: _y_near(v, order)),
        ((x >= _FAR) & np.isfinite(x), lambda v: _far(v, order, True)),
        (x == np.inf, np.zeros_like), (x == 0, lambda v: np.full_like(v, -np.inf)),
    )


def _k_scaled(x: Array, order: float) -> Array:
    """exp(x) K(x) as the integral of exp(-x (cosh t - 1)) cosh(order t)."""
    steps = 220
    reach = np.arccosh(1 + 750 / x)
    h = reach / steps
    t = np.multiply.outer(h, np.arange(steps + 1))
    grid = np.exp(-x[:, None] * 2 * np.sinh(t / 2) ** 2) * np.cosh(order * t)
    grid[:, 0] /= 2
    return as_array(grid.sum(axis=-1) * h)


def _k(x: Array, order: int, scaled: bool) -> Array:
    return _chosen(
        x, ((x > 0) & np.isfinite(x),
            lambda v: _k_scaled(v, order) * (1 if scaled else np.exp(-v))),
        (x == 0, lambda v: np.full_like(v, np.inf)), (x == np.inf, np.zeros_like),
    )


# --- Airy ------------------------------------------------------------------------------------


def _airy_series(x: Array) -> Array:
    cube = x * x * x
    first, second = np.ones_like(x), x.copy()
    f, g = first, second
    for k in range(1, 60):
        first = first * cube / ((3 * k - 1) * (3 * k))
        second = second * cube / ((3 * k) * (3 * k + 1))
        f, g = f + first, g + second
    return 0.3550280538878172 * f - 0.2588194037928068 * g


def _airy_far(x: Array) -> Array:
    """Left of the origin: decaying oscillation."""
    a = -x
    zeta = 2 / 3 * a**1.5
    term = np.ones_like(x)
    even, odd = np.ones_like(x), np.zeros_like(x)
    for k in range(1, 16):
        term = term * (6 * k - 5) * (6 * k - 3) * (6 * k - 1) / (216 * k * (2 * k - 1)) / zeta
        sign = 1.0 if k % 4 in (0, 1) else -1.0
        if k % 2:
            odd = odd + sign * term
        else:
            even = even + sign * term
    angle = zeta + math.pi / 4
    wave = np.sin(angle) * even - np.cos(angle) * odd
    return as_array(wave / (math.sqrt(math.pi) * a**0.25))


def _airy_right(x: Array) -> Array:
    zeta = 2 / 3 * x**1.5
    return np.sqrt(x / 3) / math.pi * _k_scaled(zeta, 1 / 3) * np.exp(-zeta)


def _airy(x: Array) -> Array:
    return _chosen(
        x, ((x >= -7) & (x <= 1), _airy_series), ((x > 1) & np.isfinite(x), _airy_right),
        (x < -7, _airy_far), (x == np.inf, np.zeros_like),
    )


# --- normal distribution ---------------------------------------------------------------------


def _erfcx(x: Array) -> Array:
    return _chosen(
        x, (x < 5, lambda v: np.exp(v * v) * special.erfc(v)), (x >= 5, _erfcx_far)
    )


def _erfcx_far(x: Array) -> Array:
    """Laplace's continued fraction."""
    tail = x.copy()
    for k in range(60, 0, -1):
        tail = x + k / 2 / tail
    return 1 / (math.sqrt(math.pi) * tail)


def _log_ndtr(x: Array) -> Array:
    return _chosen(
        x, (x < -1, lambda v: np.log(_erfcx(v * -math.sqrt(0.5)) / 2) - v * v / 2),
        (x >= -1, lambda v: np.log1p(-special.erfc(v * math.sqrt(0.5)) / 2)),
    )


def _ndtri(p: Array) -> Array:
    """Newton's iteration on the logarithm of the smaller tail."""
    tail = np.minimum(p, 1 - p)

    def solve(v: Array) -> Array:
        # Abramowitz and Stegun 26.2.23 to begin with
        t = np.sqrt(-2 * np.log(v))
        x = t - (2.515517 + t * (0.802853 + t * 0.010328)) / (
            1 + t * (1.432788 + t * (0.189269 + t * 0.001308))
        )
        x = -x
        for _ in range(4):
            log = _log_ndtr(x)
            slope = math.sqrt(2 / math.pi) / _erfcx(x * -math.sqrt(0.5))
            x = x - (log - np.log(v)) / slope
        return as_array(x)

    inside = (tail > 0) & (tail <= 0.5)
    found = _chosen(tail, (inside, solve), (tail == 0, lambda v: np.full_like(v, -np.inf)))
    found = np.where(tail == 0.5, 0.0, found)
    return np.where(p > 0.5, -found, found)


# --- gamma and zeta --------------------------------------------------------------------------


def _prefactor(a: Array, x: Array) -> Array:
    return as_array(np.exp(a * np.log(x) - x - special.lgamma(a)))


def _gamma_lower(a: Array, x: Array) -> Array:
    term = 1 / a
    total = term.copy()
    for k in range(1, 10_000):
        term = term * x / (a + k)
        total = total + term
        if (np.abs(term) <= 1e-17 * np.abs(total)).all():
            break
    return total * _prefactor(a, x)


def _gamma_upper(a: Array, x: Array) -> Array:
    """Lentz's evaluation of the continued fraction."""
    b = x + 1 - a
    c = np.full_like(x, 1e300)
    d = 1 / b
    total = d.copy()
    done = np.zeros(x.shape, bool)
    for k in range(1, 10_000):
        step = -k * (k - a)
        b = b + 2
        d = 1 / (step * d + b)
        c = b + step / c
        factor = d * c
        total = np.where(done, total, total * factor)  # more factors would add rounding errors
        done |= np.abs(factor - 1) <= 4e-16
        if done.all():
            break
    return total * _prefactor(a, x)


_LARGE_A = 2e5  # above it one term of the uniform expansion has an error below 1e-13


def _gamma_large(a: Array, x: Array, upper: bool) -> Array:
    """Temme's uniform asymptotic expansion (DLMF 8.12) for large a."""
    mu = (x - a) / a
    small = np.abs(mu) < 1e-2
    m = np.where(small, mu, 0.0)
    # mu - log(1 + mu), by its series near 0
    near = m * m * (1 / 2 - m * (1 / 3 - m * (1 / 4 - m * (1 / 5 - m * (1 / 6 - m / 7)))))
    half = np.where(small, near, mu - np.log1p(mu))
    eta = np.copysign(np.sqrt(2 * half), mu)
    with np.errstate(divide="ignore", invalid="ignore"):
        c0 = np.where(
            small, -1 / 3 + eta * (1 / 12 - eta * (2 / 135 - eta / 864)), 1 / mu - 1 / eta
        )
    rest = np.exp(-a * half) / np.sqrt(2 * np.pi * a) * c0
    z = eta * np.sqrt(a / 2)
    return as_array(0.5 * special.erfc(z) + rest if upper else 0.5 * special.erfc(-z) - rest)


def _gamma(a: Array, x: Array, upper: bool) -> Array:
    out = np.full(a.shape, np.nan)
    inside = (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x)
    large = inside & (a > _LARGE_A)
    if large.any():
        out[large] = _gamma_large(a[large].astype(np.float64), x[large].astype(np.float64), upper)
    inside &= ~large
    series = inside & (x < a + 1)
    fraction = inside & ~series
    if series.any():
        low = _gamma_lower(a[series], x[series])
        out[series] = 1 - low if upper else low
    if fraction.any():
        high = _gamma_upper(a[fraction], x[fraction])
        out[fraction] = high if upper else 1 - high
    none, all_ = (1.0, 0.0) if upper else (0.0, 1.0)
    out[(x == 0) & (a > 0)] = none
    out[((a == 0) & (x > 0)) | ((x == np.inf) & np.isfinite(a) & (a >= 0))] = all_
    out[(a == np.inf) & np.isfinite(x) & (x >= 0)] = none
    return out


_BERNOULLI = (
    1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798,
    -174611 / 330, 854513 / 138,
)


def _zeta(x: Array, q: Array) -> Array:
    """Euler and Maclaurin: terms one by one until q + k is large, then the sum's expansion."""
    out = np.full(np.shape(x), np.nan)
    whole = (q <= 0) & (q == np.floor(q))
    regular = (x > 1) & ~whole & ((q > 0) | (x == np.floor(x))) & np.isfinite(q)
    out[(x == 1) | ((x > 1) & whole)] = np.inf
    if regular.any():
        out[regular] = _zeta_regular(x[regular], q[regular])
    return out


def _zeta_regular(x: Array, q: Array) -> Array:
    total = np.zeros_like(q)
    steps = max(12, math.ceil(12 - float(q.min())))
    place = q.copy()
    for _ in range(steps):
        total = total + place ** (-x)
        place = place + 1
    power = place ** (-x)
    total = total + power * place / (x - 1) + power / 2
    factor = x * power / place
    square = place * place
    factorial = 2.0
    for k, bernoulli in enumerate(_BERNOULLI, 1):
        total = total + bernoulli * factor / factorial
        factor = factor * (x + 2 * k - 1) * (x + 2 * k) / square
        factorial *= (2 * k + 1) * (2 * k + 2)
    return as_array(total)


def _polygamma(x: Array, order: int) -> Array:
    if order == 0:
        return special.digamma(x)
    factorial = math.factorial(order) if order <= 170 else math.inf
    scale = factorial * (-1.0) ** (order + 1)
    found = as_array(scale * _zeta(np.full_like(x, order + 1.0), x))
    return np.where((x == np.inf) & (order == 1), 0.0, found)  # torch's, whose zeta is NaN there


_FUNCTIONS: dict[str, Callable[..., Array]] = {
    "i0": lambda x: _i(x, 0), "i1": lambda x: _i(x, 1),
    "i0e": lambda x: _i_scaled(x, 0), "i1e": lambda x: _i_scaled(x, 1),
    "erfcx": _erfcx, "ndtri": _ndtri, "log_ndtr": _log_ndtr,
    "bessel_j0": lambda x: _j(x, 0), "bessel_j1": lambda x: _j(x, 1),
    "bessel_y0": lambda x: _y(x, 0), "bessel_y1": lambda x: _y(x, 1),
    "modified_bessel_k0": lambda x: _k(x, 0, False),
    "modified_bessel_k1": lambda x: _k(x, 1, False),
    "scaled_modified_bessel_k0": lambda x: _k(x, 0, True),
    "scaled_modified_bessel_k1": lambda x: _k(x, 1, True),
    "airy_ai": _airy,
    "gammainc": lambda a, x: _gamma(a, x, False),
    "gammaincc": lambda a, x: _gamma(a, x, True),
    "zeta": _zeta,
    "polygamma": _polygamma,
}

TABLE: dict[str, Function] = {
    name: _in_double(function) for name, function in _FUNCTIONS.items()
}
