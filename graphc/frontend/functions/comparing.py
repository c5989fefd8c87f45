"""Whether tensors are equal or close."""

from __future__ import annotations

from typing import Any

from .. import promote
from ..context import local
from ..errors import located
from ..replayed import replayed
from ..tensor import Parameter, Tensor
from ..values import Eager
from . import pointwise as P
from .arguments import shape


@replayed
def isclose(
    input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08,
    equal_nan: bool = False,
) -> Tensor:
    """|input - other| <= atol + rtol * |other|, elementwise."""
    P.require_tensors("isclose", input, other)
    if input.dtype is not other.dtype:
        names = promote._name(input.dtype), promote._name(other.dtype)
        raise RuntimeError(located(f"{names[0]} did not match {names[1]}"))
    if rtol < 0 or atol < 0:
        name, value = ("rtol", rtol) if rtol < 0 else ("atol", atol)
        raise RuntimeError(located(
            f"{name} must be greater than or equal to zero, but got {value}"
        ))
    close = P.eq(input, other)
    if equal_nan and input.dtype.differentiable:
        close = P.logical_or(close, P.logical_and(P.isnan(input), P.isnan(other)))
    if rtol == 0 and atol == 0:
        return close
    x, y = input, other
    if not x.dtype.differentiable:
        wide = promote.get_default_dtype()
        x, y = promote.cast(x, wide), promote.cast(y, wide)
    allowed = P.add(P.abs(P.mul(y, rtol)), atol)
    difference = P.abs(P.sub(x, y))
    near = P.logical_and(P.isfinite(difference), P.le(difference, allowed))
    return P.logical_or(close, near)


def allclose(
    input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08,
    equal_nan: bool = False,
) -> bool:
    """Whether all elements are close."""
    P.require_tensors("allclose", input, other)
    return bool(isclose(input, other, rtol, atol, equal_nan).all())


def equal(input: Tensor, other: Tensor) -> bool:
    """Whether both have one shape and equal elements."""
    if not isinstance(other, Tensor):
        raise TypeError(located(
            f"equal(): argument 'other' (position 2) must be Tensor, not {type(other).__name__}"
        ))
    if shape(input) != shape(other):
        return False
    if _are_arrays(input) and _are_arrays(other):
        a, b = input._graphc_array, other._graphc_array
        if a.dtype == b.dtype:
            return bool((a == b).all())
    return bool(P.eq(input, other).all())


def _are_arrays(x: Any) -> bool:
    """Whether it is NumPy's, and nobody records, counts or watches operators."""
    return (
        type(x) in (Tensor, Parameter) and x._graphc_trace is None and local.trace is None
        and local.counted is None and Eager.prepare is not None and Eager.elsewhere is None
    )


def can_cast(from_: Any, to: Any) -> bool:
    """Whether torch's promotion lets a dtype be cast to another implicitly."""
    rank = {"bool": 0, "uint": 1, "int": 1, "float": 2, "complex": 3}
    return rank[from_.kind] <= rank[to.kind]
