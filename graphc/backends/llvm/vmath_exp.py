"""exp, log, their relatives and the hyperbolic functions on vectors of lanes."""

import math

from graphc.backends.llvm import coefficients as fits
from graphc.backends.llvm.lanes import BIAS, MANTISSA
from graphc.backends.llvm.shared import SharedLanes, shared

LOG2E = math.log2(math.e)

# ln(2) and log10(2): a head with trailing zeros, so that k * head is exact, and the rest (fdlibm).
LN2 = {
    "f32": (0.693145751953125, 1.4286068203094173e-06),
    "f64": (6.93147180369123816490e-01, 1.90821492927058770002e-10),
}
LOG10_2 = {
    "f32": (3.0102920532e-01, 7.9034151668e-07),
    "f64": (3.01029995663611771306e-01, 3.69423907715893078616e-13),
}
# log2(e) and log10(e) as a rounded value and the rest.
LOG2_E = {
    "f32": (1.44269502162933349609375, 1.9259629911266175e-08),
    "f64": (1.4426950408889634, 2.0355273740931033e-17),
}
LOG10_E = {
    "f32": (0.4342944920063018798828125, -1.0103050052231683e-08),
    "f64": (0.4342944819032518, 1.098319650216765e-17),
}
# Beyond these, exp is 0 or infinite whatever the rounding.
EXP_RANGE = {"f32": (-104.0, 89.0), "f64": (-746.0, 710.0)}
EXP2_RANGE = {"f32": (-151.0, 129.0), "f64": (-1076.0, 1025.0)}
# Below, expm1 is -1; above, even expm1(x) / 2 is infinite but expm1(x) / 4 is not.
EXPM1_RANGE = {"f32": (-20.0, 89.5), "f64": (-40.0, 710.6)}
# Where tanh is 1.
TANH_LIMIT = {"f32": 9.5, "f64": 20.0}
# Half the unit roundoff: f(x) = x (1 + O(x)) is x below it.
TINY = {"f32": 2.0**-25, "f64": 2.0**-54}
# The lower end of the interval of an octave that log's mantissa is brought to.
OCTAVE = {"f32": 2.0 / 3.0, "f64": math.sqrt(0.5)}
SMALLEST_NORMAL = {"f32": 2.0**-126, "f64": 2.0**-1022}
# Above, log1p(x) is log(x), and the inverse hyperbolic functions are log(2x).
LARGE = {"f32": 2.0**26, "f64": 2.0**55}


