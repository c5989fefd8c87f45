"""Algebra that keeps every bit, of NaN, infinities and -0.0 too. What nearly holds is not here.

(x + 0.0 is not x at x = -0.0; x - x is not 0 at NaN; x * 0 is not 0 for floats.)
"""

from __future__ import annotations

import math
from typing import Any

from ... import dtypes
from ...dtypes import DType
from ...op import get
from ...rewrite import Match, Rules, number, numeric, p, wild

RULES = Rules("algebra")

x, y = wild("x"), wild("y")
_INTEGRAL = ("bool", "uint", "int")


def _integral(m: Match) -> bool:
    return m.root.dtype.kind in _INTEGRAL


# --- identities ------------------------------------------------------------------------------


@RULES.add(p.mul(x, number(1)), p.div(x, number(1)), p.pow(x, number(1)))
def times_one(m: Match) -> Any:
    return m.spread(m.x)


@RULES.add(p.add(x, number(-0.0)), p.sub(x, number(0.0)))
def plus_negative_zero(m: Match) -> Any:
    return None if _integral(m) else m.spread(m.x)


@RULES.add(
    p.add(x, number(0)), p.sub(x, number(0)), p.bitwise_or(x, number(0)),
    p.bitwise_xor(x, number(0)), p.shift_left(x, number(0)), p.shift_right(x, number(0)),
)
def plus_integer_zero(m: Match) -> Any:
    return m.spread(m.x) if _integral(m) else None


@RULES.add(p.mul(x, number(0)), p.bitwise_and(x, number(0)))
def times_integer_zero(m: Match) -> Any:
    return m.filled(0) if _integral(m) else None


@RULES.add(p.logical_and(x, number(True)), p.logical_or(x, number(False)))
def logical_identity(m: Match) -> Any:
    return m.spread(m.x)


@RULES.add(p.logical_and(x, number(False)), p.logical_or(x, number(True)))
def logical_absorption(m: Match) -> Any:
    return m.filled(m.root.op.name == "logical_or")


@RULES.add(
    p.maximum(x, x), p.minimum(x, x), p.fmax(x, x), p.fmin(x, x), p.logical_and(x, x),
    p.logical_or(x, x), p.bitwise_and(x, x), p.bitwise_or(x, x),
)
def twice_the_same(m: Match) -> Any:
    return m.x


@RULES.add(p.sub(x, x), p.bitwise_xor(x, x))
def integer_minus_itself(m: Match) -> Any:
    return m.filled(0) if _integral(m) else None


# --- signs -----------------------------------------------------------------------------------


@RULES.add(
    p.neg(p.neg(x)), p.logical_not(p.logical_not(x)), p.bitwise_not(p.bitwise_not(x))
)
def undone(m: Match) -> Any:
    return m.x if m.x.dtype is m.root.dtype else None


@RULES.add(p.abs(p.neg(x)), p.square(p.neg(x)), p.square(p.abs(x)), p.cos(p.neg(x)))
def even_of_sign(m: Match) -> Any:
    # abs of an unsigned number is itself, but its negative wraps
    wraps = m.root.dtype.kind == "uint" and m.root.op.name == "abs"
    return None if wraps else m.root.op(m.x)


@RULES.add(
    p.abs(p.abs(x)), p.relu(p.relu(x)), p.floor(p.floor(x)), p.ceil(p.ceil(x)),
    p.round(p.round(x)), p.trunc(p.trunc(x)), p.sign(p.sign(x)),
)
def idempotent(m: Match) -> Any:
    (inner,) = m.inputs()
    return inner


@RULES.add(p.mul(x, number(-1)), p.div(x, number(-1)))
def times_minus_one(m: Match) -> Any:
    return None if m.root.dtype.kind == "bool" else m.spread(get("neg")(m.x))


@RULES.add(p.add(x, p.neg(y)), p.sub(x, p.neg(y)))
def add_negated(m: Match) -> Any:
    return get("sub" if m.root.op.name == "add" else "add")(m.x, m.y)


@RULES.add(p.add(p.neg(x), y))
def negated_plus(m: Match) -> Any:
    return get("sub")(m.y, m.x)


@RULES.add(p.mul(p.neg(x), p.neg(y)), p.div(p.neg(x), p.neg(y)))
def product_of_negated(m: Match) -> Any:
    if _integral(m) and m.root.op.name == "div":
        return None
    return m.root.op(m.x, m.y)


@RULES.add(p.mul(p.neg(x), numeric("c")), p.div(p.neg(x), numeric("c")))
def negated_times_number(m: Match) -> Any:
    if m.root.dtype.kind == "uint":
        return None
    scalar = m.number("c")
    if m.root.dtype.kind == "int" and int(scalar) == -(2 ** (m.root.dtype.bits - 1)):
        return None
    negated = m.constant(-scalar)
    shaped = negated if m.c.shape == () else get("expand")(negated, shape=m.c.shape)
    return m.root.op(m.x, shaped)


# --- powers and quotients --------------------------------------------------------------------


@RULES.add(p.pow(x, number(2)))
def power_two(m: Match) -> Any:
    return m.spread(get("square")(m.x))


