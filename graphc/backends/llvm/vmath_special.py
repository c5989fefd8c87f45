"""erf and its relatives, the gamma functions and pow on vectors of lanes."""

import math

from graphc.backends.llvm import coefficients as fits
from graphc.backends.llvm.lanes import MANTISSA, ROUNDER
from graphc.backends.llvm.shared import shared
from graphc.backends.llvm.vmath_trig import Trig

# Where erf's two fits meet, and from where it is 1.
ERF_SPLIT = {"f32": 0.927734375, "f64": 1.0}
ERF_LIMIT = {"f32": 4.0, "f64": 5.95}
# By nodes: where erf is 1 (before its last node, 31/8, ends), a number whose last bit is 1/8, and
# what erf is begun with at most, between two nodes.
ERF_ONE, ERF_ROUNDER, ERF_BASE = 3.93, 2.0**20, 0.9375
# Where erfc is 0.
ERFC_LIMIT = {"f32": 10.2, "f64": 27.5}
# ln(2) with 11 trailing zeros, and the rest (fdlibm): k * head is exact.
LN2_LONG = (0.693147180559890330187045037746429443359375, 5.497923018708371174712471651335e-14)
# The odd Bernoulli-number series of digamma beyond 10: B_2k / 2k, highest first (Cephes).
DIGAMMA_SERIES = (
    8.33333333333333333333e-2,
    -2.10927960927960927961e-2,
    7.57575757575757575758e-3,
    -4.16666666666666666667e-3,
    3.96825396825396825397e-3,
    -8.33333333333333333333e-3,
    8.33333333333333333333e-2,
)
DIGAMMA_SHIFT = 10
# Stirling's series of lgamma from 8 on, B_2k / (2k (2k-1)), highest first; log(2 pi) / 2.
LGAMMA_SHIFT = 8.0
LGAMMA_SERIES = (
    1 / 156, -691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12,
)
LGAMMA_CONSTANT = 0.91893853320467274178


