"""Poisson, binomial and gamma numbers as torch's CPU samplers draw them, one element at a time.

Poisson: products of uniforms below rate 10, then Hörmann's transformed rejection PTRS (Insurance:
Mathematics and Economics 12, 1993). Binomial: geometric waiting times below a mean of 10, then
his BTRS (J. Statistical Computation and Simulation 46, 1993). Gamma: Marsaglia and Tsang (ACM
TOMS 26, 2000). Computed in float64; the order of the draws is torch's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from graphc.ir import dtypes

from .common import I64, Array, Function
from .random import NO_SPARE, Stream, _few_normals

_F64 = np.dtype(np.float64)
_BLOCK = 256  # doubles drawn ahead


class _Draws:
    """Single uniform and normal numbers of a stream."""

    def __init__(self, state: Array) -> None:
        self.start, self.used = state, 0
        self.stream = Stream(state)
        self.ahead: list[float] = []
        self.next = 0
        self.spare = self.stream.spare

    def uniform(self) -> float:
        """float64 on [0, 1)."""
        if self.next == len(self.ahead):
            self.ahead = self.stream.doubles(_BLOCK).tolist()
            self.next = 0
        self.next += 1
        self.used += 1
        return self.ahead[self.next - 1]

    def normal(self) -> float:
        """Mean 0, variance 1; the second of a pair waits in the state."""
        if self.spare != NO_SPARE:
            value = float(np.int64(self.spare).view(np.float64))
            self.spare = NO_SPARE
            return value
        u1, u2 = self.uniform(), self.uniform()
        radius = math.sqrt(-2.0 * math.log1p(-u2))
        theta = 2.0 * math.pi * u1
        self.spare = int(np.float64(radius * math.sin(theta)).view(np.int64))
        return radius * math.cos(theta)

    def state(self) -> Array:
        """The state after the numbers that were used."""
        stream = Stream(self.start)
        stream.words(2 * self.used)
        stream.spare = self.spare
        return stream.state()


def _each(
    sample: Callable[..., float], state: Array, *parameters: Array
) -> tuple[Array, Array]:
    draws = _Draws(state)
    lists = [p.astype(_F64).reshape(-1).tolist() for p in parameters]
    values = [sample(draws, *numbers) for numbers in zip(*lists, strict=True)]
    first = parameters[0]
    return np.array(values, _F64).astype(first.dtype).reshape(first.shape), draws.state()


# --- Poisson ---------------------------------------------------------------------------------


def _poisson_one(draws: _Draws, rate: float) -> float:
    if not rate >= 0:
        raise RuntimeError(
            f"invalid Poisson rate, expected rate to be non-negative, got {rate}"
        )
    if rate >= 10:
        return _poisson_rejected(draws, rate)
    if rate == 0:
        return 0.0
    limit, product, count = math.exp(-rate), 1.0, 0
    while True:
        product *= draws.uniform()
        if product <= limit:
            return float(count)
        count += 1


def _poisson_rejected(draws: _Draws, rate: float) -> float:
    root, log_rate = math.sqrt(rate), math.log(rate)
    b = 0.931 + 2.53 * root
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    v_r = 0.9277 - 3.6224 / (b - 2)
    while True:
        u = draws.uniform() - 0.5
        v = draws.uniform()
        us = 0.5 - abs(u)
        if us == 0:
            continue
        k = math.floor((2 * a / us + b) * u + rate + 0.43)
        if us >= 0.07 and v <= v_r:
            return float(k)
        if k < 0 or (us < 0.013 and v > us) or v == 0:
            continue
        left = math.log(v) + math.log(inverse_alpha) - math.log(a / (us * us) + b)
        if left <= -rate + k * log_rate - math.lgamma(k + 1):
            return float(k)


# --- binomial --------------------------------------------------------------------------------


def _binomial_one(draws: _Draws, count: float, prob: float) -> float:
    if count <= 0 or prob <= 0:
        return 0.0
    if prob >= 1:
        return count
    if prob <= 0.5:
        return _binomial_below_half(draws, count, prob)
    if prob > 0.5:
        return count - _binomial_below_half(draws, count, 1.0 - prob)
    return math.nan


def _binomial_below_half(draws: _Draws, count: float, prob: float) -> float:
    if count * prob >= 10:
        return _binomial_rejected(draws, count, prob)
    log_failure = math.log1p(-prob)
    waited, successes = 0.0, 0
    while True:
        u = draws.uniform()
        waited += math.inf if u == 0 else math.ceil(math.log(u) / log_failure)
        if waited > count:
            return float(successes)
        successes += 1


# the tail of Stirling's series at 0 .. 9
_TAILS = (
    0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.0207906721037650,
    0.0166446911898211, 0.0138761288230707, 0.0118967099458917, 0.0104112652619720,
    0.00925546218271273, 0.00833056343336287,
)


def _tail(k: float) -> float:
    if k <= 9:
        return _TAILS[int(k)]
    square = (k + 1) * (k + 1)
    return (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1)


def _binomial_rejected(draws: _Draws, count: float, prob: float) -> float:
    deviation = math.sqrt(count * prob * (1 - prob))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * prob
    c = count * prob + 0.5
    v_r = 0.92 - 4.2 / b
    odds = prob / (1 - prob)
    alpha = (2.83 + 5.1 / b) * deviation
    m = math.floor((count + 1) * prob)
    while True:
        u = draws.uniform() - 0.5
        v = draws.uniform()
        us = 0.5 - abs(u)
        if us == 0:
            continue
        k = math.floor((2 * a / us + b) * u + c)
        if us >= 0.07 and v <= v_r:
            return float(k)
        if k < 0 or k > count or v == 0:
            continue
        v = math.log(v * alpha / (a / (us * us) + b))
        bound = (
            (m + 0.5) * math.log((m + 1) / (odds * (count - m + 1)))
            + (count + 1) * math.log((count - m + 1) / (count - k + 1))
            + (k + 0.5) * math.log(odds * (count - k + 1) / (k + 1))
            + _tail(m) + _tail(count - m) - _tail(k) - _tail(count - k)
        )
        if v <= bound:
            return float(k)


# --- gamma -----------------------------------------------------------------------------------

# torch writes these two in single precision
_THIRD = float(np.float32(1.0) / np.float32(3.0))
_SQUEEZE = float(np.float32(0.0331))


def _single(value: float) -> float:
    return float(np.float32(value))


def _gamma_one(draws: _Draws, alpha: float, rounded: Callable[[float], float]) -> float:
    """`rounded`: to the precision of alpha, in which torch does what concerns it alone."""
    if alpha == 0:
        return 0.0
    if not alpha > 0:
        return math.nan
    scale = 1.0
    if alpha < 1:
        scale = (1.0 - draws.uniform()) ** rounded(1.0 / alpha)
        alpha = rounded(alpha + 1.0)
    d = rounded(alpha - _THIRD)
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        while True:
            x = draws.normal()
            y = 1.0 + c * x
            if y > 0:
                break
        v = y * y * y
        u = 1.0 - draws.uniform()
        square = x * x
        if u < 1.0 - _SQUEEZE * square * square:
            return scale * d * v
        if math.log(u) < 0.5 * square + d * (1.0 - v + math.log(v)):
            return scale * d * v


def _gamma(state: Array, alpha: Array) -> tuple[Array, Array]:
    rounded = float if alpha.dtype == _F64 else _single
    values, after = _each(lambda draws, a: _gamma_one(draws, a, rounded), state, alpha)
    # zero would have no logarithm
    return np.maximum(values, _tiny(values.dtype)), after


def _tiny(dtype: np.dtype) -> Array:
    """The smallest normal number."""
    exponents = {"f64": -1022, "f16": -14}
    return np.array(2.0 ** exponents.get(dtypes.from_numpy(dtype).name, -126), dtype)


# --- words and pairs -------------------------------------------------------------------------


def _words(state: Array, *, shape: Sequence[int]) -> tuple[Array, Array]:
    stream = Stream(state)
    values = (stream.words(math.prod(shape)) & np.uint64(0x7FFFFFFF)).view(I64)
    return values.reshape(tuple(shape)), stream.state()


def _normal_pairs(state: Array, *, shape: Sequence[int]) -> tuple[Array, Array]:
    stream = Stream(state)
    values = _few_normals(stream, math.prod(shape))
    return values.reshape(tuple(shape)), stream.state()


def _uniform_where(state: Array, mask: Array) -> tuple[Array, Array]:
    stream = Stream(state)
    values = np.zeros(mask.shape, _F64)
    values[mask] = stream.doubles(int(mask.sum()))
    return values, stream.state()


TABLE: dict[str, Function] = {
    "rng_words": _words,
    "rng_normal_pairs": _normal_pairs,
    "rng_poisson": lambda state, rate: _each(_poisson_one, state, rate),
    "rng_binomial": lambda state, count, prob: _each(_binomial_one, state, count, prob),
    "rng_gamma": _gamma, "rng_uniform_where": _uniform_where,
}
