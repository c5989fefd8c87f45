"""Random operators: torch's CPU generator (mt19937) and its algorithms, bit for bit.

A state is i64[626]: the 624 words, the position of the next one (624: used up), and the spare
normal of a pair as float64 bits, or NO_SPARE. Facts checked against PyTorch 2.13: design.md 13.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphc.ir.dtypes import DType
from graphc.ir.normal_numbers import (
    COS_P,
    DP,
    FOUR_OVER_PI,
    LOG_P,
    LOG_Q1,
    LOG_Q2,
    SIN_P,
    SQRT_HALF,
    TWO_PI,
)

from .common import F32, I64, Array, Function

NO_SPARE = -1
_WORDS = 624
_U64 = np.dtype(np.uint64)
_BLOCK = 1 << 14  # words that are drawn at a time


def seed_state(seed: int) -> Array:
    """The generator's state after torch.manual_seed(seed)."""
    state = np.empty(_WORDS + 2, I64)
    word = seed & 0xFFFFFFFF
    for i in range(_WORDS):
        state[i] = word
        word = (1812433253 * (word ^ (word >> 30)) + i + 1) & 0xFFFFFFFF
    state[_WORDS], state[_WORDS + 1] = _WORDS, NO_SPARE
    return state


class _Engine(threading.local):
    """NumPy's mt19937, one per thread: only its word stream is used, its state set anew. Made when
    somebody draws, as importing numpy.random takes 10 ms."""

    made: Any = None

    @property
    def bits(self) -> Any:
        if self.made is None:
            self.made = np.random.MT19937(0)
        return self.made


_engine = _Engine()


_MASKS = [_U64.type(mask) for mask in (0x9D2C5680, 0xEFC60000)]
_SHIFTS = {count: _U64.type(count) for count in (7, 11, 15, 18)}


def _tempered(words: Array) -> Array:
    """What mt19937 gives for words of its state."""
    y = words ^ (words >> _SHIFTS[11])
    y ^= (y << _SHIFTS[7]) & _MASKS[0]
    y ^= (y << _SHIFTS[15]) & _MASKS[1]
    y ^= y >> _SHIFTS[18]
    found: Array = y
    return found


class Stream:
    """The words that follow a state. `state()` is the state after those that were drawn."""

    def __init__(self, state: Array) -> None:
        # as long as the state itself has what is drawn, NumPy's is not set, which takes longer
        self._given, self._position = state, int(state[_WORDS])
        self._bits: Any = None
        self.spare = int(state[_WORDS + 1])

    def words(self, count: int) -> Array:
        """The next 32-bit words, as uint64."""
        if self._bits is None:
            end = self._position + count
            if self._position >= 0 and end <= _WORDS:
                found = _tempered(self._given[self._position : end].view(np.uint64))
                self._position = end
                return found
            if not 0 <= self._position <= _WORDS:  # NumPy 2.4 reads other memory
                raise ValueError(f"a generator's position is 0 to {_WORDS}, not {self._position}")
            self._bits = _engine.bits
            self._bits.state = {
                "bit_generator": "MT19937",
                "state": {"key": self._given[:_WORDS].astype(np.uint32), "pos": self._position},
            }
        words: Array = self._bits.random_raw(count)
        return words

    def double_words(self, count: int) -> Array:
        """64-bit numbers of two words each, the high one first."""
        pairs = self.words(2 * count).reshape(count, 2)
        return (pairs[:, 0] << _U64.type(32)) | pairs[:, 1]

    def doubles(self, count: int) -> Array:
        """float64 in [0, 1) with 53 bits, two words each."""
        return (self.double_words(count) & _U64.type(2**53 - 1)) * 2.0**-53

    def fractions(self, count: int) -> Array:
        """float64 in [0, 1) with 24 bits, one word each."""
        return (self.words(count) & _U64.type(2**24 - 1)) * 2.0**-24

    def state(self) -> Array:
        state = np.empty(_WORDS + 2, I64)
        if self._bits is None:
            state[:] = self._given
            state[_WORDS], state[_WORDS + 1] = self._position, self.spare
            return state
        inner: Any = self._bits.state["state"]
        state[:_WORDS] = inner["key"]
        state[_WORDS], state[_WORDS + 1] = inner["pos"], self.spare
        return state


