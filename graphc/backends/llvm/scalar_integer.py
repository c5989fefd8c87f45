"""The elementwise operators on integers and bool.

Arithmetic wraps. A division by zero or of the lowest value by -1 would trap, so divisors are
replaced first; the kernel's own Check reports a zero divisor.
"""

from __future__ import annotations

from collections.abc import Callable

from graphc.backends.llvm.instructions import Instructions
from graphc.backends.llvm.values import register_type
from graphc.ir import dtypes
from graphc.ir.dtypes import DType

Emit = Callable[..., str]


def _same(o: Instructions, dtype: DType, x: str) -> str:
    return x


def _signed(dtype: DType) -> bool:
    return dtype.kind == "int"


def _neg(o: Instructions, dtype: DType, x: str) -> str:
    return o.binary("sub", dtype, o.const(0, dtype), x)


def _abs(o: Instructions, dtype: DType, x: str) -> str:
    return o.intrinsic("abs", dtype, x, flag="false") if _signed(dtype) else x


def _sign(o: Instructions, dtype: DType, x: str) -> str:
    zero, one = o.const(0, dtype), o.const(1, dtype)
    if not _signed(dtype):
        return (
            x
            if dtype is dtypes.bool_
            else o.select(o.compare("ne", dtype, x, zero), dtype, one, zero)
        )
    negative = o.select(o.compare("slt", dtype, x, zero), dtype, o.const(-1, dtype), zero)
    return o.select(o.compare("sgt", dtype, x, zero), dtype, one, negative)


def _relu(o: Instructions, dtype: DType, x: str) -> str:
    return o.intrinsic("smax", dtype, x, o.const(0, dtype)) if _signed(dtype) else x


def _constant(value: bool) -> Emit:
    return lambda o, dtype, x: o.const(value, dtypes.bool_)


def _not(o: Instructions, dtype: DType, x: str) -> str:
    return o.binary("xor", dtype, x, o.const(True if dtype is dtypes.bool_ else -1, dtype))


def _is_zero(o: Instructions, dtype: DType, x: str) -> str:
    return o.compare("eq", dtype, x, o.const(0, dtype))


def _instruction(name: str, on_bool: str = "") -> Emit:
    """One instruction; on bool another one (sums are or, products are and)."""
    return lambda o, dtype, a, b: o.binary(
        on_bool if on_bool and dtype is dtypes.bool_ else name, dtype, a, b
    )


def _truth(op: str) -> Emit:
    def emit(o: Instructions, dtype: DType, a: str, b: str) -> str:
        if dtype is not dtypes.bool_:
            a, b = (o.compare("ne", dtype, x, o.const(0, dtype)) for x in (a, b))
        return o.binary(op, dtypes.bool_, a, b)

    return emit


def _compare(predicate: str) -> Emit:
    """Unsigned and bool compare by `u` predicates, signed by `s`."""

    def emit(o: Instructions, dtype: DType, a: str, b: str) -> str:
        return o.compare(("s" if _signed(dtype) else "u") + predicate, dtype, a, b)

    return emit


def _extreme(which: str) -> Emit:
    def emit(o: Instructions, dtype: DType, a: str, b: str) -> str:
        if dtype is dtypes.bool_:
            return o.binary("or" if which == "max" else "and", dtype, a, b)
        return o.intrinsic(("s" if _signed(dtype) else "u") + which, dtype, a, b)

    return emit


def _quotient(o: Instructions, dtype: DType, a: str, b: str) -> str:
    """a / b towards zero; b = 0 counts as 1, and a / -1 is -a (wrapping)."""
    zero, one = o.const(0, dtype), o.const(1, dtype)
    nonzero = o.select(o.compare("eq", dtype, b, zero), dtype, one, b)
    if not _signed(dtype):
        return o.binary("udiv", dtype, a, nonzero)
    minus = o.compare("eq", dtype, b, o.const(-1, dtype))
    quotient = o.binary("sdiv", dtype, a, o.select(minus, dtype, one, nonzero))
    return o.select(minus, dtype, _neg(o, dtype, a), quotient)


def _rest(o: Instructions, dtype: DType, a: str, b: str) -> str:
    """a - quotient * b: the sign of a."""
    product = o.binary("mul", dtype, _quotient(o, dtype, a, b), b)
    return o.binary("sub", dtype, a, product)


def _rest_is_wrong(o: Instructions, dtype: DType, rest: str, b: str) -> str:
    """Where a non-zero remainder has not the divisor's sign: floor and truncation differ."""
    zero = o.const(0, dtype)
    opposite = o.compare("slt", dtype, o.binary("xor", dtype, rest, b), zero)
    return o.binary("and", dtypes.bool_, opposite, o.compare("ne", dtype, rest, zero))


def _remainder(o: Instructions, dtype: DType, a: str, b: str) -> str:
    rest = _rest(o, dtype, a, b)
    if not _signed(dtype):
        return rest
    wrong = _rest_is_wrong(o, dtype, rest, b)
    return o.select(wrong, dtype, o.binary("add", dtype, rest, b), rest)


