"""Numbers of a trace: `torch.Size`, symbolic sizes, and lifted Python numbers.

A SymInt is an integer expression over a trace's symbolic dims. A LiftedNumber is a Python number
that is a run-time input (a learning rate, a step count): arithmetic on it builds a NumberExpr,
which becomes float64 or int64 graph nodes when a tensor meets it. Neither is an int or a float.
Whatever needs the value now (`float()`, a comparison, use as a size) is decided by the value of
the example, and becomes a guard with the user's line.
"""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from graphc.ir.dim import Dim, evaluate, product, unwrap
from graphc.ir.dim import Size as DimSize
from graphc.ir.dtypes import DType
from graphc.ir.graph import Loc

from .errors import user_location

if TYPE_CHECKING:
    from .trace import Trace


class Size(tuple[Any, ...]):
    """torch.Size: a tuple of sizes, ints or (under trace) SymInts."""

    __slots__ = ()

    def numel(self) -> Any:
        """The number of elements."""
        total: Any = 1
        for size in self:
            total = total * size
        return total

    def __repr__(self) -> str:
        return f"torch.Size([{', '.join(map(repr, self))}])"

    def __add__(self, other: Any) -> Size:
        return Size(tuple.__add__(self, other))

    def __getitem__(self, index: Any) -> Any:
        found = tuple.__getitem__(self, index)
        return Size(found) if type(index) is slice else found

    def __mul__(self, count: Any) -> Size:
        return Size(tuple.__mul__(self, count))

    __rmul__ = __mul__

    def __reduce__(self) -> tuple[Any, ...]:
        return (Size, (tuple(self),))


# --- expressions -----------------------------------------------------------------------------

_PYTHON: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "floor_divide": operator.floordiv, "remainder": operator.mod, "pow": operator.pow,
    "neg": operator.neg, "abs": operator.abs, "float": float,
    "eq": operator.eq, "lt": operator.lt, "le": operator.le,
}  # fmt: skip


class NumberExpr:
    """A Python computation on lifted numbers. `value` is its result in the example.

    `op` is "source" (args: the key), "dim" (a Dim), "constant" (a number) or a name in _PYTHON
    with NumberExprs as args.
    """

    __slots__ = ("args", "op", "value")

    def __init__(self, op: str, args: tuple[Any, ...], value: Any) -> None:
        self.op = op
        self.args = args
        self.value = value

    def evaluate(self, sources: Mapping[Any, Any], dims: Mapping[str, int]) -> Any:
        """The result for these values of the sources and dims; iterative."""
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
                    done[id(node)] = _PYTHON[node.op](*[done[id(a)] for a in node.args])
        return done[id(self)]


class NumberGuard(NamedTuple):
    """A decision that a trace took: `expression` had `value`, at the user's line `loc`."""

    expression: NumberExpr
    value: Any
    loc: Loc | None

    def holds(self, sources: Mapping[Any, Any], dims: Mapping[str, int]) -> bool:
        """Whether the same would be decided now; False if it would raise."""
        try:
            now = self.expression.evaluate(sources, dims)
        except ArithmeticError:
            return False
        both_nan = now != now and self.value != self.value
        return type(now) is type(self.value) and (both_nan or bool(now == self.value))


class NumberTable:
    """Equal expressions of one trace are one object, so that guards and nodes are made once."""

    def __init__(self) -> None:
        self._made: dict[Any, NumberExpr] = {}

    def leaf(self, op: str, key: Any, value: Any) -> NumberExpr:
        """A "source", "dim" or "constant"."""
        # constants by spelling: 1, 1.0, True and -0.0 differ, though they are equal
        name = (op, type(key), repr(key)) if op == "constant" else (op, key)
        found = self._made.get(name)
        if found is None:
            found = self._made[name] = NumberExpr(op, (key,), value)
        return found

    def combine(self, op: str, *args: NumberExpr) -> NumberExpr:
        """A Python operation; raises what Python raises for the example's values."""
        key = (op, *[id(a) for a in args])
        found = self._made.get(key)
        if found is None:
            value = _PYTHON[op](*[a.value for a in args])
            found = self._made[key] = NumberExpr(op, args, value)
        return found


# --- numbers ---------------------------------------------------------------------------------


