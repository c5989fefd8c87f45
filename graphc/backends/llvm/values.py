"""How the kernel IR's scalars appear in LLVM text: types, constants, and the Value record."""

import functools
import math
import struct
from typing import NamedTuple

import numpy as np

from graphc.ir import dtypes
from graphc.ir.dtypes import DType

_REGISTER = {
    "bool": "i1",
    "u8": "i8",
    "i8": "i8",
    "i16": "i16",
    "i32": "i32",
    "i64": "i64",
    # as bits: LLVM's own 16-bit floats become library calls on many targets
    "f16": "i16",
    "bf16": "i16",
    "f32": "float",
    "f64": "double",
}


class Value(NamedTuple):
    """One computed scalar: `lanes` of it, or 1 where all lanes (or the only one) agree.

    `level` is the depth of the innermost scope that it depends on: it may be computed before any
    deeper loop. `stable` is False for what reads memory that the kernel also writes.
    """

    text: str
    dtype: DType
    lanes: int
    level: int
    stable: bool = True


@functools.cache
def register_type(dtype: DType, lanes: int = 1) -> str:
    """The type in registers: bool is i1."""
    element = _REGISTER[dtype.name]
    return element if lanes == 1 else f"<{lanes} x {element}>"


@functools.cache
def memory_type(dtype: DType, lanes: int = 1) -> str:
    """The type in memory: bool is a byte, 0 or 1."""
    element = "i8" if dtype is dtypes.bool_ else _REGISTER[dtype.name]
    return element if lanes == 1 else f"<{lanes} x {element}>"


def suffix(dtype: DType, lanes: int = 1, memory: bool = False) -> str:
    """How an overloaded intrinsic's name ends for this type: f32, v16f32, v8i64."""
    name = {"float": "f32", "double": "f64"}
    element = (memory_type if memory else register_type)(dtype)
    element = name.get(element, element)
    return element if lanes == 1 else f"v{lanes}{element}"


def constant(value: float | int | bool, dtype: DType, lanes: int = 1) -> str:
    """LLVM's spelling of a constant in every lane; integers wrap, floats round to the dtype."""
    element = _element_constant(value, dtype)
    return element if lanes == 1 else f"splat ({_REGISTER[dtype.name]} {element})"


def _element_constant(value: float | int | bool, dtype: DType) -> str:
    if dtype is dtypes.bool_:
        return "true" if value else "false"
    if not dtype.is_float:
        whole = int(value) & ((1 << dtype.bits) - 1)
        return str(whole - (1 << dtype.bits) if whole >> (dtype.bits - 1) else whole)
    if dtype is dtypes.f16:
        return str(dtypes.rounded(value, dtype).view(np.int16))
    if dtype is dtypes.bf16:
        rounded = np.asarray(np.float32(value)).astype(dtypes.bf16.numpy)
        return str(rounded.view(np.int16))
    number = float(value)
    if dtype is dtypes.f32 and math.isfinite(number):
        number = float(dtypes.rounded(number, dtype))
    return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"


@functools.cache
def lane_numbers(lanes: int, element: str = "i64", stride: int = 1) -> str:
    """The constant vector <0, stride, 2*stride, ...>."""
    return "<" + ", ".join(f"{element} {lane * stride}" for lane in range(lanes)) + ">"


@functools.cache
def shuffle_mask(first: int, count: int, step: int = 1) -> str:
    """A shufflevector mask that takes `count` lanes from `first` on."""
    lanes = ", ".join(f"i32 {first + step * lane}" for lane in range(count))
    return f"<{count} x i32> <{lanes}>"
