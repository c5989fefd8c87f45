"""The constants of torch's normal numbers on the CPU: Box and Muller's transform, with the Cephes
library's polynomials for the logarithm, sine and cosine of f32 (design.md 13)."""

from __future__ import annotations

import struct


def _single(value: float) -> float:
    """The nearest f32."""
    (found,) = struct.unpack("<f", struct.pack("<f", value))
    return float(found)


PI = 3.141592653589793
TWO_PI = _single(2.0 * PI)

LOG_P = tuple(map(_single, (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
    -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)))
LOG_Q1, LOG_Q2 = _single(-2.12194440e-4), 0.693359375
SQRT_HALF = _single(0.707106781186547524)

DP = tuple(map(_single, (
    -0.78515625, -2.4187564849853515625e-4, -3.77489497744594108e-8,
)))
COS_P = tuple(map(_single, (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)))
SIN_P = tuple(map(_single, (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)))
FOUR_OVER_PI = _single(1.27323954473516)