@RULES.add(p.pow(x, number(3)))
def power_three(m: Match) -> Any:
    """Two products, as the operator has it of one exponent; of half precision, rounded once."""
    dtype = m.root.dtype
    if m.root.inputs[1].tensor_type.shape or not (
        dtype.is_integer or (dtype.is_float and dtype.bits > 16)
    ):
        return None
    return get("square")(m.x) * m.x


@RULES.add(p.pow(x, number(0)))
def power_zero(m: Match) -> Any:
    return m.filled(1)


@RULES.add(p.pow(x, number(-1)))
def power_minus_one(m: Match) -> Any:
    return m.spread(get("reciprocal")(m.x)) if m.root.dtype.is_float else None


@RULES.add(p.mul(x, x))
def multiplied_by_itself(m: Match) -> Any:
    return get("square")(m.x) if m.root.dtype.kind != "bool" else None


@RULES.add(p.div(number(1), x))
def one_over(m: Match) -> Any:
    return m.spread(get("reciprocal")(m.x))


def _exact_inverse(value: Any, dtype: DType) -> float | None:
    """1 / value where value is a power of two whose inverse is a normal number of dtype."""
    wide = float(value)
    mantissa, exponent = math.frexp(wide) if math.isfinite(wide) else (0.0, 0)
    limit = {"f16": 14, "bf16": 126, "f32": 126, "f64": 1022}[dtype.name]
    return 1.0 / wide if abs(mantissa) == 0.5 and abs(exponent) < limit else None


@RULES.add(p.div(x, numeric("c")))
def divide_by_power_of_two(m: Match) -> Any:
    inverse = _exact_inverse(m.number("c"), m.root.dtype)
    if inverse is None:
        return None
    return m.spread(get("mul")(m.x, m.constant(inverse)))


@RULES.add(p.add(p.add(x, numeric("a")), numeric("b")), p.mul(p.mul(x, numeric("a")), numeric("b")))
def integer_numbers_together(m: Match) -> Any:
    """(x + a) + b for integers, which wrap: exact."""
    dtype = m.root.dtype
    if dtype.kind not in ("int", "uint"):
        return None
    a, b = int(m.number("a")), int(m.number("b"))
    total = a + b if m.root.op.name == "add" else a * b
    total &= (1 << dtype.bits) - 1
    if dtype.kind == "int" and total >> (dtype.bits - 1):
        total -= 1 << dtype.bits
    return m.spread(m.root.op(m.x, m.constant(total)))


# --- selection and comparison ----------------------------------------------------------------


@RULES.add(p.where(numeric("c"), x, y))
def where_known(m: Match) -> Any:
    return m.spread(m.x if m.number("c") else m.y)


@RULES.add(p.where(wild("c"), x, x))
def where_same(m: Match) -> Any:
    return m.spread(m.x)


@RULES.add(p.where(wild("c"), p.where(wild("c"), x, wild("z")), y))
def where_within_then(m: Match) -> Any:
    return _where(m, m.x, m.y)


@RULES.add(p.where(wild("c"), x, p.where(wild("c"), wild("z"), y)))
def where_within_else(m: Match) -> Any:
    return _where(m, m.x, m.y)


def _where(m: Match, a: Any, b: Any) -> Any:
    result = get("where")(m.c, a, b)
    return result if result.shape == m.shape else None


@RULES.add(p.logical_not(p.eq(x, y)), p.logical_not(p.ne(x, y)))
def negated_equality(m: Match) -> Any:
    inner = m.root.inputs[0].op.name
    return get("ne" if inner == "eq" else "eq")(m.x, m.y)


@RULES.add(
    p.logical_not(p.lt(x, y)), p.logical_not(p.le(x, y)), p.logical_not(p.gt(x, y)),
    p.logical_not(p.ge(x, y)),
)
def negated_order(m: Match) -> Any:
    """Not for floats: NaN is neither less nor greater nor equal."""
    opposite = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le"}[m.root.inputs[0].op.name]
    return None if m.x.dtype.is_float else get(opposite)(m.x, m.y)


@RULES.add(p.ne(p.cast(x), number(0)))
def bool_of_cast_bool(m: Match) -> Any:
    return m.spread(m.x) if m.x.dtype.kind == "bool" else None


# --- casts -----------------------------------------------------------------------------------

_DIGITS = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}
_EXPONENT = {"f16": 5, "bf16": 8, "f32": 8, "f64": 11}


def holds(wide: DType, narrow: DType) -> bool:
    """Whether every value of `narrow` is a value of `wide`."""
    if wide is narrow or narrow.kind == "bool":
        return True
    if wide.kind == "bool":
        return False
    if narrow.is_float:
        return wide.is_float and (
            _DIGITS[wide.name] >= _DIGITS[narrow.name]
            and _EXPONENT[wide.name] >= _EXPONENT[narrow.name]
        )
    bits = narrow.bits - (narrow.kind == "int")
    if wide.is_float:
        return _DIGITS[wide.name] >= bits and not (wide is dtypes.f16 and bits > 15)
    if narrow.kind == "int" and wide.kind == "uint":
        return False
    return wide.bits - (wide.kind == "int") >= bits


@RULES.add(p.cast(p.cast(x, name="middle")))
def cast_through_wider(m: Match) -> Any:
    if not holds(m.node("middle").dtype, m.x.dtype):
        return None
    if m.x.dtype is m.root.dtype:
        return m.x
    return get("cast")(m.x, dtype=m.root.dtype)
