"""erf, erfc, erfinv, lgamma and digamma, vectorised in float64 (NumPy has none of them).

The rational approximations of erf, erfc and lgamma are those of Sun's fdlibm (s_erf.c and
e_lgamma_r.c, freely redistributable): below 1 ulp there, a few ulp here.
"""

from __future__ import annotations

import math

import numpy as np

from .common import F32, Array, as_array, as_double

_TWO_OVER_SQRT_PI = 2.0 / math.sqrt(math.pi)


def _poly(x: Array, coefficients: tuple[float, ...]) -> Array:
    """Horner's rule, constant term first."""
    result = np.full_like(x, coefficients[-1])
    for c in coefficients[-2::-1]:
        result *= x
        result += c
    return result


_ERF_P = (1.28379167095512558561e-01, -3.25042107247001499370e-01, -2.84817495755985104766e-02,
          -5.77027029648944159157e-03, -2.37630166566501626084e-05)
_ERF_Q = (1.0, 3.97917223959155352819e-01, 6.50222499887672944485e-02,
          5.08130628187576562776e-03, 1.32494738004321644526e-04, -3.96022827877536812320e-06)
_ERX = 8.45062911510467529297e-01
_ERF_PA = (-2.36211856075265944077e-03, 4.14856118683748331666e-01, -3.72207876035701323847e-01,
           3.18346619901161753674e-01, -1.10894694282396677476e-01, 3.54783043256182359371e-02,
           -2.16637559486879084300e-03)
_ERF_QA = (1.0, 1.06420880400844228286e-01, 5.40397917702171048937e-01,
           7.18286544141962662868e-02, 1.26171219808761642112e-01, 1.36370839120290507362e-02,
           1.19844998467991074170e-02)
_ERF_RA = (-9.86494403484714822705e-03, -6.93858572707181764372e-01, -1.05586262253232909814e+01,
           -6.23753324503260060396e+01, -1.62396669462573470355e+02, -1.84605092906711035994e+02,
           -8.12874355063065934246e+01, -9.81432934416914548592e+00)
_ERF_SA = (1.0, 1.96512716674392571292e+01, 1.37657754143519042600e+02,
           4.34565877475229228821e+02, 6.45387271733267880336e+02, 4.29008140027567833386e+02,
           1.08635005541779435134e+02, 6.57024977031928170135e+00, -6.04244152148580987438e-02)
_ERF_RB = (-9.86494292470009928597e-03, -7.99283237680523006574e-01, -1.77579549177547519889e+01,
           -1.60636384855821916062e+02, -6.37566443368389627722e+02, -1.02509513161107724954e+03,
           -4.83519191608651397019e+02)
_ERF_SB = (1.0, 3.03380607434824582924e+01, 3.25792512996573918826e+02,
           1.53672958608443695994e+03, 3.19985821950859553908e+03, 2.55305040643316442583e+03,
           4.74528541206955367215e+02, -2.24409524465858183362e+01)


def _erf_pair(x: Array, complement: bool) -> Array:
    """erf(x), or 1 - erf(x) without cancellation."""
    x = as_double(x)
    flat = np.ravel(x)
    size = np.abs(flat)
    out = np.empty_like(flat)
    out[...] = flat  # NaN stays
    near, middle = size < 0.84375, (size >= 0.84375) & (size < 1.25)
    far = size >= 1.25
    if near.any():
        v = flat[near]
        z = v * v
        y = _poly(z, _ERF_P) / _poly(z, _ERF_Q)
        if complement:
            out[near] = np.where(v < 0.25, 1.0 - (v + v * y), 0.5 - (v - 0.5 + v * y))
        else:
            out[near] = v + v * y
    if middle.any():
        v = flat[middle]
        s = np.abs(v) - 1.0
        y = _poly(s, _ERF_PA) / _poly(s, _ERF_QA)
        if complement:
            out[middle] = np.where(v >= 0, 1.0 - _ERX - y, 1.0 + (_ERX + y))
        else:
            out[middle] = np.copysign(_ERX + y, v)
    if far.any():
        v = flat[far]
        tail = _erfc_tail(np.abs(v))
        if complement:
            out[far] = np.where(v >= 0, tail, 2.0 - tail)
        else:
            out[far] = np.copysign(1.0 - tail, v)
    return out.reshape(x.shape)


