"""Orthogonal polynomials, by their three-term recurrences (Abramowitz and Stegun 22.7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.frontend import promote
from graphc.frontend.dispatch import constant
from graphc.frontend.functions.arguments import with_out
from graphc.frontend.tensor import Tensor, concrete

from .functions import check_tensor

Array = np.ndarray[Any, Any]
# (first of degree 1 from x, next from (k, x, P_k, P_k-1))
Recurrence = tuple[Callable[[Array], Array], Callable[[int, Array, Array, Array], Array]]

_RECURRENCES: dict[str, Recurrence] = {
    "chebyshev_polynomial_t": (lambda x: x, lambda k, x, a, b: 2 * x * a - b),
    "chebyshev_polynomial_u": (lambda x: 2 * x, lambda k, x, a, b: 2 * x * a - b),
    "chebyshev_polynomial_v": (lambda x: 2 * x - 1, lambda k, x, a, b: 2 * x * a - b),
    "chebyshev_polynomial_w": (lambda x: 2 * x + 1, lambda k, x, a, b: 2 * x * a - b),
    "hermite_polynomial_h": (lambda x: 2 * x, lambda k, x, a, b: 2 * x * a - 2 * k * b),
    "hermite_polynomial_he": (lambda x: x, lambda k, x, a, b: x * a - k * b),
    "laguerre_polynomial_l": (
        lambda x: 1 - x, lambda k, x, a, b: ((2 * k + 1 - x) * a - k * b) / (k + 1)
    ),
    "legendre_polynomial_p": (
        lambda x: x, lambda k, x, a, b: ((2 * k + 1) * x * a - k * b) / (k + 1)
    ),
}


def _evaluate(name: str, x: Array, degree: Array) -> Array:
    first, following = _RECURRENCES[name]
    before, now = np.ones_like(x), first(x)
    out = np.where(degree < 0, 0.0, before)
    for k in range(1, int(degree.max(initial=0)) + 1):
        out = np.where(degree == k, now, out)
        before, now = now, following(k, x, now, before)
    return out


def _polynomial(name: str, shifted: bool) -> Callable[..., Tensor]:
    def function(input: Any, n: Any) -> Tensor:
        check_tensor(function.__name__, input, n)
        found = promote.result_type(*(v for v in (input, n) if isinstance(v, Tensor)))
        dtype = found if found.is_float else promote.get_default_dtype()
        cure = "call it outside the compiled function"
        x, degree = (
            concrete(v, f"{name}()", cure) if isinstance(v, Tensor) else np.asarray(v)
            for v in (input, n)
        )
        wide, order = np.broadcast_arrays(x.astype(np.float64), degree.astype(np.int64))
        wide = 2 * wide - 1 if shifted else wide
        return constant(_evaluate(name, wide, order).astype(dtype.numpy))

    function.__name__ = f"shifted_{name}" if shifted else name
    function.__doc__ = f"The polynomial {function.__name__} of degree n at x."
    return with_out(function)


chebyshev_polynomial_t = _polynomial("chebyshev_polynomial_t", False)
chebyshev_polynomial_u = _polynomial("chebyshev_polynomial_u", False)
chebyshev_polynomial_v = _polynomial("chebyshev_polynomial_v", False)
chebyshev_polynomial_w = _polynomial("chebyshev_polynomial_w", False)
shifted_chebyshev_polynomial_t = _polynomial("chebyshev_polynomial_t", True)
shifted_chebyshev_polynomial_u = _polynomial("chebyshev_polynomial_u", True)
shifted_chebyshev_polynomial_v = _polynomial("chebyshev_polynomial_v", True)
shifted_chebyshev_polynomial_w = _polynomial("chebyshev_polynomial_w", True)
hermite_polynomial_h = _polynomial("hermite_polynomial_h", False)
hermite_polynomial_he = _polynomial("hermite_polynomial_he", False)
laguerre_polynomial_l = _polynomial("laguerre_polynomial_l", False)
legendre_polynomial_p = _polynomial("legendre_polynomial_p", False)