class TracedNumber:
    """What SymInt and LiftedNumber share: arithmetic as Python's, decisions as guards."""

    __slots__ = ("trace",)

    trace: Trace

    @property
    def is_integer_number(self) -> bool:
        """True for an int, False for a float."""
        return isinstance(self.expression.value, int)

    @property
    def expression(self) -> NumberExpr:
        raise NotImplementedError

    def as_operand(self, dtype: DType) -> Any:
        """A traced 0-d Tensor of `dtype`. Raises EscapedTensorError once the trace is over."""
        return self.trace.number_operand(self.expression, dtype)

    def _decide(self, expression: NumberExpr) -> Any:
        """The example's value of an expression, kept true by a guard."""
        self.trace.check_open(f"the number {expression.value!r}")
        guards = self.trace.number_guards
        if expression.op != "constant" and expression not in guards:
            guards[expression] = NumberGuard(expression, expression.value, user_location())
        return expression.value

    def _zero(self) -> NumberExpr:
        return self.trace.numbers.leaf("constant", 0, 0)

    def _with(self, op: str, other: Any, swap: bool = False) -> Any:
        right = _expression(other, self.trace)
        if right is None:
            return NotImplemented
        self.trace.check_open(f"the number {self.expression.value!r}")
        left = self.expression
        if swap:
            left, right = right, left
        if op in ("div", "floor_divide", "remainder") and right.op != "constant":
            self._decide(self.trace.numbers.combine("eq", right, self._zero()))
        if op == "pow":
            self._guard_power(left, right)
        return LiftedNumber(self.trace, self.trace.numbers.combine(op, left, right))

    def _guard_power(self, left: NumberExpr, right: NumberExpr) -> None:
        # int ** negative int is a float, a negative float ** fraction is complex
        zero = self._zero()
        for side in (left, right):
            if side.op != "constant":
                self._decide(self.trace.numbers.combine("lt", side, zero))
        if isinstance(_PYTHON["pow"](left.value, right.value), complex):
            raise ValueError(
                f"{left.value} ** {right.value} is complex, which a compiled function cannot hold"
            )

    def _compare(self, op: str, other: Any, swap: bool = False, negate: bool = False) -> Any:
        right = _expression(other, self.trace)
        if right is None:
            return NotImplemented
        pair = (right, self.expression) if swap else (self.expression, right)
        found = bool(self._decide(self.trace.numbers.combine(op, *pair)))
        return not found if negate else found

    def __add__(self, other: Any) -> Any:
        return self._with("add", other)

    def __radd__(self, other: Any) -> Any:
        return self._with("add", other, swap=True)

    def __sub__(self, other: Any) -> Any:
        return self._with("sub", other)

    def __rsub__(self, other: Any) -> Any:
        return self._with("sub", other, swap=True)

    def __mul__(self, other: Any) -> Any:
        return self._with("mul", other)

    def __rmul__(self, other: Any) -> Any:
        return self._with("mul", other, swap=True)

    def __truediv__(self, other: Any) -> Any:
        return self._with("div", other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._with("div", other, swap=True)

    def __floordiv__(self, other: Any) -> Any:
        return self._with("floor_divide", other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._with("floor_divide", other, swap=True)

    def __mod__(self, other: Any) -> Any:
        return self._with("remainder", other)

    def __rmod__(self, other: Any) -> Any:
        return self._with("remainder", other, swap=True)

    def __pow__(self, other: Any) -> Any:
        return self._with("pow", other)

    def __rpow__(self, other: Any) -> Any:
        return self._with("pow", other, swap=True)

    def __neg__(self) -> Any:
        return LiftedNumber(self.trace, self.trace.numbers.combine("neg", self.expression))

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return LiftedNumber(self.trace, self.trace.numbers.combine("abs", self.expression))

    def __eq__(self, other: object) -> Any:
        return self._compare("eq", other)

    def __ne__(self, other: object) -> Any:
        return self._compare("eq", other, negate=True)

    def __lt__(self, other: Any) -> Any:
        return self._compare("lt", other)

    def __le__(self, other: Any) -> Any:
        return self._compare("le", other)

    def __gt__(self, other: Any) -> Any:
        return self._compare("lt", other, swap=True)

    def __ge__(self, other: Any) -> Any:
        return self._compare("le", other, swap=True)

    def __bool__(self) -> bool:
        return not self._decide(self.trace.numbers.combine("eq", self.expression, self._zero()))

    def __float__(self) -> float:
        return float(self._decide(self.expression))

    def __int__(self) -> int:
        return int(self._decide(self.expression))

    def __trunc__(self) -> int:
        return int(self._decide(self.expression))

    def __round__(self, digits: int | None = None) -> Any:
        return round(self._decide(self.expression), digits)

    def __floor__(self) -> int:
        value: float = self._decide(self.expression)
        return math.floor(value)

    def __ceil__(self) -> int:
        value: float = self._decide(self.expression)
        return math.ceil(value)

    def __hash__(self) -> int:
        return hash(self._decide(self.expression))

    def __str__(self) -> str:
        return str(self._decide(self.expression))

    def __format__(self, spec: str) -> str:
        return format(self._decide(self.expression), spec)

    def __deepcopy__(self, memo: object) -> Any:
        return self

    def __reduce__(self) -> Any:
        kind = int if self.is_integer_number else float
        return (kind, (self._decide(self.expression),))


class LiftedNumber(TracedNumber):
    """A Python number that is a run-time input, or arithmetic on such."""

    __slots__ = ("_expression",)

    def __init__(self, trace: Trace, expression: NumberExpr) -> None:
        self.trace = trace
        self._expression = expression

    @property
    def expression(self) -> NumberExpr:
        return self._expression

    def __repr__(self) -> str:
        return repr(self._decide(self._expression))

    def __index__(self) -> int:
        return operator.index(self._decide(self._expression))

    def is_integer(self) -> bool:
        """float.is_integer."""
        return float(self).is_integer()

    def item(self) -> Any:
        """The number's value, as a guard."""
        return self._decide(self._expression)


class SymInt(TracedNumber):
    """A symbolic size: an integer expression over the dims of a trace."""

    __slots__ = ("dim",)

    def __init__(self, dim: Dim, trace: Trace) -> None:
        self.dim = dim
        self.trace = trace

    @property
    def expression(self) -> NumberExpr:
        return self.trace.numbers.leaf("dim", self.dim, self.trace.env.hint(self.dim))

    def _with(self, op: str, other: Any, swap: bool = False) -> Any:
        size = _size(other)
        if size is None or op not in _DIM_OPERATORS:
            return super()._with(op, other, swap)
        self.trace.check_open("a symbolic size")
        left, right = (size, self.dim) if swap else (self.dim, size)
        if op in ("floor_divide", "remainder"):
            if isinstance(right, Dim):
                if self.trace.env.equal(right, 0):
                    raise ZeroDivisionError("integer division or modulo by zero")
            elif right == 0:
                raise ZeroDivisionError("integer division or modulo by zero")
        return self._wrap(_DIM_OPERATORS[op](left, right))

    def _wrap(self, size: DimSize) -> Any:
        size = unwrap(size)
        return SymInt(size, self.trace) if isinstance(size, Dim) else size

    def _compare(self, op: str, other: Any, swap: bool = False, negate: bool = False) -> Any:
        size = _size(other)
        if size is None:
            return super()._compare(op, other, swap, negate)
        self.trace.check_open("a symbolic size")
        left, right = (size, self.dim) if swap else (self.dim, size)
        env = self.trace.env
        if op == "eq":
            found = env.equal(left, right)
        elif op == "le":
            found = env.at_most(left, right)
        else:
            found = not env.at_most(right, left)
        return not found if negate else found

    def _decide(self, expression: NumberExpr) -> Any:
        self.trace.check_open("a symbolic size")
        if expression.op == "dim":
            return self.trace.specialise(expression.args[0])
        return super()._decide(expression)

    def __neg__(self) -> Any:
        return self._wrap(-self.dim)

    def __bool__(self) -> bool:
        return not self.trace.env.equal(self.dim, 0)

    def __index__(self) -> int:
        return int(self._decide(self.expression))

    # Dims have structural equality, so a size can be a key without being decided upon
    def __hash__(self) -> int:
        return hash(self.dim)

    def __repr__(self) -> str:
        return str(self.dim)

    __str__ = __repr__


_DIM_OPERATORS: dict[str, Callable[[DimSize, DimSize], DimSize]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul,
    "floor_divide": operator.floordiv, "remainder": operator.mod,
}  # fmt: skip

numbers.Real.register(LiftedNumber)
numbers.Integral.register(SymInt)


def is_traced_number(value: Any) -> bool:
    """True for SymInt and LiftedNumber."""
    return isinstance(value, TracedNumber)


def _expression(value: Any, trace: Trace) -> NumberExpr | None:
    if isinstance(value, TracedNumber):
        return value.expression
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (bool, int, float)):
        return trace.numbers.leaf("constant", value, value)
    return None


def _size(value: Any) -> DimSize | None:
    if isinstance(value, SymInt):
        return value.dim
    if isinstance(value, (int, np.integer)):
        return int(value)
    return None


def plain_size(value: Any) -> Any:
    """A SymInt as its Dim, any other integer as an int: what the IR takes as a size.

    Raises TypeError for what is no integer.
    """
    if type(value) is int or isinstance(value, Dim):
        return value
    if isinstance(value, SymInt):
        return value.dim
    return operator.index(value)


def plain_sizes(values: Any) -> tuple[Any, ...]:
    """A shape for the IR from ints and SymInts."""
    return tuple([plain_size(v) for v in values])


def shape_elements(shape: Any) -> DimSize:
    """The number of elements of an IR shape."""
    return product(shape)
