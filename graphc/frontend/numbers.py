"""Numbers of a trace: `torch.Size`, symbolic sizes, and lifted Python numbers.

A SymInt is an integer expression over a trace's symbolic dims. A LiftedNumber is a Python number
that is a run-time input (a learning rate, a step count): arithmetic on it builds a NumberExpr,
which becomes a float64 or int64 graph input when a tensor meets it. Both answer `isinstance` as
int or float and have the methods of one. Whatever needs the value now (`float()`, a comparison,
a hash, text, a method, use as a size) is decided by the value of the example, and becomes a guard
with the user's line.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.ir.dim import Dim, unwrap
from graphc.ir.dim import Size as DimSize
from graphc.ir.dtypes import DType

from .number_expr import PYTHON, NumberExpr

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


# --- numbers ---------------------------------------------------------------------------------


class TracedNumber:
    """What SymInt and LiftedNumber share: arithmetic as Python's, decisions as guards."""

    __slots__ = ("trace",)

    trace: Trace

    # isinstance() asks this; type() cannot be answered
    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return int if self.is_integer_number else float

    @property
    def is_integer_number(self) -> bool:
        """True for an int, False for a float."""
        return isinstance(self.expression.value, int)

    @property
    def expression(self) -> NumberExpr:
        raise NotImplementedError

    def as_float(self) -> Any:
        """float() of it, which stays a run-time number."""
        return self._lifted("float") if self.is_integer_number else self

    def as_operand(self, dtype: DType) -> Any:
        """A traced 0-d Tensor of `dtype`. Raises EscapedTensorError once the trace is over."""
        return self.trace.number_operand(self.expression, dtype)

    def _decide(self, expression: NumberExpr) -> Any:
        """The example's value of an expression, kept true by a guard."""
        self.trace.check_open(f"the number {expression.value!r}")
        return expression.value if expression.op == "constant" else self.trace.decide(expression)

    def decided(self) -> Any:
        """The number's value, kept true by a guard."""
        return self._decide(self.expression)

    def _lifted(self, op: str, *others: NumberExpr) -> LiftedNumber:
        expression = self.trace.numbers.combine(op, self.expression, *others)
        return LiftedNumber(self.trace, expression)

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
        if isinstance(PYTHON["pow"](left.value, right.value), complex):
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

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __lshift__(self, other: Any) -> Any:
        return self._with("lshift", other)

    def __rlshift__(self, other: Any) -> Any:
        return self._with("lshift", other, swap=True)

    def __rshift__(self, other: Any) -> Any:
        return self._with("rshift", other)

    def __rrshift__(self, other: Any) -> Any:
        return self._with("rshift", other, swap=True)

    def __and__(self, other: Any) -> Any:
        return self._with("and", other)

    def __rand__(self, other: Any) -> Any:
        return self._with("and", other, swap=True)

    def __or__(self, other: Any) -> Any:
        return self._with("or", other)

    def __ror__(self, other: Any) -> Any:
        return self._with("or", other, swap=True)

    def __xor__(self, other: Any) -> Any:
        return self._with("xor", other)

    def __rxor__(self, other: Any) -> Any:
        return self._with("xor", other, swap=True)

    def __pow__(self, other: Any, modulus: Any = None) -> Any:
        if modulus is not None:
            return pow(self.decided(), *(operator.index(n) for n in (other, modulus)))
        return self._with("pow", other)

    def __rpow__(self, other: Any) -> Any:
        return self._with("pow", other, swap=True)

    def __neg__(self) -> Any:
        return self._lifted("neg")

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return self._lifted("abs")

    def __invert__(self) -> Any:
        return self._lifted("invert")

    def __round__(self, digits: Any = None) -> Any:
        if digits is not None:
            places = operator.index(digits)
            if not self.expression.lifted:
                return round(self.decided(), places)
            return self._lifted("round", self.trace.numbers.leaf("constant", places, places))
        return self if self.is_integer_number else self._lifted("round")

    def __trunc__(self) -> Any:
        return self if self.is_integer_number else self._lifted("int")

    def __floor__(self) -> Any:
        return self if self.is_integer_number else self._lifted("floor")

    def __ceil__(self) -> Any:
        return self if self.is_integer_number else self._lifted("ceil")

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
        return float(self.decided())

    def __int__(self) -> int:
        return int(self._decide(self.__trunc__().expression))

    def __index__(self) -> int:
        return operator.index(self.decided())

    def __hash__(self) -> int:
        # a set that is put back when the trace is over still has it
        return hash(self.decided() if self.trace.open else self.expression.value)

    def __repr__(self) -> str:
        return repr(self.decided())

    def __str__(self) -> str:
        return str(self.decided())

    def __format__(self, spec: str) -> str:
        return format(self.decided(), spec)

    # NumPy's functions and scalars get the plain number
    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return getattr(ufunc, method)(*[plain_number(value) for value in inputs], **options)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(self.decided(), dtype)

    # the methods and attributes of an int or a float
    def __getattr__(self, name: str) -> Any:
        kind = self.__class__
        if name.startswith("__") or not hasattr(kind, name):
            raise AttributeError(f"'{kind.__name__}' object has no attribute '{name}'")
        return getattr(self.decided(), name)

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: object) -> Any:
        return self

    def __reduce__(self) -> Any:
        return (self.__class__, (self.decided(),))