def _erfc_tail(a: Array) -> Array:
    """erfc(a) for a >= 1.25."""
    a = np.minimum(a, 30.0)  # erfc(28) is 0 already; keeps inf out of the polynomials
    s = 1.0 / (a * a)
    ratio = np.where(
        a < 1 / 0.35, _poly(s, _ERF_RA) / _poly(s, _ERF_SA), _poly(s, _ERF_RB) / _poly(s, _ERF_SB)
    )
    # a*a would lose its low half: split a so that the head squares exactly
    head = (a.view(np.int64) & np.int64(-0x100000000)).view(np.float64)
    return np.exp(-head * head - 0.5625) * np.exp((head - a) * (head + a) + ratio) / a


# Eigen's float32 fit (MathFunctionsImpl.h, MPL2): odd over even polynomial on [-4, 4]
_ERF32_P = (-1.60960333262415e-02, -2.95459980854025e-03, -7.34990630326855e-04,
            -5.69250639462346e-05, -2.10102402082508e-06, 2.77068142495902e-08,
            -2.72614225801306e-10)
_ERF32_Q = (-1.42647390514189e-02, -7.37332916720468e-03, -1.68282697438203e-03,
            -2.13374055278905e-04, -1.45660718464996e-05)


# as arrays, which NumPy takes faster than numbers, the highest first
_LOW, _HIGH = np.asarray(-4.0, F32), np.asarray(4.0, F32)
_OVER = [np.asarray(c, F32) for c in reversed(_ERF32_P)]
_UNDER = [np.asarray(c, F32) for c in reversed(_ERF32_Q)]


def _horner(x: Array, numbers: list[Array]) -> Array:
    """_poly in as few calls as there are operations."""
    result: Array = np.multiply(x, numbers[0])
    for number in numbers[1:-1]:
        np.add(result, number, result)
        np.multiply(result, x, result)
    return np.add(result, numbers[-1], result)


def erf(x: Array) -> Array:
    """The error function of x's dtype: float32 within 4 ulp, float64 within 2."""
    if x.dtype == np.float32:
        clipped = np.minimum(np.maximum(x.reshape(x.shape or 1), _LOW), _HIGH)
        square = clipped * clipped
        np.multiply(clipped, _horner(square, _OVER), clipped)
        return np.divide(clipped, _horner(square, _UNDER), clipped).reshape(x.shape)
    return _erf_pair(x, False).astype(x.dtype, copy=False)


def erfc(x: Array) -> Array:
    """1 - erf(x), accurate in the tail, of x's dtype."""
    return _erf_pair(x, True).astype(x.dtype, copy=False)


def erfinv(x: Array) -> Array:
    """The inverse of erf: NaN outside [-1, 1], infinite at its ends."""
    v = as_double(x)
    a = np.abs(v)
    inside = a < 1.0
    a = np.where(inside, a, 0.0)
    # Giles' single-precision start (the asymptote far out), then Halley steps on erfc = 1 - |x|
    w = -np.log((1.0 - a) * (1.0 + a))
    centre = _poly(w - 2.5, (1.50140941, 0.246640727, -0.00417768164, -0.00125372503,
                             0.00021858087, -4.39150654e-06, -3.5233877e-06, 3.43273939e-07,
                             2.81022636e-08))
    outer = _poly(np.sqrt(w) - 3.0, (2.83297682, 1.00167406, 0.00943887047, -0.0076224613,
                                     0.00573950773, -0.00367342844, 0.00134934322,
                                     0.000100950558, -0.000200214257))
    log_tail = -np.log(1.0 - a)
    far = np.sqrt(log_tail - np.log(math.sqrt(math.pi) * np.sqrt(np.maximum(log_tail, 9.0))))
    y = np.where(w < 5.0, centre * a, np.where(w < 16.0, outer * a, far))
    for _ in range(3):
        error = np.where(
            a < 0.5, _erf_pair(y, False) - a, (1.0 - a) - _erf_pair(y, True)
        )
        step = error / (_TWO_OVER_SQRT_PI * np.exp(-y * y))
        y = y - step / (1.0 + y * step)
    result = np.where(inside, np.copysign(y, v), np.where(np.abs(v) == 1.0, v * np.inf, np.nan))
    return result.astype(x.dtype, copy=False)


