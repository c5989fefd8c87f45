"""Python computations on lifted numbers and symbolic sizes: expressions, and decisions on them."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from graphc.ir.dim import evaluate
from graphc.ir.graph import Loc
from graphc.ir.named import NamedTuple

PYTHON: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "floor_divide": operator.floordiv, "remainder": operator.mod, "pow": operator.pow,
    "neg": operator.neg, "abs": operator.abs, "float": float, "int": int,
    "and": operator.and_, "or": operator.or_, "xor": operator.xor, "invert": lambda x: ~int(x),
    "lshift": operator.lshift, "rshift": operator.rshift,
    "round": round, "floor": math.floor, "ceil": math.ceil,
    "float32": lambda x: float(np.float32(x)),
    "eq": operator.eq, "lt": operator.lt, "le": operator.le,
    "item": operator.getitem,  # of a constant: a schedule's table
}
# functions of the math module that give a number for numbers
_MATH = """
    acos acosh asin asinh atan atan2 atanh cbrt comb copysign cos cosh degrees erf erfc exp exp2
    expm1 fabs factorial fma fmod gamma gcd hypot isqrt lcm ldexp lgamma log log10 log1p log2
    nextafter perm pow radians remainder sin sinh sqrt tan tanh ulp
""".split()
PYTHON |= {f"math.{name}": getattr(math, name) for name in _MATH if hasattr(math, name)}


def spelled(value: Any) -> Any:
    """A number, or a tuple of them, as something hashable that is equal for the same number only:
    type, NaN and the sign of zero count."""
    if type(value) is tuple:
        return tuple, tuple(map(spelled, value))
    return (float, value.hex()) if type(value) is float else (type(value), value)


class NumberExpr:
    """A Python computation on lifted numbers. `value` is its result in the example.

    `op` is "source" (args: the key), "dim" (a Dim), "constant" (a number, or a table of them) or a
    name in PYTHON with NumberExprs as args. `lifted`: a source is among them; `late`: one that is
    known only at the end of a call.
    """

    __slots__ = ("args", "late", "lifted", "op", "value")

    def __init__(self, op: str, args: tuple[Any, ...], value: Any) -> None:
        self.op = op
        self.args = args
        self.value = value
        inside = [a for a in args if isinstance(a, NumberExpr)]
        self.lifted: bool = op == "source" or any(a.lifted for a in inside)
        self.late: bool = any(a.late for a in inside) or (op == "source" and is_late(args[0]))

    def evaluate(self, sources: Mapping[Any, Any], dims: Mapping[str, int]) -> Any:
        """The result for these values of the sources and dims; iterative."""
        if self.op == "source":
            return sources[self.args[0]]
        done: dict[int, Any] = {}
        stack = [self]
        while stack:
            node = stack[-1]
            if id(node) in done:
                stack.pop()
            elif node.op == "source":
                done[id(node)] = sources[node.args[0]]
            elif node.op == "dim":
                done[id(node)] = evaluate(node.args[0], dims)
            elif node.op == "constant":
                done[id(node)] = node.args[0]
            else:
                waiting = [a for a in node.args if id(a) not in done]
                if waiting:
                    stack.extend(waiting)
                else:
                    done[id(node)] = PYTHON[node.op](*[done[id(a)] for a in node.args])
        return done[id(self)]


def is_late(source: Any) -> bool:
    """Whether a source has its number only at the end of a call."""
    return getattr(source, "late", False)


def sources_of(expressions: Iterable[NumberExpr]) -> dict[Any, Any]:
    """The run-time numbers that expressions read, with their values at the trace."""
    found: dict[Any, Any] = {}
    for expression in _parts(expressions):
        if expression.op == "source":
            found.setdefault(expression.args[0], expression.value)
    return found


def dims_of(expression: NumberExpr) -> set[str]:
    """The named dims that an expression is computed of."""
    sizes = (part.args[0] for part in _parts((expression,)) if part.op == "dim")
    return {name for size in sizes for name in size.variables()}


def operations_of(expression: NumberExpr) -> int:
    """How many operations an expression is made of."""
    return sum(1 for _ in _parts((expression,)))


def _parts(expressions: Iterable[NumberExpr]) -> Iterator[NumberExpr]:
    """Everything that expressions are made of, once each."""
    stack, seen = list(expressions), set()
    while stack:
        expression = stack.pop()
        if id(expression) in seen:
            continue
        seen.add(id(expression))
        yield expression
        if expression.op not in ("source", "dim", "constant"):
            stack.extend(expression.args)


class NumberGuard(NamedTuple):
    """A decision that a trace took: `expression` had `value`, at the user's line `loc`."""

    expression: NumberExpr
    value: Any
    loc: Loc | None

    def holds(self, sources: Mapping[Any, Any], dims: Mapping[str, int]) -> bool:
        """Whether the same would be decided now; False if it would raise."""
        try:
            now = self.expression.evaluate(sources, dims)
        except (ArithmeticError, ValueError, LookupError):
            return False
        return bool(spelled(now) == spelled(self.value))


class NumberTable:
    """Equal expressions of one trace are one object, so that guards and nodes are made once."""

    def __init__(self) -> None:
        self._made: dict[Any, NumberExpr] = {}

    def leaf(self, op: str, key: Any, value: Any) -> NumberExpr:
        """A "source", "dim" or "constant"."""
        # constants by spelling: 1, 1.0, True and -0.0 differ, though they are equal
        name = (op, *spelled(key)) if op == "constant" else (op, key)
        found = self._made.get(name)
        # between segments a source's value may change: then it is another number
        if found is None or (op == "source" and spelled(found.value) != spelled(value)):
            found = self._made[name] = NumberExpr(op, (key,), value)
        return found

    def combine(self, op: str, *args: NumberExpr) -> NumberExpr:
        """A Python operation; raises what Python raises for the example's values."""
        key = (op, *[id(a) for a in args])
        found = self._made.get(key)
        if found is None:
            value = PYTHON[op](*[a.value for a in args])
            found = self._made[key] = NumberExpr(op, args, value)
        return found
