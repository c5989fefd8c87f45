"""Special functions, elementwise; pytorch.org/docs/stable/special.html. Integers become floats."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import graphc
from graphc.frontend import promote
from graphc.frontend.dispatch import apply
from graphc.frontend.errors import located
from graphc.frontend.functions import pointwise as P
from graphc.frontend.functions.arguments import with_out
from graphc.frontend.functions.pointwise_composed import times_log
from graphc.frontend.replayed import replayed
from graphc.frontend.tensor import Tensor
from graphc.ir import ops

_SQRT_HALF = math.sqrt(0.5)


def check_tensor(name: str, *given: Any) -> None:
    """Raise TypeError where no argument is a tensor."""
    if not any(isinstance(value, Tensor) for value in given):
        kinds = ", ".join(type(value).__name__ for value in given)
        raise TypeError(located(
            f"special_{name}() received an invalid combination of arguments - got ({kinds}), but "
            "one of them must be a Tensor"
        ))


def _unary(name: str) -> Callable[..., Tensor]:
    record = getattr(ops, name)

    def function(input: Tensor) -> Tensor:
        result: Tensor = promote.unary(record, input)
        return result

    function.__name__ = name
    function.__doc__ = record.doc
    return with_out(function)


def _binary(name: str) -> Callable[..., Tensor]:
    record = getattr(ops, name)

    def function(input: Any, other: Any) -> Tensor:
        check_tensor(name, input, other)
        result: Tensor = promote.binary(record, input, other, to_float=True)
        return result

    function.__name__ = name
    function.__doc__ = record.doc
    return with_out(function)


i0, i0e, i1, i1e = (_unary(name) for name in ("i0", "i0e", "i1", "i1e"))
erfcx, ndtri, log_ndtr = (_unary(name) for name in ("erfcx", "ndtri", "log_ndtr"))
bessel_j0, bessel_j1 = _unary("bessel_j0"), _unary("bessel_j1")
bessel_y0, bessel_y1 = _unary("bessel_y0"), _unary("bessel_y1")
modified_bessel_i0, modified_bessel_i1 = i0, i1
modified_bessel_k0, modified_bessel_k1 = _unary("modified_bessel_k0"), _unary("modified_bessel_k1")
scaled_modified_bessel_k0 = _unary("scaled_modified_bessel_k0")
scaled_modified_bessel_k1 = _unary("scaled_modified_bessel_k1")
airy_ai = _unary("airy_ai")
def _tensors_only(name: str) -> Callable[..., Tensor]:
    function = _binary(name)

    def checked(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
        P.require_tensors(name, input, other)
        return function(input, other, out=out)

    checked.__name__ = name
    checked.__doc__ = function.__doc__
    return checked


zeta, gammainc, gammaincc = _binary("zeta"), _tensors_only("gammainc"), _tensors_only("gammaincc")


def _float(x: Any) -> Tensor:
    if x.dtype.is_float:
        return x
    return promote.cast(x, promote.get_default_dtype())


@with_out
def spherical_bessel_j0(input: Tensor) -> Tensor:
    """sin(x) / x, 1 at 0 and 0 at the infinities."""
    x = _float(input)
    zero, far = x == 0, x.isinf()
    safe = graphc.where(zero | far, 1.0, x)
    return graphc.where(zero, 1.0, graphc.where(far, 0.0, safe.sin() / safe))


@with_out
@replayed
def ndtr(input: Tensor) -> Tensor:
    """The standard normal distribution function."""
    return graphc.erfc(_float(input) * -_SQRT_HALF) * 0.5


@with_out
@replayed
def entr(input: Tensor) -> Tensor:
    """-x log(x); 0 at 0, -inf below."""
    x = _float(input)
    inside = graphc.where(x > 0, x, 1.0)
    # the root is 0 at 0 and infinitely steep there, as -x log(x) is; below, both have no gradient
    found = graphc.where(x > 0, -x * inside.log(), graphc.where(x == 0, x.sqrt(), -math.inf))
    return graphc.where(x.isnan(), x, found)


@with_out
@replayed
def xlog1py(input: Any, other: Any) -> Tensor:
    """x log(1 + y), 0 where x is 0 (unless y is NaN); its slope there is log(1 + y)."""
    check_tensor("xlog1py", input, other)
    x, y = promote.operands(input, other)
    x, y = _float(x), _float(y)
    return times_log(x, y, (y <= -1) | (y == math.inf), 0.0, graphc.log1p)


@with_out
def multigammaln(input: Tensor, p: int) -> Tensor:
    """The logarithm of the multivariate gamma function of dimension p."""
    if p < 1:
        raise RuntimeError(located("p has to be greater than or equal to 1"))
    x = _float(input)
    shifts = graphc.arange(p, dtype=x.dtype) * -0.5
    constant = p * (p - 1) / 4 * math.log(math.pi)
    return (x.unsqueeze(-1) + shifts).lgamma().sum(-1) + constant


@with_out
def polygamma(n: Any, input: Any) -> Tensor:
    """The n-th derivative of digamma."""
    if isinstance(n, Tensor):  # the Tensor method has them the other way round
        n, input = input, n
    if n < 0:
        raise RuntimeError(located("polygamma(n, x) does not support negative n."))
    if n == 0:
        return graphc.digamma(input)
    found: Tensor = apply(ops.polygamma, _float(input), order=int(n))
    return found


@with_out
def softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """torch.softmax."""
    return graphc.softmax(input, dim, dtype=dtype)


@with_out
def log_softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """torch.log_softmax."""
    return graphc.log_softmax(input, dim, dtype=dtype)
