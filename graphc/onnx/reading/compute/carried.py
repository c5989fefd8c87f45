"""Element types of ONNX that tensors here do not have: their values lie in a dtype that holds all.

uint16 is carried by int32, uint32 by int64, uint64 by the bits of int64, integers of 2 and 4 bits
by 8 bits, float8 and float4 by float16 (float8e8m0, a scale, by float32). A Carried goes with the
kind that it stands for, so that what is cast, quantized or added has its range and rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from ....frontend import functions as T
from ....frontend.tensor import Tensor
from ....ir.dtypes import DType


@dataclass(frozen=True, eq=False)
class Kind:
    """An element type. `holder`: the dtype of tensors that carry it."""

    name: str  # ONNX's word
    number: int  # TensorProto.DataType
    numpy: np.dtype
    holder: DType
    bits: int

    @property
    def is_integer(self) -> bool:
        return self.numpy in _INTEGERS

    @property
    def is_unsigned(self) -> bool:
        """Whether it is one of those that take part in arithmetic: 16 bits and more."""
        return self.bits >= 16

    @property
    def ends(self) -> tuple[int, int]:
        """The least and the largest of an integer kind."""
        signed = self.numpy in _SIGNED
        return (-(1 << self.bits - 1), (1 << self.bits - 1) - 1) if signed else (
            0, (1 << self.bits) - 1
        )

    def __repr__(self) -> str:
        return self.name


_SIGNED = tuple(map(np.dtype, (ml_dtypes.int4, ml_dtypes.int2)))
_INTEGERS = (
    *_SIGNED, *map(np.dtype, (ml_dtypes.uint4, ml_dtypes.uint2, np.uint16, np.uint32, np.uint64))
)
KINDS: tuple[Kind, ...] = tuple(
    Kind(name, number, np.dtype(numpy), holder, bits) for name, number, numpy, holder, bits in (
        ("uint16", 4, np.uint16, T.int32, 16), ("uint32", 12, np.uint32, T.int64, 32),
        ("uint64", 13, np.uint64, T.int64, 64),
        ("float8e4m3fn", 17, ml_dtypes.float8_e4m3fn, T.float16, 8),
        ("float8e4m3fnuz", 18, ml_dtypes.float8_e4m3fnuz, T.float16, 8),
        ("float8e5m2", 19, ml_dtypes.float8_e5m2, T.float16, 8),
        ("float8e5m2fnuz", 20, ml_dtypes.float8_e5m2fnuz, T.float16, 8),
        ("uint4", 21, ml_dtypes.uint4, T.uint8, 4), ("int4", 22, ml_dtypes.int4, T.int8, 4),
        ("float4e2m1", 23, ml_dtypes.float4_e2m1fn, T.float16, 4),
        ("float8e8m0", 24, ml_dtypes.float8_e8m0fnu, T.float32, 8),
        ("uint2", 25, ml_dtypes.uint2, T.uint8, 2), ("int2", 26, ml_dtypes.int2, T.int8, 2),
    )
)
_BY_NUMPY = {kind.numpy: kind for kind in KINDS}
_SIGN = -(1 << 63)  # the highest bit of 64


class Carried:
    """A tensor of a kind, and the dtype that carries it."""

    __slots__ = ("kind", "tensor")

    def __init__(self, tensor: Tensor, kind: Kind) -> None:
        self.tensor, self.kind = tensor, kind

    @property
    def shape(self) -> Any:
        return self.tensor.shape

    def __repr__(self) -> str:
        return f"Carried({self.kind}, {list(self.tensor.shape)})"


def kind_for(numpy: np.dtype) -> Kind | None:
    """The kind of a NumPy dtype; None for those that tensors have."""
    return _BY_NUMPY.get(numpy)


def held_array(array: np.ndarray, kind: Kind) -> np.ndarray:
    """The elements in the dtype that carries them."""
    if kind.name == "uint64":
        return array.view(np.int64)
    return array.astype(kind.holder.numpy)


# --- conversions -------------------------------------------------------------------------------


def plain(x: Any, dtype: DType) -> Tensor:
    """A value, carried or not, in a dtype of tensors."""
    if isinstance(x, Tensor):
        return x if x.dtype is dtype else x.to(dtype)
    tensor: Tensor = x.tensor
    if x.kind.name == "uint64" and dtype.is_floating_point:
        # the highest bit is 2^63: half of it (with what is cut off kept for rounding), doubled
        half = T.bitwise_or(T.bitwise_and(T.bitwise_right_shift(tensor, 1), ~_SIGN), tensor & 1)
        return T.where(tensor < 0, half.to(dtype) * 2, tensor.to(dtype))
    if x.kind.name == "uint64" and dtype is T.bool:
        return T.ne(tensor, 0)
    return tensor if tensor.dtype is dtype else tensor.to(dtype)


def carried(x: Any, kind: Kind, saturate: bool = True, mode: str = "up") -> Carried:
    """A value cast to a kind. `saturate`: what is too large for a float8 becomes its largest;
    `mode`: of float8e8m0, which way its powers of two are rounded."""
    if isinstance(x, Carried) and x.kind is kind:
        return x
    if kind.is_integer:
        return Carried(_integer(x, kind), kind)
    wide = T.float64 if isinstance(x, Tensor) and x.dtype is T.float64 else T.float32
    value = plain(x, wide)
    if kind.name == "float8e8m0":
        found = _power(value.to(T.float32), saturate, mode)
    else:
        found = _small_float(value, kind, saturate)
    return Carried(found.to(kind.holder), kind)


def _integer(x: Any, kind: Kind) -> Tensor:
    """Towards zero, and cut to its bits."""
    if kind.name == "uint64" and isinstance(x, Tensor) and x.dtype.is_floating_point:
        wide = x.to(T.float64)
        high = wide >= 2.0**63
        low = T.where(high, wide - 2.0**63, wide).to(T.int64)
        return T.where(high, T.bitwise_xor(low, _SIGN), low)
    return wrapped_to(plain(x, T.int64), kind)


def wrapped_to(x: Tensor, kind: Kind) -> Tensor:
    """Integers modulo 2^bits, in the dtype that carries them."""
    if kind.bits == 64:
        return x
    found = T.bitwise_and(x, (1 << kind.bits) - 1)
    if kind.ends[0] < 0:
        half = 1 << kind.bits - 1
        found = T.bitwise_xor(found, half) - half
    return plain(found, kind.holder)


def _exponent(size: Tensor, least: int, most: int) -> tuple[Tensor, Tensor]:
    """k and 2^(k + least) for a size in [2^(k + least), 2^(k + least + 1)), k from 0 on: by a
    logarithm, whose rounding is mended by comparing."""
    count = most - least
    powers = T.tensor([2.0 ** (least + k) for k in range(count + 2)], dtype=size.dtype)
    guess = T.where(size > 0, T.log2(size), T.full_like(size, float(least)))
    k = T.clamp(T.nan_to_num(T.floor(guess), nan=0.0) - least, 0, count).to(T.int64)
    k = k + ((size >= powers[k + 1]) & (k < count)).to(T.int64)
    k = k - ((size < powers[k]) & (k > 0)).to(T.int64)
    return k, powers[k]


def _small_float(x: Tensor, kind: Kind, saturate: bool) -> Tensor:
    """The nearest of the kind's numbers, of two the even one."""
    info = ml_dtypes.finfo(kind.numpy)
    largest, least = float(info.max), round(math.log2(float(info.smallest_normal)))
    bounded = saturate or kind.name == "float4e2m1"
    limit = largest if bounded else 2 * largest
    limited = T.clamp(x, -limit, limit)
    _, power = _exponent(T.abs(limited), least, round(math.log2(limit)))
    quantum = power * 2.0 ** -int(info.nmant)  # the distance of neighbours
    found = T.round(limited / quantum) * quantum
    if not bounded:
        beyond = x * math.inf if kind.name == "float8e5m2" else T.full_like(x, math.nan)
        found = T.where(T.abs(found) > largest, beyond, found)
    if kind.name.endswith("fnuz"):  # it has one zero
        found = T.where(found == 0, T.zeros_like(found), found)
    if kind.name == "float4e2m1":  # it has no NaN
        found = T.where(T.isnan(x), T.full_like(x, -0.0), found)
    return found


