"""Floating-point operations on a vector of lanes (or one scalar), written as LLVM instructions.

Operands are SSA names or Python floats; a float becomes a constant of the lanes' type. Nothing
carries fast-math flags, so what is written is what is computed.
"""

import math
import struct
from collections.abc import Sequence
from typing import Literal

from graphc.backends.llvm.target import Target
from graphc.backends.llvm.text import Function, Module
from graphc.ir.dtypes import f32, rounded

Dtype = Literal["f32", "f64"]
Operand = str | float

# 1.5 * 2^mantissa: adding it rounds to an integer, which then sits in the low bits of the sum.
ROUNDER = {"f32": 1.5 * 2.0**23, "f64": 1.5 * 2.0**52}
MANTISSA = {"f32": 23, "f64": 52}
BIAS = {"f32": 127, "f64": 1023}


_REGISTER = 16  # floats in AVX-512's registers


def float_constant(value: float, dtype: Dtype) -> str:
    """LLVM's spelling: the hex bits of a double, for f32 rounded to float first."""
    if dtype == "f32" and math.isfinite(value):
        value = float(rounded(value, f32))
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


class Lanes:
    """Arithmetic on `width` lanes of float or double at the end of a function under construction.

    vtype is the lanes' LLVM type, itype that of integers as wide, btype that of conditions.
    """

    def __init__(
        self, fn: Function, module: Module, target: Target, dtype: Dtype, width: int
    ) -> None:
        self.fn, self.module, self.target = fn, module, target
        self.dtype: Dtype = dtype
        self.width = width
        self.bits = 32 if dtype == "f32" else 64
        self.elem = "float" if dtype == "f32" else "double"
        self.vtype, self.itype, self.btype = (
            kind if width == 1 else f"<{width} x {kind}>"
            for kind in (self.elem, f"i{self.bits}", "i1")
        )
        self.suffix = dtype if width == 1 else f"v{width}{dtype}"
        self.fused = target.has_fma
        self._constants: dict[float | str, str] = {}

    # Constants and conversions

    def const(self, value: float) -> str:
        """A constant in every lane."""
        key: float | str = value if value else repr(value)  # 0.0 == -0.0, but they differ
        text = self._constants.get(key)
        if text is None:
            text = float_constant(value, self.dtype)
            text = text if self.width == 1 else f"splat ({self.elem} {text})"
            self._constants[key] = text
        return text

    def int_const(self, value: int) -> str:
        """An integer constant in every lane."""
        return str(value) if self.width == 1 else f"splat (i{self.bits} {value})"

    def bits_of(self, value: float) -> int:
        """The bit pattern of a constant of this dtype, as a signed integer."""
        return int(
            struct.unpack("<i", struct.pack("<f", value))[0]
            if self.dtype == "f32"
            else struct.unpack("<q", struct.pack("<d", value))[0]
        )

    def splat(self, scalar: str) -> str:
        """A scalar SSA value in every lane."""
        if self.width == 1:
            return scalar
        let = self.fn.let
        first = let(f"insertelement {self.vtype} poison, {self.elem} {scalar}, i64 0")
        mask = f"<{self.width} x i32> zeroinitializer"
        return let(f"shufflevector {self.vtype} {first}, {self.vtype} poison, {mask}")

    def as_int(self, x: str) -> str:
        """The bits of every lane."""
        return self.fn.let(f"bitcast {self.vtype} {x} to {self.itype}")

    def as_float(self, x: str) -> str:
        """Bits back to floating point."""
        return self.fn.let(f"bitcast {self.itype} {x} to {self.vtype}")

    def _operand(self, x: Operand) -> str:
        return x if isinstance(x, str) else self.const(x)

    # Arithmetic

    def _binary(self, op: str, a: Operand, b: Operand) -> str:
        return self.fn.let(f"{op} {self.vtype} {self._operand(a)}, {self._operand(b)}")

    def add(self, a: Operand, b: Operand) -> str:
        """a + b."""
        return self._binary("fadd", a, b)

    def sub(self, a: Operand, b: Operand) -> str:
        """a - b."""
        return self._binary("fsub", a, b)

    def mul(self, a: Operand, b: Operand) -> str:
        """a * b."""
        return self._binary("fmul", a, b)

    def div(self, a: Operand, b: Operand) -> str:
        """a / b."""
        return self._binary("fdiv", a, b)

    def neg(self, a: Operand) -> str:
        """-a, the sign bit flipped."""
        return self.fn.let(f"fneg {self.vtype} {self._operand(a)}")

    def intrinsic(self, name: str, *args: Operand) -> str:
        """Calls llvm.<name> on lanes."""
        full = f"@llvm.{name}.{self.suffix}"
        self.module.declare(f"declare {self.vtype} {full}({', '.join([self.vtype] * len(args))})")
        operands = ", ".join(f"{self.vtype} {self._operand(arg)}" for arg in args)
        return self.fn.let(f"call {self.vtype} {full}({operands})")

    def fma(self, a: Operand, b: Operand, c: Operand) -> str:
        """a * b + c, rounded once where the target can (else LLVM would call libm per lane)."""
        return self.intrinsic("fma" if self.fused else "fmuladd", a, b, c)

    def poly(self, coefficients: Sequence[float], x: str) -> str:
        """Horner's rule, highest degree first."""
        result: Operand = coefficients[0]
        for coefficient in coefficients[1:]:
            result = self.fma(result, x, coefficient)
        return self._operand(result)

    def poly_cut(self, coefficients: Sequence[float], x: str) -> str:
        """Pairs of terms, pairs of those (Estrin): a few steps one after another, more work."""
        parts: list[Operand] = list(coefficients)
        power = x
        while len(parts) > 1:
            odd = parts[: len(parts) % 2]
            pairs = zip(parts[len(odd) :: 2], parts[len(odd) + 1 :: 2], strict=True)
            parts = [*odd, *(self.fma(high, power, low) for high, low in pairs)]
            if len(parts) > 1:
                power = self.mul(power, power)
        return self._operand(parts[0])

    def two_product(self, a: str, b: Operand) -> tuple[str, str]:
        """a * b as the rounded product and its exact error (Dekker; one fma where fused)."""
        product = self.mul(a, b)
        if self.fused:
            return product, self.fma(a, b, self.neg(product))
        (a1, a2), (b1, b2) = self._split(a), self._split(self._operand(b))
        error = self.sub(self.mul(a1, b1), product)
        error = self.add(error, self.mul(a1, b2))
        error = self.add(error, self.mul(a2, b1))
        return product, self.add(error, self.mul(a2, b2))

    def _split(self, a: str) -> tuple[str, str]:
        """A value as two of half the bits (Veltkamp)."""
        scaled = self.mul(a, 2.0 ** ((MANTISSA[self.dtype] + 2) // 2) + 1.0)
        high = self.sub(scaled, self.sub(scaled, a))
        return high, self.sub(a, high)

    def two_sum(self, a: str, b: str) -> tuple[str, str]:
        """a + b as the rounded sum and its exact error, whatever their sizes (Knuth)."""
        total = self.add(a, b)
        part = self.sub(total, a)
        error = self.add(self.sub(a, self.sub(total, part)), self.sub(b, part))
        return total, error

    def fast_two_sum(self, a: str, b: str) -> tuple[str, str]:
        """two_sum for |a| >= |b| (Dekker)."""
        total = self.add(a, b)
        return total, self.sub(b, self.sub(total, a))

    # Comparison and selection

    def cmp(self, predicate: str, a: Operand, b: Operand) -> str:
        """fcmp: oeq, olt, ... are false on NaN; ueq, ult, uno ... are true."""
        return self.fn.let(f"fcmp {predicate} {self.vtype} {self._operand(a)}, {self._operand(b)}")

    def select(self, condition: str, a: Operand, b: Operand) -> str:
        """a where the condition holds, else b."""
        a, b = f"{self.vtype} {self._operand(a)}", f"{self.vtype} {self._operand(b)}"
        return self.fn.let(f"select {self.btype} {condition}, {a}, {b}")

    def at_most(self, x: str, bound: float) -> str:
        """min(x, bound) that keeps NaN (minnum would lose it)."""
        return self.select(self.cmp("ogt", x, bound), bound, x)

    def at_least(self, x: str, bound: float) -> str:
        """max(x, bound) that keeps NaN."""
        return self.select(self.cmp("olt", x, bound), bound, x)

    def logic(self, op: str, a: str, b: str) -> str:
        """and, or, xor of two conditions."""
        return self.fn.let(f"{op} {self.btype} {a}, {b}")

    def any(self, condition: str) -> str:
        """An i1: does the condition hold in any lane."""
        if self.width == 1:
            return condition
        mask = self.fn.let(f"bitcast {self.btype} {condition} to i{self.width}")
        return self.fn.let(f"icmp ne i{self.width} {mask}, 0")

    # Operations with an instruction

    def sqrt(self, x: str) -> str:
        """Square root, correctly rounded."""
        return self.intrinsic("sqrt", x)

    def rsqrt(self, x: str) -> str:
        """1 / sqrt(x)."""
        return self.div(1.0, self.sqrt(x))

    def floor(self, x: str) -> str:
        """Rounds towards minus infinity."""
        return self.intrinsic("floor", x)

    def ceil(self, x: str) -> str:
        """Rounds towards plus infinity."""
        return self.intrinsic("ceil", x)

    def trunc(self, x: str) -> str:
        """Rounds towards zero."""
        return self.intrinsic("trunc", x)

    def rint(self, x: str) -> str:
        """Rounds to nearest, halves to even."""
        return self.intrinsic("roundeven", x)

    def fabs(self, x: str) -> str:
        """|x|."""
        return self.intrinsic("fabs", x)

    def copysign(self, magnitude: Operand, sign: str) -> str:
        """The magnitude of one with the sign of the other."""
        return self.intrinsic("copysign", magnitude, sign)

    # Exponents

    def integer(self, op: str, a: str, b: int | str) -> str:
        """An integer instruction on the lanes' bits (add, sub, and, or, xor, shl, lshr, ashr)."""
        b = b if isinstance(b, str) else self.int_const(b)
        return self.fn.let(f"{op} {self.itype} {a}, {b}")

    def round_scaled(self, x: Operand, scale: Operand) -> tuple[str, str]:
        """rint(x * scale) as a float, and the sum whose low bits hold it as an integer.

        For |x * scale| < 2^22 (f32) or 2^51 (f64); halves need not go to even.
        """
        shifted = self.fma(x, scale, ROUNDER[self.dtype])
        return self.sub(shifted, ROUNDER[self.dtype]), shifted

    def power_of_two(self, shifted: str, unit: float = 1.0) -> str:
        """unit * 2^n, which must be normal, for the n in the low bits of `shifted`."""
        exponent = self.integer("shl", self.as_int(shifted), MANTISSA[self.dtype])
        return self.as_float(self.integer("add", exponent, self.bits_of(unit)))

    def scale(self, x: str, n: str, shifted: str) -> str:
        """x * 2^n for a float integer n, |n| < 2000 (f64) or 250 (f32), x near 1; `shifted` holds
        n in its low bits (round_scaled).

        Rounded once, also where the result is subnormal.
        """
        if self._has_scalef():
            return self._scalef(x, n)
        bits = self.as_int(shifted)
        half = self.integer("lshr", bits, 1)  # floor(n/2) in the bits that an exponent takes
        rest = self.integer("sub", bits, half)
        x = self.mul(x, self.power_of_two(self.as_float(half)))
        return self.mul(x, self.power_of_two(self.as_float(rest)))

    def _has_scalef(self) -> bool:
        # Narrower registers need a lane of work as well, so only vectors of 128 bits and more.
        wide = self.width * self.bits >= 128
        return self.target.arch == "x86_64" and self.target.vector_bytes == 64 and wide

    def _scalef(self, x: str, n: str) -> str:
        """AVX-512's vscalef, register by register."""
        lanes = min(self.width, 512 // self.bits)
        size, kind = lanes * self.bits, f"<{lanes} x {self.elem}>"
        name = f"@llvm.x86.avx512.mask.scalef.p{'s' if self.bits == 32 else 'd'}.{size}"
        mask = "i16" if lanes == 16 else "i8"
        rounding = ", i32" if size == 512 else ""
        self.module.declare(f"declare {kind} {name}({kind}, {kind}, {kind}, {mask}{rounding})")
        parts = []
        for start in range(0, self.width, lanes):
            a, b = self.slice(x, start, lanes), self.slice(n, start, lanes)
            tail = f"{kind} zeroinitializer, {mask} -1{', i32 4' if size == 512 else ''}"
            parts.append(self.fn.let(f"call {kind} {name}({kind} {a}, {kind} {b}, {tail})"))
        return self.concat(parts, lanes)

    @property
    def looks_up(self) -> bool:
        """Whether a lane finds one of 32 floats as fast as it adds."""
        x86 = self.target.arch == "x86_64" and self.target.vector_bytes == 64
        return x86 and self.dtype == "f32"

    def lookup(self, table: Sequence[float], index: str) -> str:
        """Of 32 floats those that the low 5 bits of the lanes' integers say: AVX-512's vpermi2ps,
        register by register."""
        lanes = _REGISTER
        kind, places = f"<{lanes} x float>", f"<{lanes} x i32>"
        halves = (table[:lanes], table[lanes:])
        low, high = (
            f"{kind} <{', '.join(f'float {float_constant(x, self.dtype)}' for x in half)}>"
            for half in halves
        )
        name = "@llvm.x86.avx512.vpermi2var.ps.512"
        self.module.declare(f"declare {kind} {name}({kind}, {places}, {kind})")
        parts = []
        for start in range(0, self.width, lanes):
            some = self._register_of(index, start)
            parts.append(self.fn.call(kind, name, low, f"{places} {some}", high))
        if self.width >= lanes:
            return self.concat(parts, lanes)
        if self.width == 1:
            return self.fn.let(f"extractelement {kind} {parts[0]}, i64 0")
        mask = ", ".join(f"i32 {lane}" for lane in range(self.width))
        operands = f"{kind} {parts[0]}, {kind} poison"
        return self.fn.let(f"shufflevector {operands}, <{self.width} x i32> <{mask}>")

    def _register_of(self, index: str, start: int) -> str:
        """A register of integers from a lane on; beyond the last, any."""
        if self.width == _REGISTER:
            return index
        if self.width == 1:
            return self.fn.let(f"insertelement <{_REGISTER} x i32> poison, i32 {index}, i64 0")
        lanes = (str(start + lane) if start + lane < self.width else "poison"
                 for lane in range(_REGISTER))
        mask = ", ".join(f"i32 {lane}" for lane in lanes)
        operands = f"{self.itype} {index}, {self.itype} poison"
        return self.fn.let(f"shufflevector {operands}, <{_REGISTER} x i32> <{mask}>")

    def slice(self, x: str, start: int, lanes: int) -> str:
        """Some neighbouring lanes, as a shorter vector."""
        if lanes == self.width:
            return x
        mask = ", ".join(f"i32 {lane}" for lane in range(start, start + lanes))
        operands = f"{self.vtype} {x}, {self.vtype} poison"
        return self.fn.let(f"shufflevector {operands}, <{lanes} x i32> <{mask}>")

    def concat(self, parts: list[str], lanes: int) -> str:
        """Vectors of `lanes` lanes side by side (a power of two of them)."""
        while len(parts) > 1:
            kind = f"<{lanes} x {self.elem}>"
            mask = ", ".join(f"i32 {lane}" for lane in range(2 * lanes))
            parts = [
                self.fn.let(f"shufflevector {kind} {a}, {kind} {b}, <{2 * lanes} x i32> <{mask}>")
                for a, b in zip(parts[::2], parts[1::2], strict=True)
            ]
            lanes *= 2
        return parts[0]

    # libm, lane by lane

    def libm(self, name: str, *args: str) -> str:
        """Calls the C library once per lane, from a loop in a module-level helper."""
        symbol = name + ("f" if self.dtype == "f32" else "")
        signature = f"{self.elem} @{symbol}({', '.join([self.elem] * len(args))})"
        self.module.declare(f"declare {signature}")
        operands = [f"{self.vtype} {arg}" for arg in args]
        if self.width == 1:
            return self.fn.call(self.vtype, f"@{symbol}", *operands)
        helper = f"@graphc.libm.{name}.{self.suffix}"
        if self.module.count_use(helper) == 1:
            self._define_libm_loop(helper, symbol, len(args))
        return self.fn.call(self.vtype, helper, *operands)

    def _define_libm_loop(self, helper: str, symbol: str, arity: int) -> None:
        parameters = [f"{self.vtype} %x{index}" for index in range(arity)]
        fn = self.module.function(
            f"{self.vtype} {helper}({', '.join(parameters)})", "internal", "noinline cold nounwind"
        )
        buffers = [fn.alloca(self.vtype) for _ in range(arity)]
        for index, buffer in enumerate(buffers):
            fn.store(f"%x{index}", self.vtype, buffer, 64)
        align = self.bits // 8
        with fn.loop(0, self.width) as lane:
            places = [fn.gep(buffer, lane, self.elem) for buffer in buffers]
            values = [f"{self.elem} {fn.load(place, self.elem, align)}" for place in places]
            fn.store(fn.call(self.elem, f"@{symbol}", *values), self.elem, places[0], align)
        fn.ret(f"{self.vtype} {fn.load(buffers[0], self.vtype, 64)}")
