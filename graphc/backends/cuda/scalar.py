"""The elementwise operators as CUDA C expressions; prelude.py has the helpers that they call."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence

import numpy as np

from graphc.ir import dtypes
from graphc.ir.dtypes import DType
from graphc.ir.op import Op

C_TYPES = {
    "bool": "bool",
    "u8": "unsigned char",
    "i8": "signed char",
    "i16": "short",
    "i32": "int",
    "i64": "long long",
    "f16": "f16",
    "bf16": "bf16",
    "f32": "float",
    "f64": "double",
}


def c_type(dtype: DType) -> str:
    """The C type of a scalar. Raises NotImplementedError for complex numbers."""
    found = C_TYPES.get(dtype.name)
    if found is None:
        raise NotImplementedError(f"the CUDA backend has no {dtype.name} yet")
    return found


def literal(value: float | int | bool, dtype: DType) -> str:
    """A constant; floats by their bits, so that they are exact."""
    if dtype is dtypes.bool_:
        return "true" if value else "false"
    if not dtype.is_float:
        if value == -(1 << 63):
            return "((i64)1 << 63)"
        return f"(({c_type(dtype)}){int(value)}LL)"
    number = float(value)
    if dtype.bits == 16:
        bits = int(dtypes.rounded(number, dtype).view(np.uint16))
        return f"{dtype.name}_bits(0x{bits:04x}u)"
    if dtype is dtypes.f64:
        return f"double_bits(0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016x}ULL)"
    try:
        bits = struct.unpack("<I", struct.pack("<f", number))[0]
    except OverflowError:  # rounds to infinity
        bits = 0x7F800000 if number > 0 else 0xFF800000
    return f"float_bits(0x{bits:08x}u)"


def has(op: Op, given: Sequence[DType], made: Sequence[DType]) -> bool:
    """Whether there is C for an operator's scalars, of these dtypes."""
    if any(dtype.name not in C_TYPES for dtype in (*given, *made)):
        return False
    if not op.elementwise or op.family == "cast":
        return True
    lines = _FLOAT if given[0].is_float else _INTEGER
    return op.name in lines or op.name in _ANY


def apply(op: str, result: DType, arg_dtypes: Sequence[DType], args: list[str]) -> str:
    """The expression of an operator. Raises NotImplementedError for one without a table line."""
    dtype = arg_dtypes[0]
    if op == "cast":
        return _cast(args[0], dtype, result)
    if any(_is_half(each) for each in arg_dtypes):
        return _through_float(op, result, arg_dtypes, args)
    emit = (_FLOAT if dtype.is_float else _INTEGER).get(op) or _ANY.get(op)
    if emit is None:
        raise NotImplementedError(f"operator {op!r} on {dtype} has no CUDA code")
    text = emit(dtype, *args)
    return f"(({c_type(result)})({text}))" if not result.is_float else f"({text})"


def _is_half(dtype: DType) -> bool:
    return dtype.is_float and dtype.bits == 16


def _through_float(op: str, result: DType, arg_dtypes: Sequence[DType], args: list[str]) -> str:
    """f16 and bf16 arithmetic is rounded float arithmetic, operator by operator."""
    wide = [f"((float){x})" if _is_half(d) else x for x, d in zip(args, arg_dtypes, strict=True)]
    kinds = [dtypes.f32 if _is_half(dtype) else dtype for dtype in arg_dtypes]
    if not _is_half(result):
        return apply(op, result, kinds, wide)
    return f"(({c_type(result)}){apply(op, dtypes.f32, kinds, wide)})"


def combine(kind: str, dtype: DType, a: str, b: str) -> str:
    """A carry's combine, or a store's."""
    if kind in ("add", "mul") and not dtype.is_float:
        return _INTEGER[kind](dtype, a, b)
    return {
        "add": f"({a} + {b})",
        "mul": f"({a} * {b})",
        "max": f"take_max({a}, {b})",
        "min": f"take_min({a}, {b})",
        "or": f"({a} | {b})",
        "and": f"({a} & {b})",
        "set": b,
    }[kind]


def _cast(x: str, source: DType, target: DType) -> str:
    kind = c_type(target)
    if _is_half(source) and target is not source:
        return _cast(f"((float){x})", dtypes.f32, target)
    if target is dtypes.bool_:
        return f"({x} != 0)"
    if source.is_float and not target.is_float:
        return f"(({kind})to_{dtypes.converted_through(target).name}({x}))"
    return f"(({kind}){x})"


Emit = Callable[..., str]


