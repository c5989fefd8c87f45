"""The operator `cast`, between every two element types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphc.backends.llvm.values import register_type
from graphc.ir import dtypes
from graphc.ir.dtypes import DType

if TYPE_CHECKING:
    from graphc.backends.llvm.scalar import Operations

_INT64_MIN = -(1 << 63)


def cast(o: Operations, x: str, source: DType, target: DType) -> str:
    """x in another dtype, by the rules of docs/architecture.md."""
    if source is target:
        return x
    if target is dtypes.bool_:
        zero = o.const(0, source)
        return o.compare("une" if source.is_float else "ne", source, x, zero)
    if source is dtypes.bool_:
        return o.select(x, target, o.const(1, target), o.const(0, target))
    if source.is_float:
        return (
            _float_to_float(o, x, source, target)
            if target.is_float
            else _to_int(o, x, source, target)
        )
    if target.is_float:
        instruction = "sitofp" if source.kind == "int" else "uitofp"
        through = dtypes.f32 if target.bits == 16 else target
        return _float_to_float(o, o.convert(instruction, x, source, through), through, target)
    if target.bits < source.bits:
        return o.convert("trunc", x, source, target)
    if target.bits == source.bits:  # u8 and i8 share their bits
        return x
    return o.convert("sext" if source.kind == "int" else "zext", x, source, target)


def _float_to_float(o: Operations, x: str, source: DType, target: DType) -> str:
    if source is target:
        return x
    if source is dtypes.bf16:
        x = _extend_bf16(o, x)
        return _float_to_float(o, x, dtypes.f32, target)
    if target.bits > source.bits:
        return o.convert("fpext", x, source, target)
    if target.bits == 16 and source is not dtypes.f32:  # torch rounds through float as well
        x = _float_to_float(o, x, source, dtypes.f32)
    if target is dtypes.bf16:
        return _round_bf16(o, x)
    return o.convert("fptrunc", x, dtypes.f32 if target.bits == 16 else source, target)


def _extend_bf16(o: Operations, x: str) -> str:
    """The upper half of a float's bits."""
    i16, i32 = register_type(dtypes.i16, o.lanes), register_type(dtypes.i32, o.lanes)
    bits = o.fn.let(f"bitcast {o.type(dtypes.bf16)} {x} to {i16}")
    wide = o.binary(
        "shl", dtypes.i32, o.fn.let(f"zext {i16} {bits} to {i32}"), o.const(16, dtypes.i32)
    )
    return o.fn.let(f"bitcast {i32} {wide} to {o.type(dtypes.f32)}")


def _round_bf16(o: Operations, x: str) -> str:
    """Round to nearest even in integers: the instruction that LLVM would use flushes subnormals."""
    i32 = dtypes.i32
    bits = o.fn.let(f"bitcast {o.type(dtypes.f32)} {x} to {o.type(i32)}")
    odd = o.binary("and", i32, o.binary("lshr", i32, bits, o.const(16, i32)), o.const(1, i32))
    bias = o.binary("add", i32, odd, o.const(0x7FFF, i32))
    rounded = o.binary("add", i32, bits, bias)
    nan = o.compare("uno", dtypes.f32, x, x)
    quiet = o.binary("or", i32, bits, o.const(1 << 22, i32))
    high = o.binary("lshr", i32, o.select(nan, i32, quiet, rounded), o.const(16, i32))
    narrow = o.convert("trunc", high, i32, dtypes.i16)
    return o.fn.let(f"bitcast {o.type(dtypes.i16)} {narrow} to {o.type(dtypes.bf16)}")


def _to_int(o: Operations, x: str, source: DType, target: DType) -> str:
    """Towards zero, through i64; what i64 cannot hold, and NaN, is INT64_MIN."""
    if source.bits == 16:
        x, source = _float_to_float(o, x, source, dtypes.f32), dtypes.f32
    i64 = dtypes.i64
    magnitude = o.intrinsic("fabs", source, x)
    inside = o.compare("olt", source, magnitude, o.const(2.0**63, source))
    safe = o.select(inside, source, x, o.const(0.0, source))
    whole = o.convert("fptosi", safe, source, i64)
    whole = o.select(inside, i64, whole, o.const(_INT64_MIN, i64))
    return whole if target is i64 else o.convert("trunc", whole, i64, target)