def _power(x: Tensor, saturate: bool, mode: str) -> Tensor:
    """A power of two, of float32's exponents; signs do not count. Numbers below the normal ones of
    float32 are more than the least, 2^-127, as far as rounding goes."""
    size = T.abs(x)
    k, power = _exponent(size, -127, 127)  # k: the bits of the exponent
    exact = T.where(k == 0, T.zeros_like(power), power)
    if mode == "up":
        more = size > exact
    elif mode == "nearest":
        half = T.where(k == 0, T.full_like(power, 2.0**-127), power * 1.5)
        more = (size > half) | ((size == half) & (k > 0))
    else:
        more = T.zeros_like(k, dtype=T.bool)
    if saturate:
        more = more & (k != 254)
    k = k + more.to(T.int64)
    table = T.tensor([2.0 ** (i - 127) for i in range(255)] + [math.nan], dtype=T.float32)
    return T.where(T.isfinite(x), table[k], T.full_like(x, math.nan))


# --- unsigned integers of 64 bits ----------------------------------------------------------------


def ordered(x: Tensor) -> Tensor:
    """Bits of uint64 as int64 in the same order; the same function leads back."""
    return T.bitwise_xor(x, _SIGN)


def divided(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Quotient and rest of bits of uint64."""
    huge = b < 0  # 2^63 or more: it goes into anything once at most
    half = T.bitwise_and(T.bitwise_right_shift(a, 1), ~_SIGN)
    half = T.div(half, T.where(huge, T.ones_like(b), b), rounding_mode="trunc") * 2
    quotient = T.where(huge, T.zeros_like(half), half)
    rest = a - quotient * b
    more = ordered(rest) >= ordered(b)
    return quotient + more.to(T.int64), T.where(more, rest - b, rest)


def shifted_right(x: Tensor, by: Tensor) -> Tensor:
    """Bits of uint64, filled with 0 from the left."""
    inside = (by >= 0) & (by < 64)
    by = T.where(inside, by, T.zeros_like(by))
    once = T.bitwise_and(T.bitwise_right_shift(x, 1), ~_SIGN)  # the sign is gone
    found = T.where(by == 0, x, T.bitwise_right_shift(once, T.clamp(by - 1, min=0)))
    return T.where(inside, found, T.zeros_like(found))