def _call(name: str) -> Emit:
    """A function of the C library; its float version ends in f."""
    return lambda dtype, *args: f"{name}{'f' if dtype is dtypes.f32 else ''}({', '.join(args)})"


def _helper(name: str) -> Emit:
    """A function of prelude.py."""
    return lambda dtype, *args: f"{name}({', '.join(args)})"


def _infix(sign: str) -> Emit:
    return lambda dtype, a, b: f"{a} {sign} {b}"


def _one(dtype: DType) -> str:
    return literal(1.0, dtype)


def _sigmoid(dtype: DType, x: str) -> str:
    return f"{_one(dtype)} / ({_one(dtype)} + {_call('exp')(dtype, '-' + x)})"


_ANY: dict[str, Emit] = {
    "relu": lambda dtype, x: f"{x} < 0 ? 0 : {x}",
    "sign": lambda dtype, x: f"({x} > 0) - ({x} < 0)",
    "maximum": lambda dtype, a, b: f"take_max({a}, {b})",
    "minimum": lambda dtype, a, b: f"take_min({a}, {b})",
    "floor_divide": _helper("floor_divide"),
    "trunc_divide": _helper("trunc_divide"),
    "remainder": _helper("remainder_of"),
    "clamp": lambda dtype, x, low, high: f"take_min({high}, take_max({low}, {x}))",  # of equals x
    "where": lambda dtype, c, a, b: f"{c} ? {a} : {b}",
    "eq": _infix("=="),
    "ne": _infix("!="),
    "lt": _infix("<"),
    "le": _infix("<="),
    "gt": _infix(">"),
    "ge": _infix(">="),
    "logical_and": _infix("&&"),
    "logical_or": _infix("||"),
    "logical_xor": lambda dtype, a, b: f"({a} != 0) != ({b} != 0)",
    "logical_not": lambda dtype, x: f"!{x}",
}
_FLOAT: dict[str, Emit] = {
    **{
        name: _call(name)
        for name in (
            "exp exp2 expm1 log log2 log10 log1p sqrt sin cos tan asin acos atan sinh cosh tanh "
            "asinh acosh atanh erf erfc erfinv lgamma floor ceil trunc pow atan2 fmod copysign "
            "hypot fma"
        ).split()
    },
    "add": _infix("+"),
    "sub": _infix("-"),
    "mul": _infix("*"),
    "neg": lambda dtype, x: f"-{x}",
    "square": lambda dtype, x: f"{x} * {x}",
    "digamma": _helper("digamma"),
    "abs": _call("fabs"),
    "round": _call("rint"),
    "fmax": _call("fmax"),
    "fmin": _call("fmin"),
    "div": _infix("/"),
    "reciprocal": lambda dtype, x: f"{_one(dtype)} / {x}",
    "rsqrt": lambda dtype, x: f"{_one(dtype)} / {_call('sqrt')(dtype, x)}",
    "sigmoid": _sigmoid,
    "isnan": lambda dtype, x: f"{x} != {x}",
    "isinf": lambda dtype, x: f"{_call('fabs')(dtype, x)} == {literal(math.inf, dtype)}",
    "isfinite": lambda dtype, x: f"{_call('fabs')(dtype, x)} < {literal(math.inf, dtype)}",
}
_INTEGER: dict[str, Emit] = {
    # which wrap: what the sign makes undefined, the compiler takes for what never happens
    "add": _helper("wrapped_add"),
    "sub": _helper("wrapped_sub"),
    "mul": _helper("wrapped_mul"),
    "neg": _helper("wrapped_neg"),
    "square": lambda dtype, x: f"wrapped_mul({x}, {x})",
    "abs": lambda dtype, x: f"{x} < 0 ? wrapped_neg({x}) : {x}",
    "floor": lambda dtype, x: x,
    "ceil": lambda dtype, x: x,
    "round": lambda dtype, x: x,
    "trunc": lambda dtype, x: x,
    "isnan": lambda dtype, x: "false",
    "isinf": lambda dtype, x: "false",
    "isfinite": lambda dtype, x: "true",
    "fmod": _helper("rest"),
    "pow": _helper("power"),
    "fmax": _helper("take_max"),
    "fmin": _helper("take_min"),
    "shift_left": _helper("shift_left"),
    "shift_right": _helper("shift_right"),
    "bitwise_and": _infix("&"),
    "bitwise_or": _infix("|"),
    "bitwise_xor": _infix("^"),
    "bitwise_not": lambda dtype, x: f"!{x}" if dtype is dtypes.bool_ else f"~{x}",
}
