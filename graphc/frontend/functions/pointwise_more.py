"""The less common pointwise functions, made of the common ones."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphc.ir import dtypes, ops

from .. import promote
from ..dispatch import apply, constant
from ..errors import located
from ..tensor import Tensor, concrete
from . import pointwise as P
from . import return_types
from .arguments import shape

sgn = P.sign


def positive(input: Tensor) -> Tensor:
    """The tensor itself. Raises RuntimeError for bool."""
    if input.dtype is dtypes.bool_:
        raise RuntimeError(located("The `+` operator, on a bool tensor is not supported."))
    return input


def real(input: Tensor) -> Tensor:
    """The tensor itself: there are no complex dtypes."""
    return input


def signbit(input: Tensor) -> Tensor:
    """Whether the sign is set, that of -0.0 and NaN too."""
    if not input.dtype.is_float:
        return P.lt(input, 0)
    one = promote.operand(1.0, input.dtype)
    result: Tensor = P.lt(apply(ops.copysign, one, input.detach()), 0)
    return result


def isposinf(input: Tensor) -> Tensor:
    """Whether it is +inf."""
    return P.logical_and(P.isinf(input), P.gt(input, 0))


def isneginf(input: Tensor) -> Tensor:
    """Whether it is -inf."""
    return P.logical_and(P.isinf(input), P.lt(input, 0))


def isreal(input: Tensor) -> Tensor:
    """True: there are no complex dtypes."""
    result: Tensor = apply(ops.full, shape=shape(input), value=True, dtype=dtypes.bool_)
    return result


def ldexp(input: Tensor, other: Tensor) -> Tensor:
    """input * 2 ** other."""
    return P.mul(input, P.pow(2.0, other))  # type: ignore[no-any-return]


def frexp(input: Tensor) -> Any:
    """Mantissa in [0.5, 1) and exponent of two."""
    array = concrete(input, "frexp()", "call it outside the compiled function")
    _, exponent = np.frexp(array)
    powers = constant(exponent.astype(np.int32))
    scale = constant(np.ldexp(np.ones_like(array), -exponent))
    return return_types.frexp(P.mul(input, scale), powers)


def logaddexp2(input: Tensor, other: Tensor) -> Tensor:
    """log2(2 ** a + 2 ** b), stable."""
    ln2 = math.log(2.0)
    return P.div(P.logaddexp(P.mul(input, ln2), P.mul(other, ln2)), ln2)


def angle(input: Tensor) -> Tensor:
    """0, or pi for negative numbers; NaN for NaN."""
    x = input if input.dtype.is_float else promote.cast(input, promote.get_default_dtype())
    turned = P.where(P.lt(x, 0), math.pi, 0.0)
    return P.where(P.isnan(x), x, promote.cast(turned, x.dtype))  # type: ignore[no-any-return]


def _euclid(name: str) -> Any:
    """gcd and lcm: on the host, by NumPy."""
    compute = getattr(np, name)

    def function(input: Tensor, other: Any) -> Tensor:
        a, b = promote.operands(input, other)
        cure = "call it outside the compiled function"
        found = compute(concrete(a, f"{name}()", cure), concrete(b, f"{name}()", cure))
        return constant(found)

    function.__name__ = name
    function.__doc__ = f"Elementwise {name} of integers."
    return function


gcd = _euclid("gcd")
lcm = _euclid("lcm")


def nextafter(input: Tensor, other: Tensor) -> Tensor:
    """The next floating-point number towards other."""
    cure = "call it outside the compiled function"
    a, b = promote.operands(input, other)
    return constant(np.nextafter(concrete(a, "nextafter()", cure), concrete(b, "", cure)))


def renorm(input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """Slices of `dim` scaled down to a p-norm of at most maxnorm."""
    from .arguments import wrap_dim
    from .reduction import vector_norm

    along = wrap_dim(dim, input.ndim)
    others = tuple(d for d in range(input.ndim) if d != along)
    norms = vector_norm(input, p, others, True)
    factor = P.where(P.gt(norms, maxnorm), P.div(maxnorm, P.add(norms, 1e-7)), 1.0)
    return P.mul(input, factor)  # type: ignore[no-any-return]


def apply_(self: Tensor, callable: Any) -> Tensor:
    """Replace each element by callable(element); eager."""
    array = concrete(self, "apply_()", "use tensor functions")
    flat = [callable(value) for value in array.reshape(-1).tolist()]
    found = np.array(flat, array.dtype).reshape(array.shape)
    return self.copy_(constant(found))  # type: ignore[no-any-return]