def _floor_divide(o: Instructions, dtype: DType, a: str, b: str) -> str:
    quotient = _quotient(o, dtype, a, b)
    if not _signed(dtype):
        return quotient
    rest = o.binary("sub", dtype, a, o.binary("mul", dtype, quotient, b))
    wrong = _rest_is_wrong(o, dtype, rest, b)
    return o.select(wrong, dtype, o.binary("sub", dtype, quotient, o.const(1, dtype)), quotient)


def _shift(left: bool) -> Emit:
    """Shifts of the width or more, or negative: 0 to the left, the sign's fill to the right."""

    def emit(o: Instructions, dtype: DType, a: str, b: str) -> str:
        inside = o.compare("ult", dtype, b, o.const(dtype.bits, dtype))
        if not left and _signed(dtype):
            return o.binary(
                "ashr", dtype, a, o.select(inside, dtype, b, o.const(dtype.bits - 1, dtype))
            )
        zero = o.const(0, dtype)
        shifted = o.binary("shl" if left else "lshr", dtype, a, o.select(inside, dtype, b, zero))
        return o.select(inside, dtype, shifted, zero)

    return emit


def _clamp(o: Instructions, dtype: DType, x: str, low: str, high: str) -> str:
    raised = _extreme("max")(o, dtype, x, low)
    return _extreme("min")(o, dtype, raised, high)


def _pow(o: Instructions, dtype: DType, a: str, b: str) -> str:
    """By squaring, wrapping; a negative power is 0 but for the bases 1 and -1."""
    if dtype is dtypes.bool_:
        return o.binary("or", dtype, a, _not(o, dtype, b))
    kind = register_type(dtype, o.lanes)
    name = f"@graphc.ipow.{dtype.name}.{o.lanes}"
    if o.module.count_use(name) == 1:
        _define_pow(o, dtype, name, kind)
    return o.fn.call(kind, name, f"{kind} {a}", f"{kind} {b}")


def _define_pow(o: Instructions, dtype: DType, name: str, kind: str) -> None:
    fn = o.module.function(f"{kind} {name}({kind} %a, {kind} %b)", "internal")
    inner = type(o)(fn, o.module, o.target, o.lanes)
    zero, one = o.const(0, dtype), o.const(1, dtype)
    loop = fn.carry_loop(0, dtype.bits, 1, [(kind, one), (kind, "%a"), (kind, "%b")])
    result, square, rest = loop.values
    odd = inner.compare("ne", dtype, inner.binary("and", dtype, rest, one), zero)
    product = inner.select(odd, dtype, inner.binary("mul", dtype, result, square), result)
    squared = inner.binary("mul", dtype, square, square)
    halved = inner.binary("lshr", dtype, rest, one)
    power = loop.close([product, squared, halved])[0]
    if _signed(dtype):
        minus = o.const(-1, dtype)
        even = inner.compare("eq", dtype, inner.binary("and", dtype, "%b", one), zero)
        unit = inner.select(even, dtype, one, minus)
        inverse = inner.select(inner.compare("eq", dtype, "%a", minus), dtype, unit, zero)
        inverse = inner.select(inner.compare("eq", dtype, "%a", one), dtype, one, inverse)
        negative = inner.compare("slt", dtype, "%b", zero)
        power = inner.select(negative, dtype, inverse, power)
    fn.ret(f"{kind} {power}")


INTEGER: dict[str, Emit] = {
    "neg": _neg,
    "abs": _abs,
    "sign": _sign,
    "square": lambda o, dtype, x: _instruction("mul", "and")(o, dtype, x, x),
    "relu": _relu,
    "floor": _same,
    "ceil": _same,
    "round": _same,
    "trunc": _same,
    "isnan": _constant(False),
    "isinf": _constant(False),
    "isfinite": _constant(True),
    "logical_not": _is_zero,
    "bitwise_not": _not,
    "add": _instruction("add", "or"),
    "sub": _instruction("sub"),
    "mul": _instruction("mul", "and"),
    "floor_divide": _floor_divide,
    "trunc_divide": _quotient,
    "remainder": _remainder,
    "fmod": _rest,
    "pow": _pow,
    "maximum": _extreme("max"),
    "minimum": _extreme("min"),
    "fmax": _extreme("max"),
    "fmin": _extreme("min"),
    "bitwise_and": _instruction("and"),
    "bitwise_or": _instruction("or"),
    "bitwise_xor": _instruction("xor"),
    "shift_left": _shift(left=True),
    "shift_right": _shift(left=False),
    "logical_and": _truth("and"),
    "logical_or": _truth("or"),
    "logical_xor": _truth("xor"),
    "eq": lambda o, dtype, a, b: o.compare("eq", dtype, a, b),
    "ne": lambda o, dtype, a, b: o.compare("ne", dtype, a, b),
    "lt": _compare("lt"),
    "le": _compare("le"),
    "gt": _compare("gt"),
    "ge": _compare("ge"),
    "clamp": _clamp,
}
