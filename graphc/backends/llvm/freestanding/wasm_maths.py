"""Functions of libm for WebAssembly, as LLVM assembly: graphc's own vector code, lane by lane of
one, and what that leaves to libm elsewhere: angles of any size, `cbrt`, `fmod`, `fmax`, `fmin`,
`hypot`, `lgamma`.

Angles: the bits of 2 / pi that count are multiplied by x's as integers (Payne and Hanek, "Radian
reduction for trigonometric functions", 1983).
"""

from __future__ import annotations

import math
from collections.abc import Collection

from graphc.backends.llvm.target import Target
from graphc.backends.llvm.text import Module
from graphc.backends.llvm.vmath import VectorMath
from graphc.backends.llvm.vmath_trig import HALF_PI, REDUCIBLE

_BY_LANES = """
acos acosh asin asinh atan atan2 atanh cbrt cos cosh erf erfc exp exp2 expm1 fmax
fmin hypot lgamma log log10 log1p log2 pow sin sinh sqrt tan
tanh
""".split()
_OPERANDS = dict.fromkeys(("atan2", "fmax", "fmin", "fmod", "hypot", "pow"), 2)
DOUBLE = frozenset([*_BY_LANES, "fmod"])
_STIRLING = 12
_SERIES = (-691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12)  # highest first
_HALF_LOG = 0.91893853320467274178  # of 2 pi
_WORDS = 21  # of 64 bits: 2 / pi from 64 bits in front of the point, as far as the largest x goes

_FMOD = """
define hidden double @fmod(double %x, double %y) nounwind {
entry:
  %bits.x = bitcast double %x to i64
  %bits.y = bitcast double %y to i64
  %a = and i64 %bits.x, 9223372036854775807
  %b = and i64 %bits.y, 9223372036854775807
  %infinite = icmp uge i64 %a, 9218868437227405312
  %none = icmp ugt i64 %b, 9218868437227405312
  %zero = icmp eq i64 %b, 0
  %bad0 = or i1 %infinite, %none
  %bad = or i1 %bad0, %zero
  br i1 %bad, label %nan, label %ask
nan:
  %product = fmul double %x, %y
  %nothing = fdiv double %product, %product
  ret double %nothing
ask:
  %less = icmp ult i64 %a, %b
  br i1 %less, label %whole, label %begin
whole:
  ret double %x
begin:
  %shift.a = lshr i64 %a, 52
  %shift.b = lshr i64 %b, 52
  %low.a = icmp eq i64 %shift.a, 0
  %low.b = icmp eq i64 %shift.b, 0
  %part.a = and i64 %a, 4503599627370495
  %part.b = and i64 %b, 4503599627370495
  %one.a = or i64 %part.a, 4503599627370496
  %one.b = or i64 %part.b, 4503599627370496
  %m.a = select i1 %low.a, i64 %part.a, i64 %one.a
  %m.b = select i1 %low.b, i64 %part.b, i64 %one.b
  %e.a = select i1 %low.a, i64 1, i64 %shift.a
  %e.b = select i1 %low.b, i64 1, i64 %shift.b
  %distance = sub i64 %e.a, %e.b
  %first = urem i64 %m.a, %m.b
  br label %head
head: ; eleven bits of the distance at a time: the rest has 53
  %left = phi i64 [ %distance, %begin ], [ %fewer, %body ]
  %rest = phi i64 [ %first, %begin ], [ %next, %body ]
  %more = icmp sgt i64 %left, 0
  br i1 %more, label %body, label %end
body:
  %some = icmp slt i64 %left, 11
  %step = select i1 %some, i64 %left, i64 11
  %shifted = shl i64 %rest, %step
  %next = urem i64 %shifted, %m.b
  %fewer = sub i64 %left, %step
  br label %head
end:
  %normal = icmp sgt i64 %e.b, 52
  %e.normal = sub i64 %e.b, 52
  %high = shl i64 %e.normal, 52
  %e.small = sub i64 %e.b, 1
  %e.masked = and i64 %e.small, 63
  %low = shl i64 1, %e.masked
  %unit.bits = select i1 %normal, i64 %high, i64 %low
  %unit = bitcast i64 %unit.bits to double
  %number = uitofp i64 %rest to double
  %scaled = fmul double %number, %unit
  %scaled.bits = bitcast double %scaled to i64
  %sign = and i64 %bits.x, -9223372036854775808
  %signed = or i64 %scaled.bits, %sign
  %result = bitcast i64 %signed to double
  ret double %result
}
"""

