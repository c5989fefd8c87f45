"""Elementwise operators: unary, binary, compare, ternary and cast.

They broadcast implicitly (NumPy's rule) and take inputs of one dtype. The reverse walk sums a
gradient down to its input's shape, so no rule here mentions broadcasting.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .. import dtypes
from ..dim import DimEnv
from ..graph import OPERATORS
from ..op import (
    FUNCTION,
    LIGHT,
    LONG,
    QUOTIENT,
    SERIES,
    Attrs,
    Op,
    VjpRule,
    get,
    register,
)
from ..rounding import EXACT, ROUNDED, SUMMED, Rounding
from ..types import TensorType, Type
from ._rules import binary_rule, cast, ops, rounded_once, select, unary_rule, zeros
from ._types import (
    ANY,
    BITS,
    BOOL,
    COMPLEX,
    EVERY,
    FIELD,
    FLOATS,
    INTEGERS,
    NUMBERS,
    RING,
    Types,
    broadcast_shapes,
    elementwise_rule,
    fail,
    require_one_dtype,
)

_INTEGER = "integer result"
_BOOL = "bool result"
_POSITIVE = (0.1, 10.0)


def _unary(
    name: str,
    cost: int,
    rounding: Rounding,
    allowed: frozenset[dtypes.DType],
    vjp: VjpRule | None = None,
    *,
    result: dtypes.DType | None = None,
    domain: tuple[float, float] = (-10.0, 10.0),
    nondifferentiable: str = "",
    doc: str = "",
) -> None:
    register(
        Op(
            name, "unary", elementwise_rule(name, allowed, result), vjp, arity=1,
            domain=domain, nondifferentiable=nondifferentiable, doc=doc or f"{name}(x).",
            cost=cost, rounding=rounding, takes_complex=not COMPLEX.isdisjoint(allowed),
        )
    )


def _binary(
    name: str,
    cost: int,
    rounding: Rounding,
    allowed: frozenset[dtypes.DType],
    vjp: VjpRule | None = None,
    *,
    family: str = "binary",
    divides: bool = False,
    result: dtypes.DType | None = None,
    domain: tuple[float, float] = (-10.0, 10.0),
    nondifferentiable: str = "",
    doc: str,
) -> None:
    register(
        Op(
            name, family, elementwise_rule(name, allowed, result), vjp, arity=2,
            divides=divides, domain=domain, nondifferentiable=nondifferentiable, doc=doc,
            cost=cost, rounding=rounding, takes_complex=not COMPLEX.isdisjoint(allowed),
        )
    )


def _zero(g: Any, x: Any, y: Any) -> Any:
    return zeros(x)


_flat = unary_rule(_zero)  # piecewise constant: torch's gradient is 0, not an error


# --- unary, any number -----------------------------------------------------------------------

_unary("neg", LIGHT, EXACT, RING, unary_rule(lambda g, x, y: -g), doc="-x; integers wrap.")
_unary(
    "abs", LIGHT, EXACT, NUMBERS, unary_rule(lambda g, x, y: g * ops.sign(x)),
    doc="|x|; gradient 0 at 0; the most negative integer stays.",
)
_unary("sign", LIGHT, EXACT, NUMBERS, _flat, doc="-1, 0 or 1; 0 for NaN, as torch.")
_unary("square", LIGHT, ROUNDED, RING, unary_rule(lambda g, x, y: g * (x * 2.0)), doc="x * x.")
_unary(
    "relu", LIGHT, EXACT, NUMBERS, unary_rule(lambda g, x, y: select(ops.le(y, 0.0), 0.0, g)),
    doc="max(x, 0); gradient 0 at 0; NaN passes.",
)

# --- unary, float only -----------------------------------------------------------------------

_LOG2, _LOG10 = math.log(2.0), math.log(10.0)
_TWO_OVER_SQRT_PI = 2.0 / math.sqrt(math.pi)


def _trigamma(x: Any) -> Any:
    """The derivative of digamma: reflection, six steps of recurrence, asymptotic series.

    The method of torch's `trigamma` (aten/src/ATen/native/Math.h), from Cephes.
    """
    reflect = ops.lt(x, 0.5)
    z = select(reflect, 1.0 - x, x)
    total = zeros(x)
    for _ in range(6):
        total = total + ops.reciprocal(z * z)
        z = z + 1.0
    i = ops.reciprocal(z * z)
    series = i * (1.0 / 6.0 - i * (1.0 / 30.0 - i * (1.0 / 42.0))) + ops.reciprocal(z * 2.0)
    total = total + (series + 1.0) / z
    sine = ops.sin(x * math.pi)
    return ops.where(reflect, math.pi**2 / (sine * sine) - total, total)


def _acosh_gradient(g: Any, x: Any, y: Any) -> Any:
    if x.type.dtype.is_complex:  # two roots: the one of their product has another branch
        return g * (ops.rsqrt(x - 1.0) * ops.rsqrt(x + 1.0))
    return g * ops.rsqrt(x * x - 1.0)


_unary(
    "exp", FUNCTION, ROUNDED, FIELD, unary_rule(lambda g, x, y: g * y), domain=(-5.0, 5.0),
    doc="e ** x.",
)
_unary(
    "exp2", FUNCTION, ROUNDED, FIELD, unary_rule(lambda g, x, y: g * y * _LOG2), domain=(-5.0, 5.0),
    doc="2 ** x.",
)
_unary(
    "expm1", LONG, ROUNDED, FIELD, unary_rule(lambda g, x, y: g * (y + 1.0)), domain=(-5.0, 5.0),
    doc="e ** x - 1, accurate near 0.",
)
_unary(
    "log", FUNCTION, ROUNDED, FIELD, unary_rule(lambda g, x, y: g / x), domain=_POSITIVE,
    doc="Natural logarithm.",
)
_unary(
    "log2", FUNCTION, ROUNDED, FIELD, unary_rule(lambda g, x, y: g / (x * _LOG2)), domain=_POSITIVE,
)
_unary(
    "log10", FUNCTION, ROUNDED, FIELD, unary_rule(lambda g, x, y: g / (x * _LOG10)),
    domain=_POSITIVE,
)
_unary(
    "log1p", LONG, ROUNDED, FIELD, unary_rule(lambda g, x, y: g / (x + 1.0)), domain=(-0.9, 10.0),
    doc="log(1 + x), accurate near 0.",
)
_unary(
    "sqrt", QUOTIENT, ROUNDED, FIELD, unary_rule(lambda g, x, y: g / (y * 2.0)), domain=_POSITIVE,
    doc="Square root; gradient inf at 0, as torch.",
)
_unary(
    "rsqrt", QUOTIENT, ROUNDED, FIELD, unary_rule(lambda g, x, y: g * -0.5 * (y * y * y)),
    domain=_POSITIVE, doc="1 / sqrt(x).",
)
_unary(
    "reciprocal", QUOTIENT, ROUNDED, FIELD, unary_rule(lambda g, x, y: -g * (y * y)),
    domain=_POSITIVE, doc="1 / x.",
)
_unary("sin", FUNCTION, ROUNDED, FIELD, unary_rule(lambda g, x, y: g * ops.cos(x)))
_unary("cos", FUNCTION, ROUNDED, FIELD, unary_rule(lambda g, x, y: g * -ops.sin(x)))
_unary(
    "tan", LONG, ROUNDED, FIELD, unary_rule(lambda g, x, y: g * (y * y + 1.0)), domain=(-1.4, 1.4),
)
_unary(
    "asin", LONG, ROUNDED, FIELD, unary_rule(lambda g, x, y: g * ops.rsqrt(1.0 - x * x)),
    domain=(-0.95, 0.95),
)
_unary(
    "acos", LONG, ROUNDED, FIELD, unary_rule(lambda g, x, y: g * -ops.rsqrt(1.0 - x * x)),
    domain=(-0.95, 0.95),
)
_unary("atan", LONG, ROUNDED, FIELD, unary_rule(lambda g, x, y: g / (x * x + 1.0)))
_unary(
    "sinh", LONG, ROUNDED, FIELD, unary_rule(lambda g, x, y: g * ops.cosh(x)), domain=(-5.0, 5.0),
)
_unary(
    "cosh", LONG, ROUNDED, FIELD, unary_rule(lambda g, x, y: g * ops.sinh(x)), domain=(-5.0, 5.0),
)
def _sigmoid_gradient(g: Any, x: Any, y: Any) -> Any:
    if g.type.dtype is dtypes.f16:  # of bfloat16 alone, torch computes it in float32
        return g * (1.0 - y) * y
    return rounded_once(lambda g, y: g * ((1.0 - y) * y), g, y)


_unary(
    "tanh", FUNCTION, ROUNDED, FIELD,
    unary_rule(lambda g, x, y: rounded_once(lambda g, y: g * (1.0 - y * y), g, y)),
)
_unary("asinh", LONG, ROUNDED, FIELD, unary_rule(lambda g, x, y: g * ops.rsqrt(x * x + 1.0)))
_unary("acosh", LONG, ROUNDED, FIELD, unary_rule(_acosh_gradient), domain=(1.1, 10.0))
_unary(
    "atanh", LONG, ROUNDED, FIELD, unary_rule(lambda g, x, y: g / (1.0 - x * x)),
    domain=(-0.95, 0.95),
)
_unary(
    "erf", FUNCTION, ROUNDED, FLOATS,
    unary_rule(lambda g, x, y: g * (ops.exp(-(x * x)) * _TWO_OVER_SQRT_PI)), domain=(-4.0, 4.0),
)
_unary(
    "erfc", LONG, ROUNDED, FLOATS,
    unary_rule(lambda g, x, y: g * (ops.exp(-(x * x)) * -_TWO_OVER_SQRT_PI)), domain=(-4.0, 4.0),
    doc="1 - erf(x), accurate for large x.",
)
_unary(
    "erfinv", SERIES, ROUNDED, FLOATS,
    unary_rule(lambda g, x, y: g * (ops.exp(y * y) / _TWO_OVER_SQRT_PI)), domain=(-0.95, 0.95),
    doc="The inverse of erf; inf at 1, NaN beyond.",
)
_unary(
    "lgamma", SERIES, SUMMED, FLOATS, unary_rule(lambda g, x, y: g * ops.digamma(x)),
    domain=_POSITIVE, doc="log |gamma(x)|.",
)
_unary(
    "digamma", SERIES, SUMMED, FLOATS, unary_rule(lambda g, x, y: g * _trigamma(x)),
    domain=_POSITIVE, doc="The derivative of lgamma.",
)
_unary(
    "sigmoid", FUNCTION, ROUNDED, FIELD,
    unary_rule(_sigmoid_gradient),
    doc="1 / (1 + exp(-x)).",
)

# --- unary, rounding and tests ---------------------------------------------------------------

_unary("floor", LIGHT, EXACT, NUMBERS, _flat, doc="Rounds down; integers stay.")
_unary("ceil", LIGHT, EXACT, NUMBERS, _flat, doc="Rounds up; integers stay.")
_unary("round", LIGHT, EXACT, NUMBERS, _flat, doc="Rounds to nearest, half to even; integers stay.")
_unary("trunc", LIGHT, EXACT, NUMBERS, _flat, doc="Rounds toward 0; integers stay.")
_TESTS = {
    "isnan": "True where x is NaN.",
    "isinf": "True where x is inf or -inf.",
    "isfinite": "True where x is neither NaN nor infinite.",
    "logical_not": "True where x is 0 or False.",
}
for _name, _doc in _TESTS.items():
    _unary(_name, LIGHT, EXACT, EVERY, result=dtypes.bool_, nondifferentiable=_BOOL, doc=_doc)
_unary("bitwise_not", LIGHT, EXACT, BITS, nondifferentiable=_INTEGER, doc="~x; not x for bool.")

# --- binary ----------------------------------------------------------------------------------

_binary(
    "add", LIGHT, ROUNDED, RING, binary_rule(lambda g, a, b, y: g, lambda g, a, b, y: g),
    doc="a + b.",
)
_binary(
    "sub", LIGHT, ROUNDED, RING, binary_rule(lambda g, a, b, y: g, lambda g, a, b, y: -g),
    doc="a - b.",
)
_binary(
    "mul", LIGHT, ROUNDED, RING, binary_rule(lambda g, a, b, y: g * b, lambda g, a, b, y: g * a),
    doc="a * b.",
)
_binary(
    "div", QUOTIENT, ROUNDED, FIELD,
    binary_rule(lambda g, a, b, y: g / b, lambda g, a, b, y: -g * (a / b / b)), domain=(0.5, 10.0),
    doc="a / b, true division; integers are cast first.",
)
_flat_both = binary_rule(lambda g, a, b, y: zeros(a), lambda g, a, b, y: zeros(b))
_binary(
    "floor_divide", FUNCTION, ROUNDED, NUMBERS, _flat_both, divides=True, domain=(0.5, 10.0),
    doc="floor(a / b); an integer b of 0 raises; gradients 0.",
)
_binary(
    "trunc_divide", FUNCTION, ROUNDED, NUMBERS, _flat_both, divides=True, domain=(0.5, 10.0),
    doc="trunc(a / b); an integer b of 0 raises; gradients 0.",
)
_binary(
    "remainder", FUNCTION, ROUNDED, NUMBERS,
    binary_rule(lambda g, a, b, y: g, lambda g, a, b, y: -g * ops.floor_divide(a, b)),
    divides=True, domain=(0.5, 10.0),
    doc="a - b * floor(a / b): the sign of b; an integer b of 0 raises.",
)
_binary(
    "fmod", FUNCTION, ROUNDED, NUMBERS,
    binary_rule(lambda g, a, b, y: g, lambda g, a, b, y: -g * ops.trunc(a / b)),
    divides=True, domain=(0.5, 10.0),
    doc="a - b * trunc(a / b): the sign of a; an integer b of 0 raises.",
)


def _pow_base(g: Any, a: Any, b: Any, y: Any) -> Any:
    return select(ops.eq(b, 0.0), 0.0, g * (b * ops.pow(a, b - 1.0)))


def _pow_exponent(g: Any, a: Any, b: Any, y: Any) -> Any:
    # 0 ** b is constant for b > 0, and its log(0) must not make NaN
    flat = ops.logical_and(ops.eq(a, 0.0), ops.ge(cast(b, b.type.dtype.real), 0.0))
    return g * select(flat, 0.0, y * ops.log(a))


_binary(
    "pow", LONG, ROUNDED, RING, binary_rule(_pow_base, _pow_exponent), domain=(0.1, 4.0),
    doc="a ** b; integers: a negative b gives 0, or 1 and -1 for those bases.",
)


def _extremum_rule(loses: str) -> VjpRule:
    """Ties split; NaN compares false, so both sides get the gradient, as torch."""
    other = {"lt": "gt", "gt": "lt"}[loses]

    def side(mine: str) -> Any:
        def gradient(g: Any, a: Any, b: Any, y: Any) -> Any:
            shared = ops.where(ops.eq(a, b), g * 0.5, g)
            return select(getattr(ops, mine)(a, b), 0.0, shared)

        return gradient

    return binary_rule(side(loses), side(other))


_NAN = "NaN passes; a tie splits the gradient."
_binary(
    "maximum", LIGHT, EXACT, NUMBERS, _extremum_rule("lt"), doc=f"The larger of a and b; {_NAN}",
)
_binary(
    "minimum", LIGHT, EXACT, NUMBERS, _extremum_rule("gt"), doc=f"The smaller of a and b; {_NAN}",
)


def _ignoring_nan_rule(keeps: str) -> VjpRule:
    def mine(a: Any, b: Any) -> Any:
        return ops.logical_or(getattr(ops, keeps)(a, b), ops.isnan(b))

    return binary_rule(
        lambda g, a, b, y: select(mine(a, b), g, 0.0),
        lambda g, a, b, y: select(mine(a, b), 0.0, g),
    )


_binary(
    "fmax", LIGHT, EXACT, NUMBERS, _ignoring_nan_rule("ge"),
    doc="The larger; the other one where one is NaN.",
)
_binary(
    "fmin", LIGHT, EXACT, NUMBERS, _ignoring_nan_rule("le"),
    doc="The smaller; the other one where one is NaN.",
)


def _atan2_scale(a: Any, b: Any) -> Any:
    squares = a * a + b * b
    return select(ops.eq(squares, 0.0), 0.0, ops.reciprocal(squares))


_binary(
    "atan2", LONG, ROUNDED, FLOATS,
    binary_rule(
        lambda g, a, b, y: g * (b * _atan2_scale(a, b)),
        lambda g, a, b, y: g * (-a * _atan2_scale(a, b)),
    ),
    doc="The angle of the point (b, a), in radians; gradient 0 at the origin.",
)
_binary(
    "copysign", LIGHT, EXACT, FLOATS,
    binary_rule(
        lambda g, a, b, y: g * select(ops.eq(a, 0.0), 0.0, y / a), lambda g, a, b, y: zeros(b)
    ),
    doc="|a| with the sign of b (of -0.0 too).",
)
_binary(
    "hypot", LONG, ROUNDED, FLOATS,
    binary_rule(lambda g, a, b, y: g * (a / y), lambda g, a, b, y: g * (b / y)),
    doc="sqrt(a*a + b*b) without overflow.",
)

for _name, _sign in (("and", "&"), ("or", "|"), ("xor", "^")):
    _binary(f"bitwise_{_name}", LIGHT, EXACT, BITS, nondifferentiable=_INTEGER, doc=f"a {_sign} b.")
    _binary(
        f"logical_{_name}", LIGHT, EXACT, BOOL, nondifferentiable=_BOOL,
        doc=f"a {_name} b, of bools.",
    )
_binary(
    "shift_left", LIGHT, EXACT, INTEGERS, nondifferentiable=_INTEGER, domain=(0.0, 7.0),
    doc="a << b; 0 where b is negative or at least the width.",
)
_binary(
    "shift_right", LIGHT, EXACT, INTEGERS, nondifferentiable=_INTEGER, domain=(0.0, 7.0),
    doc="a >> b, arithmetic; the sign's fill where b is negative or at least the width.",
)

# --- compare ---------------------------------------------------------------------------------

for _name, _sign in (
    ("eq", "=="), ("ne", "!="), ("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">=")
):
    _binary(
        _name, LIGHT, EXACT, EVERY if _name in ("eq", "ne") else ANY, family="compare",
        result=dtypes.bool_, nondifferentiable=_BOOL,
        doc=f"a {_sign} b; NaN is unequal to everything.",
    )

# --- ternary ---------------------------------------------------------------------------------


def _where_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    condition, a, b = types
    if condition.dtype is not dtypes.bool_:
        fail(f"where expected condition to be a boolean tensor, but got {condition.dtype}")
    dtype = require_one_dtype("where", (a, b))
    return TensorType(dtype, broadcast_shapes(env, condition.shape, a.shape, b.shape))


def _where_vjp(grads: Any, inputs: Any, outs: Any, needs: Any) -> Any:
    g, condition = grads[0], inputs[0]
    return (
        None,
        select(condition, g, 0.0) if needs[1] else None,
        select(condition, 0.0, g) if needs[2] else None,
    )


def _clamp_vjp(grads: Any, inputs: Any, outs: Any, needs: Any) -> Any:
    g = grads[0]
    x, low, high = inputs
    gx = glow = ghigh = None
    if needs[0]:
        gx = select(ops.logical_and(ops.ge(x, low), ops.le(x, high)), g, 0.0)
    if needs[1]:
        glow = select(ops.logical_and(ops.lt(x, low), ops.lt(low, high)), g, 0.0)
    if needs[2]:
        ghigh = select(ops.logical_or(ops.gt(x, high), ops.gt(low, high)), g, 0.0)
    return (gx, glow, ghigh)


register(
    Op(
        "where", "ternary", _where_type, _where_vjp, arity=3, cost=LIGHT,
        rounding=EXACT, takes_complex=True, selects=True,
        doc="a where the bool condition holds, else b.",
    )
)
register(
    Op(
        "clamp", "ternary", elementwise_rule("clamp", NUMBERS), _clamp_vjp, arity=3, cost=LIGHT,
        rounding=EXACT, takes_complex=False,
        doc="min(max(x, lo), hi); NaN in x passes; gradient 1 where lo <= x <= hi.",
    )
)

# --- cast ------------------------------------------------------------------------------------


def _cast_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    return TensorType(attrs["dtype"], types[0].shape)


def _cast_vjp(
    grads: Any, inputs: Any, outs: Any, needs: Any, *, dtype: dtypes.DType
) -> Any:
    source = inputs[0].type.dtype
    if not (dtype.differentiable and source.differentiable):
        return (None,)
    return (cast(grads[0], source),)


def _cast_rounding(
    attrs: Mapping[str, Any], sources: Sequence[dtypes.DType], results: Sequence[dtypes.DType]
) -> Rounding:
    source, target = sources[0], results[0]
    return ROUNDED if target.bits < source.bits or not source.is_float else EXACT


register(
    Op(
        "cast", "cast", _cast_type, _cast_vjp, arity=1, attrs=("dtype",), cost=LIGHT,
        rounding=_cast_rounding, takes_complex=True, selects=True,
        doc="x as `dtype`: float to int truncates and wraps; to bool: x != 0 (NaN is True).",
    )
)

OPERATORS.update({_name: get(_name) for _name in ("add", "sub", "mul", "div", "neg")})