class ExpLog(SharedLanes):
    """The exponential family."""

    def _reduce_exp(self, x: str) -> tuple[str, str, str]:
        """x = n ln(2) + r: r, n and the sum that holds n as an integer."""
        n, shifted = self.round_scaled(x, LOG2E)
        high, low = LN2[self.dtype]
        return self.fma(n, -low, self.fma(n, -high, x)), n, shifted

    @shared
    def exp(self, x: str) -> str:
        """e^x."""
        low, high = EXP_RANGE[self.dtype]
        x, none = self._bounded(x, low, high)
        r, n, shifted = self._reduce_exp(x)
        p = self.poly((*fits.EXP[self.dtype], 1.0, 1.0), r)
        return self.scale(self.select(none, 0.0, p), n, shifted)

    def _bounded(self, x: str, low: float, high: float) -> tuple[str, str]:
        """x within bounds, NaN kept, and where the result is 0: a product that gets so small would
        take an Intel CPU some 150 cycles, in which masked scores would be most of attention."""
        x = self.at_most(x, high)
        none = self.cmp("olt", x, low)
        return self.select(none, low, x), none

    def exp_negative(self, x: str) -> str:
        """e^x for x <= 0 where the result is a normal number: one multiplication scales it."""
        r, _, shifted = self._reduce_exp(x)
        p = self.poly((*fits.EXP[self.dtype], 1.0, 1.0), r)
        return self.mul(p, self.power_of_two(shifted))

    @shared
    def exp2(self, x: str) -> str:
        """2^x."""
        low, high = EXP2_RANGE[self.dtype]
        x, none = self._bounded(x, low, high)
        n, shifted = self.round_scaled(x, 1.0)
        r = self.mul(self.sub(x, n), math.log(2.0))
        p = self.poly((*fits.EXP[self.dtype], 1.0, 1.0), r)
        return self.scale(self.select(none, 0.0, p), n, shifted)

    def _expm1_times(self, unit: float, x: str) -> str:
        """unit * (e^x - 1), accurate near 0; unit a power of two, x within EXPM1_RANGE."""
        r, _, shifted = self._reduce_exp(x)
        p = self.fma(self.mul(r, r), self.poly(fits.EXPM1[self.dtype], r), r)
        power = self.power_of_two(shifted, unit)
        return self.fma(power, p, self.sub(power, unit))

    def _or_tiny(self, x: str, result: str) -> str:
        """x itself where |x| is tiny: keeps subnormals and the sign of zero."""
        return self.select(self.cmp("olt", self.fabs(x), TINY[self.dtype]), x, result)

    @shared
    def expm1(self, x: str) -> str:
        """e^x - 1."""
        low, high = EXPM1_RANGE[self.dtype]
        quarter = self._expm1_times(0.25, self.at_least(self.at_most(x, high), low))
        return self._or_tiny(x, self.mul(quarter, 4.0))

    @shared
    def sinh(self, x: str) -> str:
        """(e^x - e^-x) / 2, from e = expm1(|x|) as (e + e / (e+1)) / 2."""
        t = self.at_most(self.fabs(x), EXPM1_RANGE[self.dtype][1])
        quarter = self._expm1_times(0.25, t)
        half = self.mul(quarter, 2.0)
        # Where half overflows, the quotient is 0 instead of 1/2.
        result = self.add(half, self.div(quarter, self.add(half, 0.5)))
        return self._or_tiny(x, self.copysign(result, x))

    @shared
    def cosh(self, x: str) -> str:
        """(e^x + e^-x) / 2."""
        t = self.at_most(self.fabs(x), EXPM1_RANGE[self.dtype][1])
        r, n, shifted = self._reduce_exp(t)
        p = self.poly((*fits.EXP[self.dtype], 1.0, 1.0), r)
        half = self.scale(p, self.sub(n, 1.0), self.sub(shifted, 1.0))
        return self.add(half, self.div(0.25, half))

    @shared
    def tanh(self, x: str) -> str:
        """From e = expm1(2|x|) as e / (e+2): no cancellation anywhere."""
        t = self.at_most(self.fabs(x), TANH_LIMIT[self.dtype])
        e = self._expm1_times(1.0, self.add(t, t))
        return self.copysign(self.div(e, self.add(e, 2.0)), x)

    @shared
    def sigmoid(self, x: str) -> str:
        """1 / (1 + e^-x)."""
        return self.div(1.0, self.add(self.exp(self.neg(x)), 1.0))

    # Logarithms: x = 2^k (1+f), log(1+f) = f + tail

    def _exponent(self, bits: str) -> tuple[str, str]:
        """For the bits of 2^k m, OCTAVE <= m < 2 OCTAVE: k as a float, the bits of 2^k less 1's."""
        mantissa, bias = MANTISSA[self.dtype], BIAS[self.dtype]
        octave = self.bits_of(OCTAVE[self.dtype])
        shifted = self.integer("sub", bits, octave)
        power = self.integer("and", shifted, -(1 << mantissa))
        biased = self.integer("lshr", self.integer("add", shifted, self.bits_of(1.0)), mantissa)
        # The integer under the mantissa of 2^mantissa: no conversion instruction needed.
        k = self.as_float(self.integer("or", biased, self.bits_of(2.0**mantissa)))
        return self.sub(k, 2.0**mantissa + bias), power

    def _split_log(self, x: str) -> tuple[str, str]:
        """x = 2^k (1+f) for positive x: k and f."""
        small = self.cmp("olt", x, SMALLEST_NORMAL[self.dtype])
        up = MANTISSA[self.dtype] + 2
        bits = self.as_int(self.select(small, self.mul(x, 2.0**up), x))
        k, power = self._exponent(bits)
        k = self.sub(k, self.select(small, float(up), 0.0))
        return k, self.sub(self.as_float(self.integer("sub", bits, power)), 1.0)

    def _log_tail(self, f: str) -> str:
        """log(1+f) - f."""
        if self.dtype == "f32":
            return self.mul(self.mul(f, f), self.poly(fits.LOG["f32"], f))
        s = self.div(f, self.add(f, 2.0))
        z = self.mul(s, s)
        half_square = self.mul(self.mul(f, f), 0.5)
        series = self.fma(z, self.poly(fits.LOG["f64"], z), half_square)
        return self.sub(self.mul(s, series), half_square)

    def _log_special(self, x: str, result: str) -> str:
        """The logarithm's value at 0, infinity, NaN and below 0."""
        result = self.select(self.cmp("oeq", x, 0.0), -math.inf, result)
        result = self.select(self.cmp("ult", x, 0.0), math.nan, result)
        return self.select(self.cmp("oeq", x, math.inf), math.inf, result)

    def _log_sum(self, k: str, f: str) -> str:
        """k ln(2) + log(1+f)."""
        high, low = LN2[self.dtype]
        small = self.fma(k, low, self._log_tail(f))
        return self.fma(k, high, self.add(f, small))

    @shared
    def log(self, x: str) -> str:
        """The natural logarithm."""
        return self._log_special(x, self._log_sum(*self._split_log(x)))

    @shared
    def log1p(self, x: str) -> str:
        """log(1 + x): the exponent is that of 1+x, but f = 2^-k x + (2^-k - 1) from x itself."""
        u = self.add(x, 1.0)
        k, power = self._exponent(self.as_int(u))
        # 4 * 2^-k and not 2^-k, which is subnormal at the largest k. Where k is not 0, x is normal.
        scale4 = self.as_float(self.integer("sub", self.int_const(self.bits_of(4.0)), power))
        scaled = self.as_float(self.integer("sub", self.as_int(x), power))
        f = self.add(scaled, self.fma(scale4, 0.25, -1.0))
        return self._or_tiny(x, self._log_special(u, self._log_sum(k, f)))

    def _log_scaled(self, x: str, base: tuple[float, float], unit: tuple[float, float]) -> str:
        """log(x) * b, given b and log(2) * b as pairs; f * b in two pieces."""
        k, f = self._split_log(x)
        product, error = self.two_product(f, base[0])
        low = self.fma(f, base[1], error)
        low = self.fma(self._log_tail(f), base[0], low)
        low = self.fma(k, unit[1], low)
        return self._log_special(x, self.fma(k, unit[0], self.add(product, low)))

    @shared
    def log2(self, x: str) -> str:
        """The logarithm to base 2; exact for powers of two."""
        return self._log_scaled(x, LOG2_E[self.dtype], (1.0, 0.0))

    @shared
    def log10(self, x: str) -> str:
        """The logarithm to base 10."""
        return self._log_scaled(x, LOG10_E[self.dtype], LOG10_2[self.dtype])

    # Inverse hyperbolic functions

    @shared
    def asinh(self, x: str) -> str:
        """log1p(t + t^2 / (1 + sqrt(1+t^2))) for t = |x|; log(t) + log(2) where t is large."""
        t = self.fabs(x)
        large = self.cmp("ogt", t, LARGE[self.dtype])
        square = self.mul(t, t)
        root = self.sqrt(self.add(square, 1.0))
        inner = self.add(t, self.div(square, self.add(root, 1.0)))
        result = self.log1p(self.select(large, t, inner))
        result = self.add(result, self.select(large, math.log(2.0), 0.0))
        return self._or_tiny(x, self.copysign(result, x))

    @shared
    def acosh(self, x: str) -> str:
        """log1p(t + sqrt(2t + t^2)) for t = x-1; log(x) + log(2) where x is large."""
        large = self.cmp("ogt", x, LARGE[self.dtype])
        t = self.sub(x, 1.0)
        inner = self.add(t, self.sqrt(self.fma(t, t, self.add(t, t))))
        result = self.log1p(self.select(large, x, inner))
        result = self.add(result, self.select(large, math.log(2.0), 0.0))
        return self.select(self.cmp("ult", x, 1.0), math.nan, result)

    @shared
    def atanh(self, x: str) -> str:
        """log1p(2t / (1-t)) / 2 for t = |x|."""
        t = self.fabs(x)
        result = self.log1p(self.div(self.add(t, t), self.sub(1.0, t)))
        return self._or_tiny(x, self.copysign(self.mul(result, 0.5), x))
