"""Circular functions and their inverses on vectors of lanes."""

import math

from graphc.backends.llvm import coefficients as fits
from graphc.backends.llvm.shared import shared
from graphc.backends.llvm.vmath_exp import ExpLog

TWO_OVER_PI = 2.0 / math.pi

# pi/2 in pieces: f32 for fused multiply-add (N. Juffa), f64 of 33 bits each, so that n * piece is
# exact for n < 2^20 (fdlibm).
HALF_PI_F32 = (1.57079601287841796875, 3.13916473442350973e-07, 5.39030253e-15)
HALF_PI_F64 = (
    1.57079632673412561417e00,
    6.07710050630396597660e-11,
    2.02226624871116645580e-21,
    8.47842766036889956997e-32,
)
# Up to here the reduction below is accurate; beyond it libm is asked.
REDUCIBLE = {"f32": 105615.0, "f64": 1647099.0}
# pi and pi/2, rounded and the rest.
PI = {"f32": (3.1415927410125732, -8.742277657347586e-08), "f64": (math.pi, 1.2246467991473532e-16)}
HALF_PI = {
    "f32": (1.5707963705062866, -4.371138828673793e-08),
    "f64": (math.pi / 2, 6.123233995736766e-17),
}
QUARTER_PI = {
    "f32": (0.7853981852531433, -2.1855694143368964e-08),
    "f64": (math.pi / 4, 3.061616997868383e-17),
}
TAN_PI_8 = math.tan(math.pi / 8)
# Sums of two numbers below it are finite.
HALF_MAX = {"f32": 2.0**126, "f64": 2.0**1022}


