"""A training step's expressions over Python's numbers (steps/numbers.py) with their types, as code
without Python computes them. What Python gives another type for other values is refused."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from graphc.backends.host.interface import Number
from graphc.export.errors import ExportError
from graphc.export.steps import numbers
from graphc.ir import dim

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
# functions that Python takes from libm as they are
_UNARY = """
acos acosh asin asinh atan atanh cbrt cos cosh erf erfc exp exp2 expm1 fabs log log10 log1p log2
sin sinh sqrt tan tanh
""".split()
_BINARY = ("atan2", "copysign", "fmod", "pow")
_MATHEMATICS = {**dict.fromkeys(_UNARY, 1), **dict.fromkeys(_BINARY, 2)}  # and their operands


def constant(value: Any) -> Number:
    """A Python number. Raises ExportError for an int of more than 64 bits."""
    if isinstance(value, str):  # JSON's "inf", "nan"
        value = float(value)
    if type(value) is float:
        (bits,) = struct.unpack("<Q", struct.pack("<d", value))
        return Number("constant", "float", (), bits)
    if not _LEAST <= value <= _MOST:
        raise ExportError(f"the step computes with {value}, which needs more than 64 bits")
    return Number("constant", "bool" if type(value) is bool else "int", (), int(value))


def typed(expression: numbers.Expression, sources: Mapping[str, Number]) -> Number:
    """An expression over numbers by name. Raises ExportError for what a library cannot compute."""
    op, *operands = expression
    if op == "source":
        return sources[operands[0]]
    if op == "dim":
        return Number("dim", "int", (), dim.parse(operands[0]))
    if op == "constant":
        if isinstance(operands[0], list):
            raise _refused(expression)
        return constant(operands[0])
    if op == "item":
        return _item(expression, operands, sources)
    given = tuple(typed(each, sources) for each in operands)
    if op.startswith("math."):
        return _mathematics(expression, op.removeprefix("math."), given)
    rule = _KINDS.get(op)
    kind = rule(given) if rule is not None else None
    if kind is None:
        raise _refused(expression)
    return Number(op, kind, given)


def _refused(expression: numbers.Expression) -> ExportError:
    return ExportError(
        f"the step computes {numbers.said(expression)[:200]} between its calls, which a library "
        "does not. Cure: compute it outside, and pass it as an argument"
    )


def _item(
    expression: numbers.Expression, operands: Sequence[Any], sources: Mapping[str, Number]
) -> Number:
    """One of some constants."""
    if len(operands) != 2 or operands[0][0] != "constant" or not isinstance(operands[0][1], list):
        raise _refused(expression)
    values = operands[0][1]
    which = typed(operands[1], sources)
    if not values or which.kind == "float" or any(isinstance(each, list) for each in values):
        raise _refused(expression)
    items = tuple(constant(each) for each in values)
    if len({each.kind for each in items}) != 1:
        raise _refused(expression)
    return Number("item", items[0].kind, (which,), items)


def _mathematics(
    expression: numbers.Expression, name: str, given: tuple[Number, ...]
) -> Number:
    if name == "log" and len(given) == 2:
        return Number("div", "float", tuple(Number("math.log", "float", (each,)) for each in given))
    if name in ("degrees", "radians") and len(given) == 1:
        factor = 180 / math.pi if name == "degrees" else math.pi / 180
        return Number("mul", "float", (*given, constant(factor)))
    if name == "gcd" and len(given) == 2 and not _is_float(given):
        return Number("math.gcd", "int", given)
    if _MATHEMATICS.get(name) != len(given):
        raise _refused(expression)
    return Number(f"math.{name}", "float", given)


# --- the type of what comes out; None: there is no one type, or no such operation ----------------


def _is_float(given: Sequence[Number]) -> bool:
    return any(each.kind == "float" for each in given)


def _two(given: Sequence[Number]) -> str | None:
    if len(given) != 2:
        return None
    return "float" if _is_float(given) else "int"


def _one(given: Sequence[Number]) -> str | None:
    if len(given) != 1:
        return None
    return "float" if _is_float(given) else "int"


def _power(given: Sequence[Number]) -> str | None:
    kind = _two(given)
    if kind != "int":
        return kind
    exponent = given[1]  # 2 ** -1 is a float; where a call finds one, it is refused
    if exponent.op != "constant":
        return "int"
    return "int" if 0 <= exponent.value < 1 << 12 else "float" if exponent.value < 0 else None


def _bits(given: Sequence[Number]) -> str | None:
    if len(given) != 2 or _is_float(given):
        return None
    return "bool" if all(each.kind == "bool" for each in given) else "int"


def _whole(count: int) -> Callable[[Sequence[Number]], str | None]:
    return lambda given: "int" if len(given) == count and not _is_float(given) else None


def _always(kind: str, count: int) -> Callable[[Sequence[Number]], str | None]:
    return lambda given: kind if len(given) == count else None


_KINDS: dict[str, Callable[[Sequence[Number]], str | None]] = {
    "add": _two, "sub": _two, "mul": _two, "floor_divide": _two, "remainder": _two, "pow": _power,
    "div": _always("float", 2), "neg": _one, "abs": _one, "float": _always("float", 1),
    "int": _always("int", 1), "round": _always("int", 1), "floor": _always("int", 1),
    "ceil": _always("int", 1), "float32": _always("float", 1), "and": _bits, "or": _bits,
    "xor": _bits, "invert": _whole(1), "rshift": _whole(2), "eq": _always("bool", 2),
    "lt": _always("bool", 2), "le": _always("bool", 2),
}