class Special(Trig):
    """Error functions, gamma functions, powers."""

    @shared
    def erf(self, x: str) -> str:
        """The error function: x + x P(x^2) near 0, 1 - exp(log erfc) beyond. Or, where polynomials
        can be looked up, min(x, 15/16) + P(x - k/8) of the nearest k/8: half the work."""
        if self.looks_up:
            return self._erf_by_nodes(x)
        t = self.at_most(self.fabs(x), ERF_LIMIT[self.dtype])
        near = fits.ERF_SMALL[self.dtype]
        small = self.fma(self.poly(near, self.mul(x, x)), x, x)
        log_erfc = self.fma(self.poly(fits.ERF_LARGE[self.dtype], t), t, self.neg(t))
        large = self.copysign(self.sub(1.0, self.exp_negative(log_erfc)), x)
        return self.select(self.cmp("ogt", t, ERF_SPLIT[self.dtype]), large, small)

    @shared
    def erf_plus_one(self, x: str) -> str:
        """erf(x) + 1: erf as near as the sum can tell, 1 - 2^(t P(t)) with the sign of x. Floats;
        all steps depend on each other, so polynomials are cut."""
        if self.looks_up or self.dtype != "f32":
            return self.add(self.erf(x), 1.0)
        t = self.at_most(self.fabs(x), ERF_LIMIT[self.dtype])
        exponent = self.poly_cut(fits.LOG2_ERFC, t)
        shifted = self.fma(exponent, t, ROUNDER[self.dtype])
        r = self.fma(exponent, t, self.neg(self.sub(shifted, ROUNDER[self.dtype])))
        power = self.fma(self.poly_cut(fits.EXP2, r), r, 1.0)
        erf = self.fma(power, self.power_of_two(shifted, -1.0), 1.0)
        return self.add(self.copysign(erf, x), 1.0)

    def _erf_by_nodes(self, x: str) -> str:
        t = self.at_most(self.fabs(x), ERF_ONE)
        shifted = self.add(t, ERF_ROUNDER)  # k in its low bits
        d = self.sub(t, self.sub(shifted, ERF_ROUNDER))
        node = self.as_int(shifted)
        rest, *lower = (self.lookup(each, node) for each in fits.ERF_NODES)
        for each in lower:
            rest = self.fma(rest, d, each)
        return self.copysign(self.add(self.at_most(t, ERF_BASE), rest), x)

    @shared
    def erfc(self, x: str) -> str:
        """1 - erf(x) to full relative accuracy; floats are computed in double precision."""
        if self.dtype == "f32":
            return self._narrow(self._wide()._erfc(self._widened(x), "f32"))
        return self._erfc(x, "f64")

    def _erfc(self, x: str, result: str) -> str:
        """exp(-t^2) P((t-4) / (t+4)) / (1+2t) for t = |x|; doubles near 0 as 1 - erf(x)."""
        t = self.at_most(self.fabs(x), ERFC_LIMIT[result])
        ratio = self.div(self.sub(t, 4.0), self.add(t, 4.0))
        scaled = self.poly(fits.ERFCX[result], ratio)
        scaled = self.div(scaled, self.fma(t, 2.0, 1.0))
        if result == "f32":
            power = self._exp_short(self.neg(self.mul(t, t)))
        else:
            square, error = self.two_product(t, t)
            power = self._exp_pair(self.neg(square), self.neg(error))
        positive = self.mul(scaled, power)
        outer = self.select(self.cmp("olt", x, 0.0), self.sub(2.0, positive), positive)
        if result == "f32":
            return outer
        inner = self.fma(self.poly(fits.ERF_SMALL["f64"], self.mul(x, x)), x, x)
        return self.select(self.cmp("olt", t, 0.5), self.sub(1.0, inner), outer)

    @shared
    def erfinv(self, x: str) -> str:
        """The inverse of erf (M. Giles, 2010): x times a polynomial in log(1 - x^2)."""
        t = self.fabs(x)
        w = self.neg(self.log(self.mul(self.sub(1.0, t), self.add(1.0, t))))
        root = self.sqrt(w)
        if self.dtype == "f32":
            near, far = (2.5, 5.0), (3.0, math.inf)
        else:
            near, far = (3.125, 6.25), (3.25, 16.0)
        p = self.poly(fits.ERFINV_TAIL[self.dtype], self.sub(root, far[0]))
        if self.dtype == "f64":
            beyond = self.poly(fits.ERFINV_FAR["f64"], self.sub(root, 5.0))
            p = self.select(self.cmp("olt", w, far[1]), p, beyond)
        centre = self.poly(fits.ERFINV_CENTRE[self.dtype], self.sub(w, near[0]))
        p = self.select(self.cmp("olt", w, near[1]), centre, p)
        result = self.mul(p, x)
        infinite = self.copysign(math.inf, x)
        return self.select(self.cmp("oeq", t, 1.0), infinite, result)

    @shared
    def lgamma(self, x: str) -> str:
        """log |gamma(x)|: floats in double precision, doubles from libm lane by lane."""
        if self.dtype == "f64":
            return self.libm("lgamma", x)
        return self._narrow(self._wide()._lgamma(self._widened(x)))

    def _lgamma(self, x: str) -> str:
        """Of doubles that came from floats: Stirling's series from 8 on, to which what is less is
        moved by gamma(t + 8) = gamma(t) t (t + 1) ... (t + 7); what is negative by reflection."""
        t = self.fabs(x)
        small = self.cmp("olt", t, LGAMMA_SHIFT)
        q = self.mul(t, self.add(t, 7.0))
        product = q
        for more in (6.0, 10.0, 12.0):  # (t + 1) (t + 6), (t + 2) (t + 5), (t + 3) (t + 4)
            product = self.mul(product, self.add(q, more))
        product = self.select(small, product, 1.0)
        z = self.select(small, self.add(t, LGAMMA_SHIFT), t)
        inverse = self.div(1.0, z)
        series = self.mul(inverse, self.poly(LGAMMA_SERIES, self.mul(inverse, inverse)))
        whole = self.sub(self.mul(self.sub(z, 0.5), self.log(z)), z)
        result = self.sub(self.add(whole, self.add(series, LGAMMA_CONSTANT)), self.log(product))
        zero = self.logic("or", self.cmp("oeq", t, 1.0), self.cmp("oeq", t, 2.0))
        result = self.select(zero, 0.0, result)
        result = self.select(self.cmp("oeq", t, math.inf), math.inf, result)
        fn, negative = self.fn, self.cmp("olt", x, 0.0)
        before, mirrored, done = fn.current, fn.label("mirrored"), fn.label("done")
        fn.cond_br(self.any(negative), mirrored, done)
        fn.block(mirrored)
        fraction = self.sub(t, self.trunc(t))
        fraction = self.select(
            self.cmp("ogt", fraction, 0.5), self.sub(1.0, fraction), fraction
        )
        sine = self.mul(t, self.sin(self.mul(fraction, math.pi)))
        other = self.sub(self.log(self.div(math.pi, sine)), result)
        other = self.select(self.cmp("oeq", fraction, 0.0), math.inf, other)
        other = self.select(self.cmp("oeq", t, math.inf), math.inf, other)
        answer = self.select(negative, other, result)
        after = fn.current
        fn.br(done)
        fn.block(done)
        return fn.phi(self.vtype, ((result, before), (answer, after)))

    @shared
    def digamma(self, x: str) -> str:
        """The derivative of lgamma, as torch computes it; floats in double precision."""
        if self.dtype == "f32":
            return self._narrow(self._wide().digamma(self._widened(x)))
        negative = self.cmp("olt", x, 0.0)
        start = self.select(negative, self.sub(1.0, x), x)
        loop = self.fn.carry_loop(
            0, DIGAMMA_SHIFT, 1, [(self.vtype, start), (self.vtype, self.const(0.0))]
        )
        below = self.cmp("olt", loop.values[0], float(DIGAMMA_SHIFT))
        inverse = self.div(1.0, loop.values[0])
        reduced = self.sub(loop.values[1], self.select(below, inverse, 0.0))
        raised = self.add(loop.values[0], self.select(below, 1.0, 0.0))
        y, shift = loop.close([raised, reduced])
        z = self.div(1.0, self.mul(y, y))
        series = self.mul(z, self.poly(DIGAMMA_SERIES, z))
        smooth = self.sub(self.sub(self.log(y), self.div(0.5, y)), series)
        result = self.add(smooth, shift)
        # Reflection: pi / tan(pi x), of x's fraction alone (the tangent has period 1 in x).
        fraction = self.sub(x, self.trunc(x))
        cotangent = self.div(math.pi, self.tan(self.mul(fraction, math.pi)))
        result = self.select(negative, self.sub(result, cotangent), result)
        pole = self.logic("and", negative, self.cmp("oeq", fraction, 0.0))
        result = self.select(pole, math.nan, result)
        zero = self.cmp("oeq", x, 0.0)
        return self.select(zero, self.copysign(math.inf, self.neg(x)), result)

    # pow

    @shared
    def pow(self, x: str, y: str) -> str:
        """x^y: exp(y log|x|) with a logarithm of extra precision, then C's special cases."""
        t = self.fabs(x)
        if self.dtype == "f32":
            wide = self._wide()
            exponent = wide.mul(self._widened(y), wide._log_short(self._widened(t)))
            magnitude = self._narrow(wide._exp_short(exponent))
        else:
            magnitude = self._pow_magnitude(t, y)
        # Where x is 0 or infinite, or y is: infinite if |x| > 1 and y > 0 agree, else 0.
        extreme = self.logic("or", self.cmp("oeq", t, 0.0), self.cmp("oeq", t, math.inf))
        extreme = self.logic("or", extreme, self.cmp("oeq", self.fabs(y), math.inf))
        differ = self.logic("xor", self.cmp("ogt", t, 1.0), self.cmp("ogt", y, 0.0))
        magnitude = self.select(extreme, self.select(differ, 0.0, math.inf), magnitude)
        magnitude = self._pow_sign(x, y, magnitude)
        magnitude = self.select(self.cmp("uno", x, y), math.nan, magnitude)
        one = self.logic("or", self.cmp("oeq", y, 0.0), self.cmp("oeq", x, 1.0))
        minus_one = self.logic(
            "and", self.cmp("oeq", x, -1.0), self.cmp("oeq", self.fabs(y), math.inf)
        )
        return self.select(self.logic("or", one, minus_one), 1.0, magnitude)

    @shared
    def fmod(self, x: str, y: str) -> str:
        """What is left of x by a division that truncates, exactly, with the sign of x."""
        if not self.fused:
            return self.libm("fmod", x, y)
        fn = self.fn
        t, s = self.fabs(x), self.fabs(y)
        # rounding may lift a quotient to the next integer, but never lets it fall below one
        quotient = self.div(t, s)
        rest = self.fma(self.neg(self.trunc(quotient)), s, t)
        rest = self.select(self.cmp("olt", rest, 0.0), self.add(rest, s), rest)
        result = self.copysign(self.select(self.cmp("olt", t, s), t, rest), x)
        # beyond that it may be wrong by more than one; so are infinities, NaN and division by 0
        far = self.cmp("uge", quotient, 2.0 ** (MANTISSA[self.dtype] - 1))
        before, slow, done = fn.current, fn.label("far"), fn.label("divided")
        fn.cond_br(self.any(far), slow, done)
        fn.block(slow)
        answer = self.select(far, self.libm("fmod", x, y), result)
        fn.br(done)
        fn.block(done)
        return fn.phi(self.vtype, ((result, before), (answer, slow)))

    def _pow_sign(self, x: str, y: str, magnitude: str) -> str:
        """Negative for a negative base and an odd y; NaN for a negative base and a fraction."""
        half = self.mul(y, 0.5)
        whole = self.cmp("oeq", self.trunc(y), y)
        odd = self.logic("and", whole, self.cmp("one", self.trunc(half), half))
        signed = self.select(odd, self.copysign(magnitude, x), magnitude)
        negative = self.logic("and", self.cmp("olt", x, 0.0), self.cmp("ogt", x, -math.inf))
        fraction = self.cmp("une", self.trunc(y), y)
        return self.select(self.logic("and", negative, fraction), math.nan, signed)

    def _pow_magnitude(self, t: str, y: str) -> str:
        """t^y for finite t > 0, in double precision."""
        high, low = self._log_pair(t)
        product, error = self.two_product(y, high)
        error = self.fma(y, low, error)
        # Past the range of exp the error may be infinite or NaN, and no longer matters.
        inside = self.cmp("olt", self.fabs(product), 800.0)
        error = self.select(inside, error, 0.0)
        return self._exp_pair(self.at_least(self.at_most(product, 800.0), -800.0), error)

    def _exp_pair(self, high: str, low: str) -> str:
        """exp(high + low) for |high| <= 800."""
        r, n, shifted = self._reduce_exp(high)
        power = self.poly((*fits.EXP["f64"], 1.0, 1.0), self.add(r, low))
        return self.scale(power, n, shifted)

    def _log_pair(self, t: str) -> tuple[str, str]:
        """log(t) as a sum of two doubles, good to about 2^-65 of its value."""
        k, f = self._split_log(t)
        # s = f / (2+f) as a pair, by one division and its remainder.
        below = self.add(f, 2.0)
        below_low = self.sub(f, self.sub(below, 2.0))
        inverse = self.div(1.0, below)
        s = self.mul(f, inverse)
        product, error = self.two_product(s, below)
        remainder = self.sub(self.sub(f, product), error)
        s_low = self.mul(self.sub(remainder, self.mul(s, below_low)), inverse)
        # 2s + 2/3 s^3 + s^5 P(s^2), the first two terms in pairs.
        z, z_low = self.two_product(s, s)
        z_low = self.fma(self.mul(s, 2.0), s_low, z_low)
        third, third_low = self.two_product(z, 2.0 / 3.0)
        third_low = self.fma(z, 2.0 / 3.0 * 2.0**-54, self.fma(z_low, 2.0 / 3.0, third_low))
        third_low = self.fma(self.mul(z, z), self.poly(fits.LOG_TAIL["f64"], z), third_low)
        cube, cube_low = self.two_product(s, third)
        cube_low = self.fma(s_low, third, self.fma(s, third_low, cube_low))
        high, low = self.two_sum(self.mul(k, LN2_LONG[0]), self.mul(s, 2.0))
        high, more = self.two_sum(high, cube)
        low = self.add(low, more)
        low = self.add(low, self.fma(s_low, 2.0, cube_low))
        low = self.fma(k, LN2_LONG[1], low)
        return self.fast_two_sum(high, low)

    # Floats in double precision, to about 2^-33: short polynomials suffice

    def _wide(self) -> "Special":
        return type(self)(self.fn, self.module, self.target, "f64", self.width, None)

    def _widened(self, x: str) -> str:
        return self.fn.let(f"fpext {self.vtype} {x} to {self._wide().vtype}")

    def _narrow(self, x: str) -> str:
        return self.fn.let(f"fptrunc {self._wide().vtype} {x} to {self.vtype}")

    def _log_short(self, t: str) -> str:
        """log of a positive double that came from a float."""
        k, power = self._exponent(self.as_int(t))
        f = self.sub(self.as_float(self.integer("sub", self.as_int(t), power)), 1.0)
        s = self.div(f, self.add(f, 2.0))
        z = self.mul(s, s)
        series = self.fma(self.mul(s, z), self.poly(fits.LOG_SHORT["f64"], z), self.add(s, s))
        return self.fma(k, math.log(2.0), series)

    def _exp_short(self, x: str) -> str:
        """exp for results that become floats: 2^-1000 and 2^1000 are as good as 0 and infinity."""
        x = self.at_least(self.at_most(x, 690.0), -690.0)
        r, _, shifted = self._reduce_exp(x)
        return self.mul(
            self.poly((*fits.EXP_SHORT["f64"], 1.0, 1.0), r), self.power_of_two(shifted)
        )