class Trig(ExpLog):
    """The circular functions."""

    def _reduce_trig(self, x: str) -> tuple[str, str, str]:
        """x = n pi/2 + r + tail, |r| <= pi/4: r, tail and the bits that end in n."""
        if self.dtype == "f32" and self.fused:
            n, shifted = self.round_scaled(x, TWO_OVER_PI)
            r = x
            for piece in HALF_PI_F32:
                r = self.fma(n, -piece, r)
            return r, "", self.as_int(shifted)
        if self.dtype == "f32":
            return self._reduce_in_double(x)
        n, shifted = self.round_scaled(x, TWO_OVER_PI)
        first, second, third, rest = HALF_PI_F64
        r = self.sub(x, self.mul(n, first))
        r, error2 = self.two_sum(r, self.neg(self.mul(n, second)))
        r, error3 = self.two_sum(r, self.neg(self.mul(n, third)))
        tail = self.sub(self.add(error2, error3), self.mul(n, rest))
        r, tail = self.fast_two_sum(r, tail)
        return r, tail, self.as_int(shifted)

    def _reduce_in_double(self, x: str) -> tuple[str, str, str]:
        """The f32 reduction where there is no fused multiply-add."""
        wide = type(self)(self.fn, self.module, self.target, "f64", self.width, None)
        let = self.fn.let
        r, _, bits = wide._reduce_trig(let(f"fpext {self.vtype} {x} to {wide.vtype}"))
        narrow = let(f"fptrunc {wide.vtype} {r} to {self.vtype}")
        return narrow, "", let(f"trunc {wide.itype} {bits} to {self.itype}")

    def _kernel_sin(self, r: str, tail: str) -> str:
        """sin(r + tail) for |r| <= pi/4."""
        z = self.mul(r, r)
        cube = self.mul(z, r)
        if not tail:
            return self.fma(self.poly(fits.SIN["f32"], z), cube, r)
        *higher, lowest = fits.SIN["f64"]
        v = self.sub(self.mul(tail, 0.5), self.mul(cube, self.poly(higher, z)))
        inner = self.sub(self.sub(self.mul(z, v), tail), self.mul(cube, lowest))
        return self.sub(r, inner)

    def _kernel_cos(self, r: str, tail: str) -> str:
        """cos(r + tail) for |r| <= pi/4."""
        z = self.mul(r, r)
        half = self.mul(z, 0.5)
        series = self.mul(self.mul(z, z), self.poly(fits.COS[self.dtype], z))
        whole = self.sub(1.0, half)
        lost = self.sub(self.sub(1.0, whole), half)  # what rounding 1 - z/2 cut off
        if tail:
            lost = self.sub(lost, self.mul(r, tail))
        return self.add(whole, self.add(lost, series))

    def _quadrant(self, bits: str, bit: int) -> str:
        """A condition: is that bit of the quadrant set."""
        mask = self.integer("and", bits, bit)
        return self.fn.let(f"icmp ne {self.itype} {mask}, {self.int_const(0)}")

    def _flip_sign(self, x: str, bits: str) -> str:
        """Negates x where bit 1 of the quadrant is set."""
        sign = self.integer("shl", self.integer("and", bits, 2), self.bits - 2)
        return self.as_float(self.integer("xor", self.as_int(x), sign))

    def _or_libm(self, name: str, x: str, result: str) -> str:
        """libm's answer in the lanes that are too large to reduce here."""
        fn = self.fn
        huge = self.cmp("ogt", self.fabs(x), REDUCIBLE[self.dtype])
        before, slow, done = fn.current, fn.label("huge"), fn.label("reduced")
        fn.cond_br(self.any(huge), slow, done)
        fn.block(slow)
        answer = self.select(huge, self.libm(name, x), result)
        fn.br(done)
        fn.block(done)
        return fn.phi(self.vtype, ((result, before), (answer, slow)))

    @shared
    def sin(self, x: str) -> str:
        """Sine of radians."""
        r, tail, bits = self._reduce_trig(x)
        odd = self._quadrant(bits, 1)
        result = self.select(odd, self._kernel_cos(r, tail), self._kernel_sin(r, tail))
        result = self._or_tiny(x, self._flip_sign(result, bits))
        return self._or_libm("sin", x, result)

    @shared
    def cos(self, x: str) -> str:
        """Cosine of radians."""
        r, tail, bits = self._reduce_trig(x)
        bits = self.integer("add", bits, 1)
        odd = self._quadrant(bits, 1)
        result = self.select(odd, self._kernel_cos(r, tail), self._kernel_sin(r, tail))
        return self._or_libm("cos", x, self._flip_sign(result, bits))

    @shared
    def tan(self, x: str) -> str:
        """Tangent of radians: sin / cos, or -cos / sin in odd quadrants."""
        r, tail, bits = self._reduce_trig(x)
        odd = self._quadrant(bits, 1)
        sine, cosine = self._kernel_sin(r, tail), self._kernel_cos(r, tail)
        above = self.select(odd, self.neg(cosine), sine)
        below = self.select(odd, sine, cosine)
        return self._or_libm("tan", x, self._or_tiny(x, self.div(above, below)))

    def _asin_core(self, x: str) -> tuple[str, str]:
        """Whether |x| < 1/2, and asin(|x|) there, asin(sqrt((1-|x|) / 2)) elsewhere."""
        t = self.fabs(x)
        small = self.cmp("olt", t, 0.5)
        outer = self.mul(self.sub(1.0, t), 0.5)
        z = self.select(small, self.mul(t, t), outer)
        s = self.select(small, t, self.sqrt(outer))
        return small, self.fma(self.mul(s, z), self.poly(fits.ASIN[self.dtype], z), s)

    @shared
    def asin(self, x: str) -> str:
        """Arc sine in [-pi/2, pi/2]."""
        small, p = self._asin_core(x)
        high, low = HALF_PI[self.dtype]
        large = self.sub(high, self.sub(self.add(p, p), low))
        return self.copysign(self.select(small, p, large), x)

    @shared
    def acos(self, x: str) -> str:
        """Arc cosine in [0, pi]."""
        small, p = self._asin_core(x)
        high, low = HALF_PI[self.dtype]
        centre = self.sub(high, self.sub(self.copysign(p, x), low))
        double = self.add(p, p)
        high, low = PI[self.dtype]
        left = self.sub(high, self.sub(double, low))
        sides = self.select(self.cmp("olt", x, 0.0), left, double)
        return self.select(small, centre, sides)

    def _atan_sum(self, t: str, high: str, low: str) -> str:
        """high + low + atan(t) for |t| <= tan(pi/8)."""
        z = self.mul(t, t)
        correction = self.fma(self.mul(t, z), self.poly(fits.ATAN[self.dtype], z), low)
        return self.add(high, self.add(t, correction))

    @shared
    def atan(self, x: str) -> str:
        """Arc tangent: t, (t-1) / (t+1) or -1 / t is small enough for the polynomial."""
        t = self.fabs(x)
        large = self.cmp("ogt", t, 1.0 / TAN_PI_8)
        middle = self.cmp("ogt", t, TAN_PI_8)
        above = self.select(middle, self.sub(t, 1.0), t)
        below = self.select(middle, self.add(t, 1.0), 1.0)
        above, below = self.select(large, -1.0, above), self.select(large, t, below)
        (half, half_low), (quarter, quarter_low) = HALF_PI[self.dtype], QUARTER_PI[self.dtype]
        high = self.select(large, half, self.select(middle, quarter, 0.0))
        low = self.select(large, half_low, self.select(middle, quarter_low, 0.0))
        return self.copysign(self._atan_sum(self.div(above, below), high, low), x)

    @shared
    def atan2(self, y: str, x: str) -> str:
        """The angle of the point (x, y) in [-pi, pi], signed zeros and infinities as in C."""
        ax, ay = self.fabs(x), self.fabs(y)
        steep = self.cmp("ogt", ay, ax)
        small, large = self.select(steep, ax, ay), self.select(steep, ay, ax)
        # Halving is exact here but for a small that no longer matters.
        huge = self.cmp("ogt", large, HALF_MAX[self.dtype])
        factor = self.select(huge, 0.25, 1.0)
        small, large = self.mul(small, factor), self.mul(large, factor)
        middle = self.cmp("ogt", small, self.mul(large, TAN_PI_8))
        middle = self.logic("or", middle, self.cmp("oeq", small, math.inf))
        # Equal infinities give 0 / inf, which is right; two zeros give 0 / 1.
        equal = self.cmp("oeq", small, large)
        difference = self.select(equal, 0.0, self.sub(small, large))
        above = self.select(middle, difference, small)
        below = self.select(middle, self.add(small, large), large)
        below = self.select(self.cmp("oeq", large, 0.0), 1.0, below)
        quarter, quarter_low = QUARTER_PI[self.dtype]
        high, low = self.select(middle, quarter, 0.0), self.select(middle, quarter_low, 0.0)
        angle = self._atan_sum(self.div(above, below), high, low)
        half, half_low = HALF_PI[self.dtype]
        angle = self.select(steep, self.sub(half, self.sub(angle, half_low)), angle)
        pi, pi_low = PI[self.dtype]
        sign = self.fn.let(f"icmp slt {self.itype} {self.as_int(x)}, {self.int_const(0)}")
        angle = self.select(sign, self.sub(pi, self.sub(angle, pi_low)), angle)
        angle = self.copysign(angle, y)
        return self.select(self.cmp("uno", x, y), self.add(x, y), angle)
