"""Special functions that have a kernel of their own: Bessel, Airy, incomplete gamma, zeta, ..."""

from __future__ import annotations

import math
from typing import Any

from ..op import Op, VjpRule, register
from ..rounding import ROUNDED
from ._rules import ops, select, unary_rule
from ._types import FLOATS, elementwise_rule, fail

_NO_RULE = "torch has no gradient for it either"


def _unary(name: str, rule: VjpRule | None, doc: str, domain: tuple[float, float]) -> None:
    register(
        Op(
            name, "routine", elementwise_rule(name, FLOATS), rule, arity=1, domain=domain,
            nondifferentiable="" if rule else _NO_RULE, doc=doc,
            cost=None, rounding=ROUNDED, takes_complex=False, in_its_order=True,
        )
    )


def _over(y: Any, x: Any) -> Any:
    """y / x for an odd y with slope 1/2 at 0."""
    zero = ops.eq(x, 0.0)
    return select(zero, 0.5, y / select(zero, 1.0, x))


def _log_ndtr(g: Any, x: Any, y: Any) -> Any:
    return g * (math.sqrt(2.0 / math.pi) / ops.erfcx(x * -math.sqrt(0.5)))


_WIDE, _POSITIVE = (-10.0, 10.0), (0.1, 10.0)

_unary("i0", unary_rule(lambda g, x, y: g * ops.i1(x)),
       "The modified Bessel function of the first kind, of order 0.", _WIDE)
_unary("i0e", unary_rule(lambda g, x, y: g * (ops.i1e(x) - ops.sign(x) * y)),
       "exp(-|x|) i0(x).", _WIDE)
_unary("i1", unary_rule(lambda g, x, y: g * (ops.i0(x) - _over(y, x))),
       "The modified Bessel function of the first kind, of order 1.", _WIDE)
_unary("i1e", unary_rule(lambda g, x, y: g * (ops.i0e(x) - ops.sign(x) * y - _over(y, x))),
       "exp(-|x|) i1(x).", _WIDE)
_unary("erfcx", unary_rule(lambda g, x, y: g * (x * y * 2.0 - 2.0 / math.sqrt(math.pi))),
       "exp(x * x) erfc(x).", (-4.0, 10.0))
_unary("ndtri", unary_rule(lambda g, x, y: g * (ops.exp(y * y * 0.5) * math.sqrt(2.0 * math.pi))),
       "The quantile of the standard normal distribution.", (0.01, 0.99))
_unary("log_ndtr", unary_rule(_log_ndtr),
       "The logarithm of the standard normal distribution function.", _WIDE)

for _name, _doc in {
    "bessel_j0": "The Bessel function of the first kind, of order 0.",
    "bessel_j1": "The Bessel function of the first kind, of order 1.",
    "bessel_y0": "The Bessel function of the second kind, of order 0.",
    "bessel_y1": "The Bessel function of the second kind, of order 1.",
    "modified_bessel_k0": "The modified Bessel function of the second kind, of order 0.",
    "modified_bessel_k1": "The modified Bessel function of the second kind, of order 1.",
    "scaled_modified_bessel_k0": "exp(x) modified_bessel_k0(x).",
    "scaled_modified_bessel_k1": "exp(x) modified_bessel_k1(x).",
    "airy_ai": "The Airy function Ai.",
}.items():
    _unary(_name, None, _doc, _POSITIVE)


def _polygamma_vjp(grads: Any, inputs: Any, outs: Any, needs: Any, *, order: int) -> Any:
    return (grads[0] * ops.polygamma(inputs[0], order=order + 1),)


def _zeta_vjp(grads: Any, inputs: Any, outs: Any, needs: Any) -> Any:
    if needs[0]:
        fail("the derivative for 'self' is not implemented: zeta", NotImplementedError)
    x, q = inputs
    return (None, grads[0] * (-x * ops.zeta(x + 1.0, q)))


def _gamma_vjp(name: str, sign: float) -> VjpRule:
    def vjp(grads: Any, inputs: Any, outs: Any, needs: Any) -> Any:
        if needs[0]:
            fail(f"the derivative for 'self' is not implemented: {name}", NotImplementedError)
        a, x = inputs
        density = ops.exp((a - 1.0) * ops.log(x) - x - ops.lgamma(a))
        return (None, grads[0] * density * sign)

    return vjp


register(Op("polygamma", "routine", elementwise_rule("polygamma", FLOATS), _polygamma_vjp, arity=1,
            attrs=("order",), domain=_POSITIVE, doc="The derivative of digamma of this order.",
            cost=None, rounding=ROUNDED, takes_complex=False, in_its_order=True))
register(Op("zeta", "routine", elementwise_rule("zeta", FLOATS), _zeta_vjp, arity=2,
            domain=(1.5, 10.0), doc="The Hurwitz zeta function.",
            cost=None, rounding=ROUNDED, takes_complex=False, in_its_order=True))
register(Op("gammainc", "routine", elementwise_rule("gammainc", FLOATS),
            _gamma_vjp("gammainc", 1.0), arity=2, domain=_POSITIVE,
            doc="The regularised lower incomplete gamma function of (a, x).",
            cost=None, rounding=ROUNDED, takes_complex=False, in_its_order=True))
register(Op("gammaincc", "routine", elementwise_rule("gammaincc", FLOATS),
            _gamma_vjp("gammaincc", -1.0), arity=2, domain=_POSITIVE,
            doc="The regularised upper incomplete gamma function of (a, x).",
            cost=None, rounding=ROUNDED, takes_complex=False, in_its_order=True))