_LG_A_EVEN = (7.72156649015328655494e-02, 6.73523010531292681824e-02, 7.38555086081402883957e-03,
              1.19270763183362067845e-03, 2.20862790713908385557e-04, 2.52144565451257326939e-05)
_LG_A_ODD = (3.22467033424113591611e-01, 2.05808084325167332806e-02, 2.89051383673415629091e-03,
             5.10069792153511336608e-04, 1.08011567247583939954e-04, 4.48640949618915160150e-05)
_LG_MIN = 1.46163214496836224576e+00
_LG_MIN_VALUE = -1.21486290535849611461e-01
_LG_MIN_TAIL = -3.63867699703950536541e-18
_LG_T = (4.83836122723810047042e-01, -1.47587722994593911752e-01, 6.46249402391333854778e-02,
         -3.27885410759859649565e-02, 1.79706750811820387126e-02, -1.03142241298341437450e-02,
         6.10053870246291332635e-03, -3.68452016781138256760e-03, 2.25964780900612472250e-03,
         -1.40346469989232843813e-03, 8.81081882437654011382e-04, -5.38595305356740546715e-04,
         3.15632070903625950361e-04, -3.12754168375120860518e-04, 3.35529192635519073543e-04)
_LG_U = (-7.72156649015328655494e-02, 6.32827064025093366517e-01, 1.45492250137234768737e+00,
         9.77717527963372745603e-01, 2.28963728064692451092e-01, 1.33810918536787660377e-02)
_LG_V = (1.0, 2.45597793713041134822e+00, 2.12848976379893395361e+00,
         7.69285150456672783825e-01, 1.04222645593369134254e-01, 3.21709242282423911810e-03)
_LG_S = (-7.72156649015328655494e-02, 2.14982415960608852501e-01, 3.25778796408930981787e-01,
         1.46350472652464452805e-01, 2.66422703033638609560e-02, 1.84028451407337715652e-03,
         3.19475326584100867617e-05)
_LG_R = (1.0, 1.39200533467621045958e+00, 7.21935547567138069525e-01, 1.71933865632803078993e-01,
         1.86459191715652901344e-02, 7.77942496381893596434e-04, 7.32668430744625636189e-06)
_LG_W = (8.33333333333329678849e-02, -2.77777777728775536470e-03, 7.93650558643019558500e-04,
         -5.95187557450339963135e-04, 8.36339918996282139126e-04, -1.63092934096575273989e-03)
_LG_W0 = 4.18938533204672725052e-01


def _lgamma_near_two(z: Array) -> Array:
    """log(gamma(x)) for 0 < x < 2, by the three fits round its zeros at 1 and 2 and its minimum."""
    low = z <= 0.9
    x = np.where(low, z + 1.0, z)  # lgamma(z) = lgamma(z + 1) - log(z)
    edge = np.where(low, z, z - 1.0)  # x - 1 without rounding
    above = np.where(low, 1.0 - z, 2.0 - z)  # 2 - x
    zz = above * above
    at_two = above * _poly(zz, _LG_A_EVEN) + zz * _poly(zz, _LG_A_ODD) - 0.5 * above
    y = edge - (_LG_MIN - 1.0)
    poly = _poly(y, _LG_T)
    at_minimum = _LG_MIN_VALUE - (_LG_MIN_TAIL - y * (y * poly))
    at_one = edge * _poly(edge, _LG_U) / _poly(edge, _LG_V) - 0.5 * edge + 0.0  # never -0.0
    r = np.where(x >= 1.7316, at_two, np.where(x >= 1.2316, at_minimum, at_one))
    return np.where(low, r - np.log(np.where(low, z, 1.0)), r)


