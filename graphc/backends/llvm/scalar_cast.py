"""The operator `cast`, between every two element types."""

from __future__ import annotations

from collections.abc import Sequence

from graphc.backends.llvm.instructions import Instructions
from graphc.ir import dtypes
from graphc.ir.dtypes import DType


def cast(o: Instructions, x: str, source: DType, target: DType) -> str:
    """x in another dtype, by the rules of docs/architecture.md."""
    if source is target:
        return x
    if target is dtypes.bool_ and source.is_float and source.bits == 16:
        return cast(o, _float_to_float(o, x, source, dtypes.f32), dtypes.f32, target)
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


def _float_to_float(o: Instructions, x: str, source: DType, target: DType) -> str:
    if source is target:
        return x
    if source is dtypes.bf16:
        x = _extend_bf16(o, x)
        return _float_to_float(o, x, dtypes.f32, target)
    if source is dtypes.f16:
        wide = _convert_f16(o, x) if _has_half(o) else _extend_f16(o, x)
        return _float_to_float(o, wide, dtypes.f32, target)
    if target.bits > source.bits:
        return o.convert("fpext", x, source, target)
    if target.bits == 16 and source is not dtypes.f32:  # torch rounds through float as well
        x = _float_to_float(o, x, source, dtypes.f32)
    if target is dtypes.bf16:
        return _round_bf16(o, x)
    if target is dtypes.f16:
        return _narrow_f16(o, x) if _has_half(o) else _round_f16(o, x)
    return o.convert("fptrunc", x, source, target)


def _extend_bf16(o: Instructions, x: str) -> str:
    """The upper half of a float's bits."""
    i32 = dtypes.i32
    wide = o.convert("zext", x, dtypes.i16, i32)
    return _bits(o, o.binary("shl", i32, wide, o.const(16, i32)), i32, dtypes.f32)