# of x, which is finite and of 2**20 or more: the quadrant, and what is left of one, by two numbers
# whose sum times 2**-`shift` it is, below 0 where `negative`
_QUADRANTS = """
define internal { i64, double, double, i64, i1 } @quadrants(double %x) nounwind {
  %bits = bitcast double %x to i64
  %raised = lshr i64 %bits, 52
  %exponent = and i64 %raised, 2047
  %part = and i64 %bits, 4503599627370495
  %m = or i64 %part, 4503599627370496
  %offset = sub i64 %exponent, 1013 ; of the first bit that counts: bits of more are multiples of 4
  %word = lshr i64 %offset, 6
  %shift = and i64 %offset, 63
  %other = sub i64 63, %shift
  %p0 = getelementptr i64, ptr @two_over_pi, i64 %word
  %p1 = getelementptr i64, ptr %p0, i64 1
  %p2 = getelementptr i64, ptr %p0, i64 2
  %p3 = getelementptr i64, ptr %p0, i64 3
  %t0 = load i64, ptr %p0, align 8
  %t1 = load i64, ptr %p1, align 8
  %t2 = load i64, ptr %p2, align 8
  %t3 = load i64, ptr %p3, align 8
  %u0 = shl i64 %t0, %shift
  %u1 = shl i64 %t1, %shift
  %u2 = shl i64 %t2, %shift
  %h1 = lshr i64 %t1, 1
  %h2 = lshr i64 %t2, 1
  %h3 = lshr i64 %t3, 1
  %v1 = lshr i64 %h1, %other
  %v2 = lshr i64 %h2, %other
  %v3 = lshr i64 %h3, %other
  %w0 = or i64 %u0, %v1
  %w1 = or i64 %u1, %v2
  %w2 = or i64 %u2, %v3
  %m.wide = zext i64 %m to i128
  %w2.wide = zext i64 %w2 to i128
  %w1.wide = zext i64 %w1 to i128
  %low = mul i128 %m.wide, %w2.wide
  %middle = mul i128 %m.wide, %w1.wide
  %top = mul i64 %m, %w0
  %carried = lshr i128 %low, 64
  %sum = add i128 %middle, %carried
  %top.wide = zext i64 %top to i128
  %top.high = shl i128 %top.wide, 64
  %product = add i128 %sum, %top.high ; of 192 bits those above the last 64
  %fine = trunc i128 %low to i64
  %turns = lshr i128 %product, 126
  %quadrant0 = trunc i128 %turns to i64
  %fraction0 = shl i128 %product, 2
  %fine.top = lshr i64 %fine, 62
  %fine.wide = zext i64 %fine.top to i128
  %fraction = or i128 %fraction0, %fine.wide
  %negative = icmp slt i128 %fraction, 0
  %next = zext i1 %negative to i64
  %quadrant = add i64 %quadrant0, %next
  %minus = sub i128 0, %fraction
  %size = select i1 %negative, i128 %minus, i128 %fraction
  ; no double is so near to a multiple that the first 64 bits were all 0
  %size.high = lshr i128 %size, 64
  %s0 = trunc i128 %size.high to i64
  %s1 = trunc i128 %size to i64
  %zeros = call i64 @llvm.ctlz.i64(i64 %s0, i1 false)
  %moved = and i64 %zeros, 63
  %l0 = call i64 @llvm.fshl.i64(i64 %s0, i64 %s1, i64 %moved)
  %l1 = shl i64 %s1, %moved
  %first.part = lshr i64 %l0, 11
  %second.high = and i64 %l0, 2047
  %second.placed = shl i64 %second.high, 42
  %second.low = lshr i64 %l1, 22
  %second.part = or i64 %second.placed, %second.low
  %first.number = uitofp i64 %first.part to double
  %second.number = uitofp i64 %second.part to double
  %first = fmul double %first.number, 0x3CA0000000000000
  %second = fmul double %second.number, 0x3950000000000000
  %r0 = insertvalue { i64, double, double, i64, i1 } poison, i64 %quadrant, 0
  %r1 = insertvalue { i64, double, double, i64, i1 } %r0, double %first, 1
  %r2 = insertvalue { i64, double, double, i64, i1 } %r1, double %second, 2
  %r3 = insertvalue { i64, double, double, i64, i1 } %r2, i64 %moved, 3
  %r4 = insertvalue { i64, double, double, i64, i1 } %r3, i1 %negative, 4
  ret { i64, double, double, i64, i1 } %r4
}
"""