def _lgamma_positive(x: Array) -> Array:
    """log(gamma(x)) for x > 0."""
    out = np.empty_like(x)
    small, big = x < 2.0, x >= 8.0
    middle = ~(small | big)
    if small.any():
        out[small] = _lgamma_near_two(x[small])
    if middle.any():
        v = x[middle]
        i = np.floor(v)
        y = v - i
        r = 0.5 * y + y * _poly(y, _LG_S) / _poly(y, _LG_R)
        z = np.ones_like(y)
        for k in range(2, 7):
            z *= np.where(i > k, y + k, 1.0)
        out[middle] = r + np.log(z)
    if big.any():
        v = x[big]
        z = 1.0 / v
        w = _LG_W0 + z * _poly(z * z, _LG_W)
        out[big] = np.where(
            v < 1e17, (v - 0.5) * (np.log(v) - 1.0) + w, v * (np.log(v) - 1.0)
        )
        out[big & np.isinf(x)] = np.inf
    return out


def lgamma(x: Array) -> Array:
    """log(abs(gamma(x))); infinite at 0 and the negative integers."""
    v = as_double(x)
    flat = np.ravel(v)
    out = np.full_like(flat, np.inf)
    out[np.isnan(flat)] = np.nan
    positive = flat > 0
    out[positive] = _lgamma_positive(flat[positive])
    negative = (flat < 0) & (flat != np.floor(flat))
    if negative.any():
        a = -flat[negative]
        out[negative] = np.log(np.pi / np.abs(a * _sin_pi(a))) - _lgamma_positive(a)
    return out.reshape(v.shape).astype(x.dtype, copy=False)


def _sin_pi(x: Array) -> Array:
    """sin(pi x) with the argument reduced exactly."""
    r = np.fmod(x, 2.0)
    size = np.abs(r)
    size = np.where(size > 1.5, size - 2.0, np.where(size > 0.5, 1.0 - size, size))
    return as_array(np.sin(np.pi * np.copysign(size, size * r)))


def _cos_pi(x: Array) -> Array:
    return _sin_pi(x + 0.5)


_DIGAMMA = (8.33333333333333333333e-2, -8.33333333333333333333e-3, 3.96825396825396825397e-3,
            -4.16666666666666666667e-3, 7.57575757575757575758e-3, -2.10927960927960927961e-2,
            8.33333333333333333333e-2)


def digamma(x: Array) -> Array:
    """The logarithmic derivative of gamma: -inf at 0 (inf at -0), NaN at the negative integers."""
    v = as_double(x)
    negative = v < 0
    y = np.where(negative, 1.0 - v, v)
    total = np.zeros_like(y)
    z = np.where(y > 0, y, 1.0)
    for _ in range(10):
        below = z < 10.0
        total = np.where(below, total - 1.0 / z, total)
        z = np.where(below, z + 1.0, z)
    s = 1.0 / (z * z)
    result = total + np.log(z) - 0.5 / z - s * _poly(s, _DIGAMMA)
    reflected = result - np.pi * _cos_pi(v) / _sin_pi(v)
    result = np.where(negative, np.where(v == np.floor(v), np.nan, reflected), result)
    result = np.where(v == 0, np.copysign(np.inf, -v), result)
    result = np.where(np.isnan(v), v, result)
    return result.astype(x.dtype, copy=False)