def _round_bf16(o: Instructions, x: str) -> str:
    """Round to nearest even. The instruction takes subnormals for 0: where none are about."""
    if o.lanes % _PAIR or not o.target.rounds_bf16:
        return _round_bf16_by_bits(o, x)
    fn, slice_ = o.fn, o.math(dtypes.f32).slice
    parts = [slice_(x, start, _PAIR // 2) for start in range(0, o.lanes, _PAIR // 2)]
    subnormal = _any_subnormal(o, parts)
    name, half = "@llvm.x86.avx512bf16.cvtne2ps2bf16.512", f"<{_PAIR} x bfloat>"
    o.module.declare(f"declare {half} {name}({_REGISTER}, {_REGISTER})")
    rounded = []
    for low, high in zip(parts[::2], parts[1::2], strict=True):
        pair = fn.let(f"call {half} {name}({_REGISTER} {high}, {_REGISTER} {low})")
        rounded.append(fn.let(f"bitcast {half} {pair} to <{_PAIR} x i16>"))
    whole = _side_by_side(o, rounded)
    before, few, done = fn.current, fn.label("subnormal"), fn.label("rounded")
    fn.cond_br(subnormal, few, done)
    fn.block(few)
    exact = _round_bf16_by_bits(o, x)
    after = fn.current
    fn.br(done)
    fn.block(done)
    return fn.phi(o.type(dtypes.bf16), ((whole, before), (exact, after)))


_PAIR = 32  # lanes of the two registers that are rounded into one
_REGISTER = "<16 x float>"


def _any_subnormal(o: Instructions, parts: Sequence[str]) -> str:
    name, mask = "@llvm.x86.avx512.fpclass.ps.512", f"<{_PAIR // 2} x i1>"
    o.module.declare(f"declare {mask} {name}({_REGISTER}, i32)")
    found = ""
    for part in parts:
        here = o.fn.let(f"call {mask} {name}({_REGISTER} {part}, i32 32)")
        found = o.fn.let(f"or {mask} {found}, {here}") if found else here
    bits = o.fn.let(f"bitcast {mask} {found} to i{_PAIR // 2}")
    return o.fn.let(f"icmp ne i{_PAIR // 2} {bits}, 0")


def _side_by_side(o: Instructions, parts: list[str]) -> str:
    """Registers of halves as one vector; a power of two of them."""
    lanes = _PAIR
    while len(parts) > 1:
        kind, order = f"<{lanes} x i16>", ", ".join([f"i32 {lane}" for lane in range(2 * lanes)])
        parts = [
            o.fn.let(f"shufflevector {kind} {a}, {kind} {b}, <{2 * lanes} x i32> <{order}>")
            for a, b in zip(parts[::2], parts[1::2], strict=True)
        ]
        lanes *= 2
    return parts[0]


def _round_bf16_by_bits(o: Instructions, x: str) -> str:
    """In integers."""
    i32 = dtypes.i32
    bits = _bits(o, x, dtypes.f32, i32)
    if o.target.vector_bytes == 64 and o.lanes > 1:  # a mask costs less than moving the bit down
        bit = o.binary("and", i32, bits, o.const(1 << 16, i32))
        odd = o.compare("ne", i32, bit, o.const(0, i32))
        low, high = (o.binary("add", i32, bits, o.const(b, i32)) for b in (0x7FFF, 0x8000))
        rounded = o.select(odd, i32, high, low)
    else:
        odd = o.binary("and", i32, o.binary("lshr", i32, bits, o.const(16, i32)), o.const(1, i32))
        rounded = o.binary("add", i32, bits, o.binary("add", i32, odd, o.const(0x7FFF, i32)))
    nan = o.compare("uno", dtypes.f32, x, x)
    quiet = o.binary("or", i32, bits, o.const(1 << 22, i32))
    return _upper(o, o.select(nan, i32, quiet, rounded))


def _upper(o: Instructions, bits: str) -> str:
    """The upper halves of 32 bits: of several registers two are put into one by one shuffle."""
    i32 = dtypes.i32
    if o.target.vector_bytes < 64 or o.lanes < 32:
        return o.convert("trunc", o.binary("lshr", i32, bits, o.const(16, i32)), i32, dtypes.i16)
    halves = f"<{2 * o.lanes} x i16>"
    parts = o.fn.let(f"bitcast {o.type(i32)} {bits} to {halves}")
    upper = ", ".join([f"i32 {2 * lane + 1}" for lane in range(o.lanes)])
    return o.fn.let(
        f"shufflevector {halves} {parts}, {halves} poison, <{o.lanes} x i32> <{upper}>"
    )


def cut(o: Instructions, x: str, half: DType) -> str:
    """A float32 that `half` has, in it: nothing is rounded."""
    if half is dtypes.bf16:
        return _upper(o, _bits(o, x, dtypes.f32, dtypes.i32))
    return _float_to_float(o, x, dtypes.f32, half)


def _has_half(o: Instructions) -> bool:
    """Can the target convert f16? Elsewhere LLVM would call a library that may not be there."""
    if o.target.arch == "wasm32":
        return False
    return o.target.arch != "x86_64" or "+f16c" in o.target.features


def _bits(o: Instructions, x: str, source: DType, target: DType) -> str:
    return o.fn.let(f"bitcast {o.type(source)} {x} to {o.type(target)}")


def _half_type(o: Instructions) -> str:
    return "half" if o.lanes == 1 else f"<{o.lanes} x half>"


def _convert_f16(o: Instructions, x: str) -> str:
    half = _half_type(o)
    value = o.fn.let(f"bitcast {o.type(dtypes.f16)} {x} to {half}")
    return o.fn.let(f"fpext {half} {value} to {o.type(dtypes.f32)}")


def _narrow_f16(o: Instructions, x: str) -> str:
    if o.lanes == 1 and o.target.arch == "x86_64":
        # of fptrunc and a copysign before it LLVM would make a conversion from f64, by a library;
        # 4: rounds as the CPU is set
        name = "@llvm.x86.vcvtps2ph.128"
        o.module.declare(f"declare <8 x i16> {name}(<4 x float>, i32)")
        row = o.fn.let(f"insertelement <4 x float> zeroinitializer, float {x}, i32 0")
        halves = o.fn.let(f"call <8 x i16> {name}(<4 x float> {row}, i32 4)")
        return o.fn.let(f"extractelement <8 x i16> {halves}, i32 0")
    half = _half_type(o)
    value = o.fn.let(f"fptrunc {o.type(dtypes.f32)} {x} to {half}")
    return o.fn.let(f"bitcast {half} {value} to {o.type(dtypes.f16)}")


def _extend_f16(o: Instructions, x: str) -> str:
    """The exponent is moved by a multiplication, which also makes subnormals normal."""
    i32, f32 = dtypes.i32, dtypes.f32
    wide = o.convert("zext", x, dtypes.i16, i32)
    magnitude = o.binary("and", i32, wide, o.const(0x7FFF, i32))
    sign = o.binary("shl", i32, o.binary("xor", i32, wide, magnitude), o.const(16, i32))
    shifted = o.binary("shl", i32, magnitude, o.const(13, i32))
    scaled = o.binary("fmul", f32, _bits(o, shifted, i32, f32), o.const(2.0**112, f32))
    special = o.compare("ugt", i32, magnitude, o.const(0x7BFF, i32))
    infinite = o.binary("or", i32, shifted, o.const(0x7F800000, i32))
    result = o.select(special, i32, infinite, _bits(o, scaled, f32, i32))
    return _bits(o, o.binary("or", i32, result, sign), i32, f32)


def _round_f16(o: Instructions, x: str) -> str:
    """Round to nearest even in integers; subnormals by the adder (after F. Giesen)."""
    i32, f32 = dtypes.i32, dtypes.f32
    bits = _bits(o, x, f32, i32)
    magnitude = o.binary("and", i32, bits, o.const(0x7FFFFFFF, i32))
    sign = o.binary("lshr", i32, o.binary("xor", i32, bits, magnitude), o.const(16, i32))
    odd = o.binary("lshr", i32, magnitude, o.const(13, i32))
    odd = o.binary("and", i32, odd, o.const(1, i32))
    biased = o.binary("add", i32, magnitude, o.const(((15 - 127) << 23) + 0xFFF, i32))
    normal = o.binary("lshr", i32, o.binary("add", i32, biased, odd), o.const(13, i32))
    small = o.binary("fadd", f32, _bits(o, magnitude, i32, f32), o.const(0.5, f32))
    small = o.binary("sub", i32, _bits(o, small, f32, i32), o.const(0x3F000000, i32))
    tiny = o.compare("ult", i32, magnitude, o.const(0x38800000, i32))
    result = o.select(tiny, i32, small, normal)
    nan = o.compare("ugt", i32, magnitude, o.const(0x7F800000, i32))
    special = o.select(nan, i32, o.const(0x7E00, i32), o.const(0x7C00, i32))
    large = o.compare("ugt", i32, magnitude, o.const(0x477FFFFF, i32))
    result = o.binary("or", i32, o.select(large, i32, special, result), sign)
    return o.convert("trunc", result, i32, dtypes.i16)


def _to_int(o: Instructions, x: str, source: DType, target: DType) -> str:
    """Towards zero, through i32 or i64; what that cannot hold, and NaN, is its least number."""
    if source.bits == 16:
        x, source = _float_to_float(o, x, source, dtypes.f32), dtypes.f32
    through = dtypes.converted_through(target)
    limit = 2.0 ** (through.bits - 1)
    magnitude = o.intrinsic("fabs", source, x)
    inside = o.compare("olt", source, magnitude, o.const(limit, source))
    safe = o.select(inside, source, x, o.const(0.0, source))
    whole = o.convert("fptosi", safe, source, through)
    whole = o.select(inside, through, whole, o.const(-int(limit), through))
    return whole if target is through else o.convert("trunc", whole, through, target)