def _uniforms(stream: Stream, count: int, dtype: DType) -> Array:
    """float64 values that are exact in dtype; half precision rounds float32's later."""
    return stream.doubles(count) if dtype.name == "f64" else stream.fractions(count)


def _uniform(state: Array, *, shape: Sequence[int], dtype: DType) -> tuple[Array, Array]:
    stream = Stream(state)
    if dtype.name == "f32":
        return _singles(stream, math.prod(shape)).reshape(tuple(shape)), stream.state()
    values = _uniforms(stream, math.prod(shape), dtype).astype(dtype.numpy)
    if dtype.bits == 16:  # what rounds up to 1 becomes 0, as in torch
        values[values == 1] = 0
    return values.reshape(tuple(shape)), stream.state()


def _singles(stream: Stream, count: int) -> Array:
    """`fractions` as float32, which holds 24 bits; by blocks, so that words stay in the cache:
    weights of layers are made of these."""
    values = np.empty(count, F32)
    for start in range(0, count, _BLOCK):
        part = values[start : start + _BLOCK]
        words = stream.words(part.size)
        words &= _U64.type(2**24 - 1)
        part[...] = words
        part *= F32.type(2.0**-24)
    return values


def _bernoulli(
    state: Array, *, shape: Sequence[int], p: float, dtype: DType
) -> tuple[Array, Array]:
    stream = Stream(state)
    values = (stream.doubles(math.prod(shape)) < p).astype(dtype.numpy)
    return values.reshape(tuple(shape)), stream.state()


def _exponential(state: Array, *, shape: Sequence[int], dtype: DType) -> tuple[Array, Array]:
    stream = Stream(state)
    values = -_libm(math.log1p, -stream.doubles(math.prod(shape)))
    return values.astype(dtype.numpy).reshape(tuple(shape)), stream.state()


def _randint(
    state: Array, *, shape: Sequence[int], low: int, high: int, dtype: DType
) -> tuple[Array, Array]:
    stream = Stream(state)
    count, span = math.prod(shape), high - low
    raw = stream.words(count) if span < 2**28 else stream.double_words(count)
    if span < 2**64:
        raw = raw % _U64.type(span)
    values = raw.view(I64) + low
    return values.astype(dtype.numpy).reshape(tuple(shape)), stream.state()


def _permutation(state: Array, *, n: int) -> tuple[Array, Array]:
    stream = Stream(state)
    order = list(range(n))
    if n > 1:
        draws = stream.words(n - 1) % np.arange(n, 1, -1, dtype=_U64)
        for i, step in enumerate(draws.tolist()):
            j = i + step
            order[i], order[j] = order[j], order[i]
    return np.array(order, I64), stream.state()


# --- normal ----------------------------------------------------------------------------------


def _normal(state: Array, *, shape: Sequence[int], dtype: DType) -> tuple[Array, Array]:
    stream = Stream(state)
    count = math.prod(shape)
    if count < 16:
        values = _few_normals(stream, count)
    else:
        whole = count - count % 16
        half = dtype.bits == 16  # torch draws block by block there, so none for the ragged end
        values = np.zeros(count)
        drawn = whole if half else count
        values[:drawn] = _uniforms(stream, drawn, dtype)
        box_muller = _box_muller_libm if dtype.name == "f64" else _box_muller_f32
        blocks = box_muller(values[:whole].reshape(-1, 16))
        values[:whole] = blocks.reshape(-1)
        if count != whole:  # the last 16 values are drawn again
            values[count - 16 :] = box_muller(_uniforms(stream, 16, dtype).reshape(1, 16))[0]
    return values.astype(dtype.numpy).reshape(tuple(shape)), stream.state()


def _few_normals(stream: Stream, count: int) -> Array:
    """Pairs of float64 normals; the second of an odd pair waits in the state."""
    values: list[float] = []
    while len(values) < count:
        if stream.spare != NO_SPARE:
            values.append(float(np.int64(stream.spare).view(np.float64)))
            stream.spare = NO_SPARE
            continue
        u1, u2 = stream.doubles(2).tolist()
        radius = math.sqrt(-2.0 * math.log1p(-u2))
        theta = 2.0 * math.pi * u1
        stream.spare = int(np.float64(radius * math.sin(theta)).view(np.int64))
        values.append(radius * math.cos(theta))
    return np.array(values, np.float64)


