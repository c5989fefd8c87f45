"""Draws from a counter, by their operators' names: values of random bits that no stream orders.

The other random operators are drawn from mt19937's stream alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from . import dtypes
from .dtypes import DType
from .ops._counter import KEY_MIX, Source, chosen, lower32, top, upper32
from .ops._rules import cast, ops, select
from .types import Shape

_SECOND = 0x5851F42D4C957F2C  # even: an odd key stays odd


def drawn(name: str, state: Any, attrs: Mapping[str, Any], draws: int = 0) -> tuple[Any, Any]:
    """What rng_`name` gives, `draws` draws after a state: values, and the state after it."""
    source = Source(state, draws, attrs["shape"])
    return DRAWS[name](source, **attrs), source.after()


def _signed(value: int) -> int:
    """64 bits as i64 spells them."""
    return (value + 2**63) % 2**64 - 2**63


def _between(bits: Any) -> Any:
    """f64 inside (0, 1), neither end included: 52 bits and a half."""
    return (cast(top(bits, 52), dtypes.f64) + 0.5) * 2.0**-52


def _uniform(source: Source, *, shape: Shape, dtype: DType) -> Any:
    if dtype is dtypes.f64:
        return cast(top(source.bits(), 53), dtype) * 2.0**-53
    whole = ops.shift_right(source.bits(32), 8)  # f32 holds 24 bits
    values = cast(cast(whole, dtypes.f32) * 2.0**-24, dtype)
    if dtype.bits == 16:  # what rounds up to 1 becomes 0, as on the stream
        values = select(ops.eq(values, 1.0), 0.0, values)
    return values


def _normal(source: Source, *, shape: Shape, dtype: DType = dtypes.f64) -> Any:
    """Box and Muller's cosine of two uniforms."""
    bits = source.bits()
    if dtype is dtypes.f64:
        first, second = _between(bits), _between(source.bits(mix=KEY_MIX ^ _SECOND))
    else:
        first = (cast(upper32(bits), dtypes.f32) + 0.5) * 2.0**-32
        second = cast(lower32(bits), dtypes.f32) * 2.0**-32
    values = ops.sqrt(ops.log(first) * -2.0) * ops.cos(second * (2.0 * math.pi))
    return cast(values, dtype)


def _exponential(source: Source, *, shape: Shape, dtype: DType) -> Any:
    # in f64: f32's 24 bits would give 0, by which multinomial divides, far too often
    return cast(-ops.log1p(-_between(source.bits())), dtype)


def _bernoulli(source: Source, *, shape: Shape, p: float, dtype: DType) -> Any:
    return cast(chosen(source, p), dtype)


def _randint(source: Source, *, shape: Shape, low: int, high: int, dtype: DType) -> Any:
    bits, span = source.bits(), high - low
    drawn = bits if span == 2**64 else _scaled(bits, span)
    return cast(drawn + _signed(low), dtype)


def _scaled(bits: Any, span: int) -> Any:
    """floor(bits * span / 2**64) of unsigned numbers, by 32-bit halves."""
    high, low = span >> 32, span & (2**32 - 1)
    a, b = upper32(bits), lower32(bits)
    middle = a * low + upper32(b * low)
    if high == 0:
        return upper32(middle)
    carried = b * high + lower32(middle)
    return a * high + upper32(middle) + upper32(carried)


DRAWS: dict[str, Callable[..., Any]] = {
    "rng_uniform": _uniform,
    "rng_normal": _normal,
    "rng_normal_pairs": _normal,
    "rng_exponential": _exponential,
    "rng_bernoulli": _bernoulli,
    "rng_randint": _randint,
}