class LiftedNumber(TracedNumber):
    """A Python number that is a run-time input, or arithmetic on such."""

    __slots__ = ("_expression",)

    def __init__(self, trace: Trace, expression: NumberExpr) -> None:
        self.trace = trace
        self._expression = expression

    @property
    def expression(self) -> NumberExpr:
        return self._expression


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


_DIM_OPERATORS: dict[str, Callable[[DimSize, DimSize], DimSize]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul,
    "floor_divide": operator.floordiv, "remainder": operator.mod,
}


def chosen(table: Any, index: Any) -> Any:
    """table[index] of a list or tuple of floats, or of ints, by a lifted index; NotImplemented for
    others. Raises IndexError."""
    kinds = {type(item) for item in table}
    if kinds not in ({float}, {int}) or not isinstance(index, LiftedNumber):
        return NotImplemented
    if not index.is_integer_number or not index.expression.lifted:
        return NotImplemented
    numbers = index.trace.numbers
    constant = numbers.leaf("constant", tuple(table), tuple(table))
    return LiftedNumber(index.trace, numbers.combine("item", constant, index.expression))


def is_traced_number(value: Any) -> bool:
    """True for SymInt and LiftedNumber. Asks `type()`: user code may answer `__class__`."""
    return issubclass(type(value), TracedNumber)


def number_function(op: str, args: tuple[Any, ...]) -> Any:
    """`op`, a name in PYTHON, of numbers, some of them traced; None where another kind of object
    is among them. Raises what Python raises for the example's values."""
    trace = next(a.trace for a in args if isinstance(a, TracedNumber))
    operands = [_expression(value, trace) for value in args]
    if any(operand is None for operand in operands):
        return None
    trace.check_open("a number")
    return LiftedNumber(trace, trace.numbers.combine(op, *[o for o in operands if o is not None]))


def plain_number(value: Any) -> Any:
    """A traced number as its value, kept true by a guard; anything else as it is."""
    return value.decided() if isinstance(value, TracedNumber) else value


def _expression(value: Any, trace: Trace) -> NumberExpr | None:
    if isinstance(value, TracedNumber):
        return value.expression
    # NumPy's scalars have arithmetic of their own: theirs is asked, with a decided number
    if isinstance(value, (bool, int, float)) and not isinstance(value, np.generic):
        return trace.numbers.leaf("constant", value, value)
    return None


def _size(value: Any) -> DimSize | None:
    if isinstance(value, SymInt):
        return value.dim
    if isinstance(value, int) and not isinstance(value, TracedNumber):
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