def _libm(function: Callable[[float], float], x: Array) -> Array:
    """A C library function elementwise: NumPy's own vector versions differ in the last bit."""
    return np.array([function(v) for v in x.reshape(-1).tolist()], np.float64).reshape(x.shape)


def _box_muller_libm(blocks: Array) -> Array:
    """Blocks of 16 uniforms (float64) to normals, by the C library."""
    radius = np.sqrt(-2.0 * _libm(math.log, 1.0 - blocks[:, :8]))
    theta = 2.0 * math.pi * blocks[:, 8:]
    return np.concatenate([radius * _libm(math.cos, theta), radius * _libm(math.sin, theta)], 1)


_CHUNK = 4096  # blocks at a time: temporaries stay in the cache


def _box_muller_f32(blocks: Array) -> Array:
    """Blocks of 16 float32 uniforms to normals, as torch's AVX2 code (avx_mathfun, contracted).

    Values are float32 numbers held in float64.
    """
    result = np.empty_like(blocks)
    for i in range(0, len(blocks), _CHUNK):
        part = blocks[i : i + _CHUNK]
        radius = _round(np.sqrt(-2.0 * _cephes_log(_round(1.0 - part[:, :8]))))
        sine, cosine = _cephes_sincos(_round(TWO_PI * part[:, 8:]))
        result[i : i + _CHUNK, :8] = _round(radius * cosine)
        result[i : i + _CHUNK, 8:] = _round(radius * sine)
    return result


def _round(x: Array) -> Array:
    """float64 to the nearest float32, held in float64."""
    return x.astype(F32).astype(np.float64)


def _fma(a: Array, b: Array | float, c: Array | float) -> Array:
    """a * b + c of float32 numbers rounded once.

    The product is exact in float64. Rounding the sum twice goes wrong only where the float64 sum
    lies halfway between two float32 numbers: there the sum's own rounding error decides.
    """
    product = a * b
    total = product + c
    half = (total.view(np.int64) & 0x1FFFFFFF) == 0x10000000
    if half.any():
        back = total - product
        error = (product - (total - back)) + (c - back)
        nudged = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
        total = np.where(half & (error != 0), nudged, total)
    return _round(total)


def _cephes_log(x: Array) -> Array:
    mantissa, exponent = np.frexp(x)
    e = exponent.astype(np.float64)
    below = mantissa < SQRT_HALF
    e = np.where(below, e - 1.0, e)
    x = np.where(below, _round(_round(mantissa - 1.0) + mantissa), mantissa - 1.0)
    z = _round(x * x)
    y = np.full_like(x, LOG_P[0])
    for p in LOG_P[1:]:
        y = _fma(y, x, p)
    y = _round(y * x)
    y = _fma(y, z, _round(e * LOG_Q1))
    y = _fma(z, -0.5, y)
    x = _round(x + y)
    return _fma(e, LOG_Q2, x)


def _cephes_sincos(x: Array) -> tuple[Array, Array]:
    """sin and cos of x >= 0."""
    octant = _round(x * FOUR_OVER_PI).astype(np.int64)
    octant = (octant + 1) & ~1
    y = octant.astype(np.float64)
    for part in DP:
        x = _fma(y, part, x)
    z = _round(x * x)
    c = _fma(_fma(np.full_like(z, COS_P[0]), z, COS_P[1]), z, COS_P[2])
    c = _round(c * z)
    c = _fma(c, z, _round(z * -0.5))
    c = _round(c + 1.0)
    s = _fma(_fma(np.full_like(z, SIN_P[0]), z, SIN_P[1]), z, SIN_P[2])
    s = _fma(_round(s * z), x, x)
    straight = (octant & 2) == 0
    sine, cosine = np.where(straight, s, c), np.where(straight, c, s)
    sine = np.where(octant & 4, -sine, sine)
    cosine = np.where(~(octant - 2) & 4, -cosine, cosine)
    return sine, cosine


TABLE: dict[str, Function] = {
    "rng_uniform": _uniform,
    "rng_normal": _normal,
    "rng_bernoulli": _bernoulli,
    "rng_randint": _randint,
    "rng_permutation": _permutation,
    "rng_exponential": _exponential,
}
