"""What Python computes of numbers at each call of a step, as JSON: lists that begin with a name.

["source", name], ["dim", text of a size], ["constant", number or list], or an operation of
frontend/number_expr.py with its operands. A file may hold no operation whose result can be far
larger than what it is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

from graphc.export.errors import ExportError
from graphc.frontend.number_expr import PYTHON, NumberExpr
from graphc.ir import dim

Expression: TypeAlias = list[Any]

_GROWING = frozenset(
    ("lshift", "math.factorial", "math.comb", "math.perm", "math.lcm", "math.ldexp")
)
_BITS = 4096  # of the largest integer that a power may be
_PARTS, _DEPTH = 10_000, 100  # of an expression, at most
ERRORS = (ArithmeticError, ValueError, TypeError, LookupError)


def to_json(expression: NumberExpr, name: Callable[[Any], str]) -> Expression:
    """`name` says what a source is called. Raises ExportError for what a file does not hold."""
    if expression.op == "source":
        return ["source", name(expression.args[0])]
    if expression.op == "dim":
        return ["dim", str(expression.args[0])]
    if expression.op == "constant":
        return ["constant", _constant(expression.args[0])]
    if expression.op not in PYTHON or expression.op in _GROWING:
        raise ExportError(
            f"the step computes {expression.op} of a number that changes from call to call, which "
            "a file cannot hold. Cure: compute it outside, and pass it as an argument"
        )
    return [expression.op, *(to_json(each, name) for each in expression.args)]


def _constant(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_constant(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if type(value) not in (int, float, bool):
        raise ExportError(
            f"the step computes with {value!r}, a {type(value).__name__}, which a file cannot hold"
        )
    return value


def check(expression: Any, sources: Collection[str], dims: Collection[str]) -> None:
    """Raise ExportError for what is no expression over these sources and sizes."""
    waiting, count = [(expression, 0)], 0
    while waiting:
        part, depth = waiting.pop()
        count += 1
        if count > _PARTS or depth > _DEPTH:
            raise ExportError("the manifest has a number that is computed of too many parts")
        if not isinstance(part, list) or not part or not isinstance(part[0], str):
            raise ExportError(f"the manifest has the number {part!r}")
        op, *operands = part
        if op in ("source", "dim", "constant"):
            if len(operands) != 1 or not _is_leaf(op, operands[0], sources, dims):
                raise ExportError(f"the manifest has the number {part!r}")
        elif op not in PYTHON or op in _GROWING or not 1 <= len(operands) <= 3:
            raise ExportError(f"the manifest computes a number by {op!r}")
        else:
            waiting += [(each, depth + 1) for each in operands]


def _is_leaf(op: str, value: Any, sources: Collection[str], dims: Collection[str]) -> bool:
    if op == "source":
        return isinstance(value, str) and value in sources
    if op == "dim":
        try:
            size = dim.parse(value)
        except (ValueError, SyntaxError, TypeError, RecursionError):
            return False
        return isinstance(size, int) or set(size.variables()) <= set(dims)
    items = value if isinstance(value, list) else [value]
    return all(type(item) in (int, float, bool) or item in ("inf", "-inf", "nan") for item in items)


def evaluate(
    expression: Expression, sources: Mapping[str, Any], dims: Mapping[str, int]
) -> Any:
    """The number now. Raises what Python raises for these values (ERRORS)."""
    op, *operands = expression
    if op == "source":
        return sources[operands[0]]
    if op == "dim":
        return dim.evaluate(dim.parse(operands[0]), dims)
    if op == "constant":
        return _value(operands[0])
    values = [evaluate(each, sources, dims) for each in operands]
    if op == "pow" and len(values) == 2 and all(type(value) is int for value in values):
        base, exponent = values
        if exponent > 0 and base.bit_length() * exponent > _BITS:
            raise OverflowError(f"{base} ** {exponent} is too large")
    return PYTHON[op](*values)


def _value(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_value(item) for item in value)
    return float(value) if isinstance(value, str) else value


def said(expression: Expression) -> str:
    """An expression as people read it."""
    op, *operands = expression
    if op in ("source", "dim", "constant"):
        return str(operands[0])
    parts = [said(each) for each in operands]
    sign = _SIGNS.get(op)
    return f" {sign} ".join(parts) if sign and len(parts) == 2 else f"{op}({', '.join(parts)})"


_SIGNS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floor_divide": "//", "remainder": "%",
    "pow": "**", "eq": "==", "lt": "<", "le": "<=",
}