def maths_text(names: Collection[str], target: Target) -> str:
    """A module that defines these functions of DOUBLE, and those of floats ("sinf")."""
    module = Module()
    singles = sorted(name for name in names if name not in DOUBLE)
    doubles = sorted({name for name in names if name in DOUBLE} | {n[:-1] for n in singles})
    if "fmod" in doubles:
        module.globals.append(_FMOD)
    if {"sin", "cos", "tan", "lgamma"} & {*doubles}:
        words = ", ".join(f"i64 {word}" for word in _two_over_pi())
        module.globals.append(f"@two_over_pi = internal constant [{_WORDS} x i64] [{words}]")
        module.declare("declare i64 @llvm.ctlz.i64(i64, i1)")
        module.declare("declare i64 @llvm.fshl.i64(i64, i64, i64)")
        module.globals.append(_QUADRANTS)
    for name in doubles:
        if name != "fmod":
            _double(module, name, target)
    for name in singles:
        _single(module, name)
    return module.text()


def known(name: str) -> bool:
    """Whether a name is one that maths_text defines."""
    return name in DOUBLE or (name.endswith("f") and name[:-1] in DOUBLE)


def _two_over_pi() -> list[int]:
    """Words of its bits, the first in front of the point, by Machin's formula for pi."""
    bits = 64 * _WORDS

    def arctangent(n: int) -> int:
        term, total, k = (1 << bits) // n, 0, 0
        while term:
            total += (-1) ** k * (term // (2 * k + 1))
            term //= n * n
            k += 1
        return total

    pi = 4 * (4 * arctangent(5) - arctangent(239))
    whole = (2 << 2 * bits) // pi >> 64
    return [whole >> bits - 64 * (k + 1) & (1 << 64) - 1 for k in range(_WORDS)]


class _Scalars(VectorMath):
    """One double at a time; every angle is reduced here."""

    def _reduce_trig(self, x: str) -> tuple[str, str, str]:
        fn = self.fn
        near = super()._reduce_trig(x)
        huge = self.cmp("ogt", self.fabs(x), REDUCIBLE["f64"])
        finite = self.cmp("olt", self.fabs(x), math.inf)
        before, slow, done = fn.current, fn.label("huge"), fn.label("reduced")
        fn.cond_br(self.logic("and", huge, finite), slow, done)
        fn.block(slow)
        kind = "{ i64, double, double, i64, i1 }"
        found = fn.call(kind, "@quadrants", f"double {x}")
        quadrant, high, low, shift, negative = (
            fn.let(f"extractvalue {kind} {found}, {i}") for i in range(5)
        )
        first, rest = HALF_PI["f64"]
        r, tail = self.two_product(high, first)
        tail = self.add(tail, self.add(self.mul(high, rest), self.mul(low, first)))
        r, tail = self.fast_two_sum(r, tail)
        # 2**-shift, a normal number
        exponent = fn.let(f"sub i64 1023, {shift}")
        unit = self.as_float(fn.let(f"shl i64 {exponent}, 52"))
        below = fn.let(f"xor i1 {negative}, {fn.let(f'fcmp olt double {x}, 0.0')}")
        unit = self.select(below, self.neg(unit), unit)
        minus = fn.let(f"sub i64 0, {quadrant}")
        left = fn.let(f"fcmp olt double {x}, 0.0")
        quadrant = fn.let(f"select i1 {left}, i64 {minus}, i64 {quadrant}")
        far = self.mul(r, unit), self.mul(tail, unit), quadrant
        fn.br(done)
        fn.block(done)
        kinds = (self.vtype, self.vtype, self.itype)
        r, tail, bits = (
            fn.phi(kind, ((a, before), (b, slow)))
            for kind, a, b in zip(kinds, near, far, strict=True)
        )
        return r, tail, bits

    def _or_libm(self, name: str, x: str, result: str) -> str:
        return result

    def cbrt(self, x: str) -> str:
        """Of a number that is neither too large nor too small: a power, and a step of Newton's."""
        t = self.fabs(x)
        factor = self.select(self.cmp("ogt", t, 2.0**900), 2.0**-600, 1.0)
        factor = self.select(self.cmp("olt", t, 2.0**-700), 2.0**600, factor)
        back = self.select(self.cmp("ogt", t, 2.0**900), 2.0**200, 1.0)
        back = self.select(self.cmp("olt", t, 2.0**-700), 2.0**-200, back)
        scaled = self.mul(t, factor)
        root = self.pow(scaled, self.const(1 / 3))
        square, square_lost = self.two_product(root, root)
        cube, cube_lost = self.two_product(square, root)
        rest = self.add(self.sub(cube, scaled), self.add(cube_lost, self.mul(square_lost, root)))
        better = self.sub(root, self.div(rest, self.mul(square, 3.0)))
        plain = self.logic("or", self.cmp("oeq", t, 0.0), self.cmp("oeq", t, math.inf))
        return self.copysign(self.select(plain, t, self.mul(better, back)), x)

    def fmax(self, x: str, y: str) -> str:
        """The larger one, or the one that is a number."""
        larger = self.select(self.cmp("ogt", y, x), y, x)
        return self.select(self.cmp("uno", x, x), y, larger)

    def fmin(self, x: str, y: str) -> str:
        """The smaller one, or the one that is a number."""
        smaller = self.select(self.cmp("olt", y, x), y, x)
        return self.select(self.cmp("uno", x, x), y, smaller)

    def lgamma(self, x: str) -> str:
        """log |gamma(x)|, to 4e-14 or 2e-15 of it, by Stirling's series from
        _STIRLING on, to which smaller numbers are raised, and by reflection below 1/2.
        Source: Abramowitz and Stegun, 6.1.15, 6.1.17 and 6.1.40."""
        left = self.cmp("olt", x, 0.5)
        start = self.select(left, self.sub(1.0, x), x)
        loop = self.fn.carry_loop(
            0, _STIRLING, 1, [(self.vtype, start), (self.vtype, self.const(1.0))]
        )
        below = self.cmp("olt", loop.values[0], float(_STIRLING))
        product = self.mul(loop.values[1], self.select(below, loop.values[0], 1.0))
        z, product = loop.close([
            self.add(loop.values[0], self.select(below, 1.0, 0.0)), product
        ])
        inverse = self.div(1.0, z)
        series = self.mul(inverse, self.poly(_SERIES, self.mul(inverse, inverse)))
        # not (z - 1/2) log z - z, which is infinite too soon
        main = self.mul(self.sub(z, 0.5), self.sub(self.log(z), 1.0))
        right = self.add(main, self.add(series, _HALF_LOG - 0.5))
        right = self.sub(right, self.log(product))
        apart = self.fabs(self.sub(x, self.rint(x)))
        sine = self.fabs(self.sin(self.mul(apart, math.pi)))
        mirrored = self.sub(self.log(self.div(math.pi, sine)), right)
        result = self.select(left, mirrored, right)
        return self.select(self.cmp("oeq", self.fabs(x), math.inf), math.inf, result)

    def hypot(self, x: str, y: str) -> str:
        """sqrt(x * x + y * y), of squares by two numbers, near 1 so that none is lost."""
        a, b = self.fabs(x), self.fabs(y)
        steep = self.cmp("ogt", b, a)
        large, small = self.select(steep, b, a), self.select(steep, a, b)
        factor = self.select(self.cmp("ogt", large, 2.0**500), 2.0**-600, 1.0)
        factor = self.select(self.cmp("olt", large, 2.0**-400), 2.0**600, factor)
        back = self.select(self.cmp("ogt", large, 2.0**500), 2.0**600, 1.0)
        back = self.select(self.cmp("olt", large, 2.0**-400), 2.0**-600, back)
        u, v = self.mul(large, factor), self.mul(small, factor)
        (p, p_lost), (q, q_lost) = self.two_product(u, u), self.two_product(v, v)
        total, lost = self.fast_two_sum(p, q)
        root = self.sqrt(total)
        square, square_lost = self.two_product(root, root)
        rest = self.sub(self.sub(total, square), square_lost)
        rest = self.add(rest, self.add(lost, self.add(p_lost, q_lost)))
        better = self.add(root, self.div(rest, self.add(root, root)))
        result = self.mul(self.select(self.cmp("oeq", total, 0.0), 0.0, better), back)
        either = [self.cmp("oeq", each, math.inf) for each in (a, b)]
        infinite = self.logic("or", *either)
        result = self.select(self.cmp("uno", x, y), math.nan, result)
        return self.select(infinite, math.inf, result)


def _double(module: Module, name: str, target: Target) -> None:
    operands = [f"%x{i}" for i in range(_OPERANDS.get(name, 1))]
    given = ", ".join(f"double {each}" for each in operands)
    f = module.function(f"double @{name}({given})", "hidden")
    scalars = _Scalars(f, module, target, "f64", 1, None)
    f.ret(f"double {getattr(scalars, name)(*operands)}")


def _single(module: Module, name: str) -> None:
    """By the double's: exactly, for fmod; to nearly half a unit in the last place."""
    operands = [f"%x{i}" for i in range(_OPERANDS.get(name[:-1], 1))]
    given = ", ".join(f"float {each}" for each in operands)
    f = module.function(f"float @{name}({given})", "hidden")
    wide = [f"double {f.let(f'fpext float {each} to double')}" for each in operands]
    found = f.call("double", f"@{name[:-1]}", *wide)
    f.ret(f"float {f.let(f'fptrunc double {found} to float')}")
