"""Test records of the elementwise operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from graphc.ir import dtypes
from graphc.ir.dtypes import DType
from graphc.ir.op import get
from tests.opinfo_core import (
    ANY,
    BITS,
    BOOL,
    FLOATS,
    INTS,
    NUMBERS,
    RNG,
    TORCH,
    Sample,
    draw,
    record,
    torch,
)

_SHAPES: tuple[tuple[int, ...], ...] = ((), (5,), (2, 3), (0, 3), (3, 43))
_PAIRS: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((3, 4), (3, 4)),
    ((3, 1), (1, 4)),
    ((), (3,)),
    ((2, 3), ()),
    ((0, 3), (3,)),
    ((2, 1, 4), (3, 1)),
    ((5, 67), (67,)),
)
SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -0.5, 1.5, -1.5, 2.5)


# around what integers hold
_BEYOND = (
    300.0, -300.0, 70000.0, 3e9, -5e9, 1e10 + 300, 2.0**31 - 1, 2.0**31, -(2.0**31) - 1, 9.3e18,
    1e19,
)


def special(dtype: DType) -> np.ndarray:
    """The values at which a float operator can go wrong."""
    return np.array(SPECIAL, np.float64).astype(dtype.numpy)


def unary_samples(name: str) -> Callable[[DType, RNG], Iterator[Sample]]:
    def samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
        low, high = get(name).domain
        for shape in _SHAPES:
            yield Sample((draw(rng, dtype, shape, low, high),))
        if dtype.is_float:
            yield Sample((special(dtype),), gradient=False)
        elif dtype.is_integer:
            limits = np.iinfo(dtype.numpy)
            extremes = np.array([limits.min, limits.min + 1, 0, limits.max], dtype.numpy)
            yield Sample((extremes,), gradient=False)

    return samples


def binary_samples(
    name: str, domain: tuple[float, float] | None = None, specials: bool = True
) -> Callable[[DType, RNG], Iterator[Sample]]:
    def samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
        low, high = get(name).domain if domain is None else domain
        for a, b in _PAIRS:
            yield Sample((draw(rng, dtype, a, low, high), draw(rng, dtype, b, low, high)))
        if dtype.is_float and specials:
            values = special(dtype)
            yield Sample((values[:, None], values[None, :]), gradient=False)

    return samples


def division_samples(name: str) -> Callable[[DType, RNG], Iterator[Sample]]:
    def samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
        for a, b in _PAIRS:
            divisor = draw(rng, dtype, b, 1, 10)
            if dtype.is_signed:
                sign = np.where(rng.integers(0, 2, b) == 0, -1, 1)
                divisor = (divisor.astype(np.float64) * sign).astype(dtype.numpy)
            yield Sample((draw(rng, dtype, a, -100, 100), np.asarray(divisor)))
        if dtype.is_float:
            values = special(dtype)
            yield Sample((values[:, None], values[None, :]), gradient=False)

    return samples


def pow_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    for a, b in _PAIRS:
        exponent = draw(rng, dtype, b, -2, 3) if dtype.is_float else draw(rng, dtype, b, 0, 4)
        base = draw(rng, dtype, a, 0.5, 3) if dtype.is_float else draw(rng, dtype, a, -3, 4)
        yield Sample((base, exponent))
    if dtype.is_float:
        values = special(dtype)
        yield Sample((values[:, None], values[None, :]), gradient=False)
    elif dtype.is_signed:
        yield Sample((draw(rng, dtype, (30,), -3, 4), draw(rng, dtype, (30,), -3, 4)))


def shift_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    for a, b in _PAIRS:
        yield Sample((draw(rng, dtype, a, -100, 100), draw(rng, dtype, b, 0, dtype.bits)))
    amounts = np.array([0, 1, dtype.bits - 1, dtype.bits, dtype.bits + 1, 100], dtype.numpy)
    yield Sample((draw(rng, dtype, (7, 1), -100, 100), amounts))


def where_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    for c, a, b in (((3, 4),) * 3, ((3, 1), (4,), ()), ((), (3,), (2, 1)), ((0, 2), (2,), ())):
        condition = draw(rng, dtypes.bool_, c)
        yield Sample((condition, draw(rng, dtype, a), draw(rng, dtype, b)))
    if dtype.is_float:
        values = special(dtype)
        yield Sample((np.arange(values.size) % 2 == 0, values, -values), gradient=False)


def clamp_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    for x, low, high in (((3, 4), (), ()), ((3, 4), (4,), (3, 1)), ((), (2,), ()), ((0,), (), ())):
        lower, upper = draw(rng, dtype, low, -5, 5), draw(rng, dtype, high, 0, 8)
        yield Sample((draw(rng, dtype, x), lower, upper))
    if dtype.is_float:
        one = np.array(1).astype(dtype.numpy)
        yield Sample((special(dtype), -one, one), gradient=False)


def cast_samples(dtype: DType, rng: RNG) -> Iterator[Sample]:
    for target in dtypes.ALL:
        low = 0 if "uint" in (target.kind, dtype.kind) else -100
        values = draw(rng, dtype, (3, 41), low, 100)
        yield Sample((values,), {"dtype": target})
    yield Sample((draw(rng, dtype, ()),), {"dtype": dtypes.f32})
    yield Sample((draw(rng, dtype, (0, 2)),), {"dtype": dtypes.f32})
    if dtype.is_float:
        beyond = np.array([*SPECIAL, *_BEYOND, *_BEYOND]).astype(np.float64)
        with np.errstate(over="ignore"):
            values = beyond.astype(dtype.numpy)
        for target in dtypes.ALL:
            yield Sample((values,), {"dtype": target}, gradient=False)


# --- references ------------------------------------------------------------------------------


def _cast(x: Any, *, dtype: DType) -> Any:
    return x.to(TORCH[dtype.name])


_UNARY_NUMBERS = {
    "neg": torch.neg,
    "abs": torch.abs,
    "sign": torch.sign,
    "square": torch.square,
    "relu": torch.relu,
}
_UNARY_FLOAT = (
    "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh "
    "cosh tanh asinh acosh atanh erf erfc erfinv lgamma digamma sigmoid"
).split()
_ROUNDING = "floor ceil round trunc".split()
_TESTS = "isnan isinf isfinite".split()

for _name, _function in _UNARY_NUMBERS.items():
    record(_name, unary_samples(_name), _function, NUMBERS)
for _name in _UNARY_FLOAT:
    record(_name, unary_samples(_name), getattr(torch, _name), FLOATS, tolerance=4.0)
for _name in _ROUNDING:
    record(_name, unary_samples(_name), getattr(torch, _name), NUMBERS)
for _name in _TESTS:
    record(_name, unary_samples(_name), getattr(torch, _name), FLOATS, gradient="bool result")
record("logical_not", unary_samples("logical_not"), torch.logical_not, ANY, gradient="bool result")
record(
    "bitwise_not", unary_samples("bitwise_not"), torch.bitwise_not, BITS, gradient="integer result"
)

for _name in ("add", "mul"):
    record(_name, binary_samples(_name), getattr(torch, _name), NUMBERS)
record("sub", binary_samples("sub"), torch.sub, NUMBERS)
record("div", division_samples("div"), torch.div, FLOATS)
record(
    "floor_divide",
    division_samples("floor_divide"),
    torch.floor_divide,
    NUMBERS,
    gradient="torch does not differentiate floor_divide",
)
record(
    "trunc_divide",
    division_samples("trunc_divide"),
    lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    NUMBERS,
)
for _name in ("remainder", "fmod"):
    record(_name, division_samples(_name), getattr(torch, _name), NUMBERS, tolerance=100.0)
record("pow", pow_samples, torch.pow, NUMBERS, tolerance=8.0)
for _name in ("maximum", "minimum"):
    record(_name, binary_samples(_name), getattr(torch, _name), NUMBERS)
for _name in ("fmax", "fmin"):
    record(_name, binary_samples(_name), getattr(torch, _name), NUMBERS)
for _name in ("atan2", "copysign", "hypot"):
    record(_name, binary_samples(_name), getattr(torch, _name), FLOATS, tolerance=4.0)
for _name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    record(_name, binary_samples(_name), getattr(torch, _name), BITS, gradient="integer result")
for _name in ("shift_left", "shift_right"):
    record(
        _name,
        shift_samples,
        getattr(torch, "bitwise_" + "_".join(reversed(_name.split("_")))),
        INTS,
        gradient="integer result",
    )
for _name in ("logical_and", "logical_or", "logical_xor"):
    record(_name, binary_samples(_name), getattr(torch, _name), BOOL, gradient="bool result")
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    record(_name, binary_samples(_name), getattr(torch, _name), ANY, gradient="bool result")
record("where", where_samples, torch.where, ANY)
record("clamp", clamp_samples, lambda *xs: torch.clamp(*torch.broadcast_tensors(*xs)), NUMBERS)
record("cast", cast_samples, _cast, ANY)
