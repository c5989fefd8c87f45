"""Python's operators as methods: x + y, 2 ** x, x == y."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.ir import dtypes, ops
from graphc.ir.op import Op

from .. import promote
from ..autocast import listed
from ..context import local
from ..dispatch import constant
from ..eager import apply_cast, apply_two
from ..errors import located
from ..nodes import OpNode, class_of, named_class
from ..overriding import first_met
from ..promote import is_number
from ..replayed import replayed
from ..tensor import Tensor
from . import pointwise as P
from .arguments import named
from .linalg_basic import matmul_of_tensors

_FLOATS = "fdeE"
# of two operands of one such dtype, an operator of Python's is one of graphc's
_DIRECT = {
    "add": (ops.add, _FLOATS + "lihbB"), "sub": (ops.sub, _FLOATS + "lihbB"),
    "mul": (ops.mul, _FLOATS + "lihbB"), "truediv": (ops.div, _FLOATS),
    "floordiv": (ops.floor_divide, "lihbB"), "mod": (ops.remainder, "fdlihbB"),
    "pow": (ops.pow, "fd"),
    **{name: (getattr(ops, name), _FLOATS + "lihbB?") for name in "eq ne lt le gt ge".split()},
}
_NUMBERS = frozenset({int, float})
# of an integer's dtype: the least and the largest number beside it that are sure to be of it
_HELD = {**dict.fromkeys("lihb", (-128, 127)), "B": (0, 127)}
# by NumPy's character: of a float and an integer, both become the float's, whatever their dims
_PROMOTED = {
    each.numpy.char: each for each in (
        dtypes.f32, dtypes.f64, dtypes.i64, dtypes.i32, dtypes.i16, dtypes.i8, dtypes.u8
    )
}
_NOTHING = (1, 0)
_KIND_OF_POWER = named_class("PowBackward1", OpNode)
_OF_NUMPY = "?BbhilqefdFD"  # dtypes whose promotion NumPy knows
# what torch calls the node of a number less a tensor
_SWAPPED = {"sub": "RsubBackward1"}


def _operator(
    name: str, function: Callable[..., Any], swap: bool = False,
    direct: tuple[Op, str] | None = None,
) -> Callable[[Any, Any], Any]:
    slow = _any_operator(name, function, swap)
    if direct is None:
        return slow
    op, same = direct
    kind_of_swapped = named_class(_SWAPPED.get(op.name, class_of(op).__name__), OpNode)
    power = op is ops.pow  # of numbers it may be a square or a root

    def method(self: Tensor, other: Any) -> Any:
        if local.trace is not None:
            return slow(self, other)
        number = not isinstance(other, Tensor)
        try:
            kind = self._graphc_array.dtype
            alike = number or other._graphc_array.dtype is kind
        except AttributeError:  # of a trace that is over, or no tensor at all
            return slow(self, other)
        if number:
            if type(other) not in _NUMBERS or power or kind.char not in same:
                return slow(self, other)
            if kind.char in "fd":
                other = promote.operand(other, dtypes.f32 if kind.char == "f" else dtypes.f64)
            else:
                least, most = _HELD.get(kind.char, _NOTHING)
                if type(other) is not int or not least <= other <= most:
                    return slow(self, other)
                other = promote.operand(other, _PROMOTED[kind.char])
        elif power and local.autocast is not None:
            return slow(self, other)
        elif not alike or kind.char not in same:
            mine, its = _PROMOTED.get(kind.char), _PROMOTED.get(other._graphc_array.dtype.char)
            if mine is None or its is None or local.autocast is not None or (
                mine.is_float == its.is_float
            ):
                return slow(self, other)
            if mine.is_float:
                other = apply_cast(ops.cast, other, mine)
            else:
                self = apply_cast(ops.cast, self, its)
        if not swap:
            found = apply_two(op, self, other)
            if power and found._graphc_node is not None:
                found._graphc_node.__class__ = _KIND_OF_POWER
            return found
        found = apply_two(op, other, self)
        if number and found._graphc_node is not None:
            found._graphc_node.__class__ = kind_of_swapped
        return found

    return method


def _any_operator(name: str, function: Callable[..., Any], swap: bool) -> Callable[[Any, Any], Any]:
    def method(self: Tensor, other: Any) -> Any:
        if not isinstance(self, Tensor):
            raise TypeError(located(
                f"{function.__name__}: a Tensor's method called on {type(self).__name__}"
            ))
        if not isinstance(other, Tensor) and not is_number(other):
            if not isinstance(other, np.ndarray):
                if first_met((other,), {}):
                    return getattr(Tensor, name)(self, other)
                return NotImplemented
            if other.dtype.kind in "USOMm":  # text, objects, times: NumPy says what it says
                return NotImplemented
            self, other = _as_numpy_promotes(self, constant(other), function)
        if not swap:
            return function(self, other)
        found = function(other, self)
        return found if kind is None or isinstance(other, Tensor) else named(found, kind)

    kind = _SWAPPED.get(function.__name__)
    return method


def _as_numpy_promotes(
    self: Tensor, other: Tensor, function: Callable[..., Any]
) -> tuple[Tensor, Tensor]:
    """Operands of an operator of a tensor and an array. torch leaves it to NumPy, which promotes
    by dtypes alone: numbers without dimensions count, and integers of 32 bits make a double."""
    mine, its = self.dtype, other.dtype
    if mine.numpy.char not in _OF_NUMPY or its.numpy.char not in _OF_NUMPY:
        return self, other
    kind = np.result_type(mine.numpy, its.numpy)
    if function is P.div and kind.kind not in "fc":
        kind = np.dtype(np.float64)
    found = dtypes.from_numpy(kind)
    return self.to(found), other.to(found)


OPERATORS = {
    "add": P.add, "sub": P.sub, "mul": P.mul, "truediv": P.div, "floordiv": P.floor_divide,
    "mod": P.remainder, "pow": listed(P.pow), "and": P.bitwise_and, "or": P.bitwise_or,
    "xor": P.bitwise_xor, "lshift": P.bitwise_left_shift, "rshift": P.bitwise_right_shift,
}
COMPARISONS = {"eq": P.eq, "ne": P.ne, "lt": P.lt, "le": P.le, "gt": P.gt, "ge": P.ge}


def _negative(self: Tensor) -> Tensor:
    found = promote.float_unary(ops.neg, self) if isinstance(self, Tensor) else None
    return P.neg(self) if found is None else found


@replayed
def _matmul(self: Tensor, other: Any) -> Any:
    if isinstance(other, Tensor):
        return matmul_of_tensors(self, other)
    return Tensor.__matmul__(self, other) if first_met((other,), {}) else NotImplemented


def _rmatmul(self: Tensor, other: Any) -> Any:
    if isinstance(other, Tensor):
        return matmul_of_tensors(other, self)
    return Tensor.__rmatmul__(self, other) if first_met((other,), {}) else NotImplemented


def _invert(self: Tensor) -> Any:
    if self.dtype.differentiable:
        raise TypeError(located(
            "~ (operator.invert) is only implemented on integer and Boolean-type tensors, "
            f"not on {self.dtype}"
        ))
    return P.bitwise_not(self)


def _over(number: Any, x: Tensor) -> Tensor:
    """number / x, which torch computes as a reciprocal, times the number: two roundings."""
    if isinstance(number, Tensor):
        return P.div(number, x)
    return named(P.mul(P.reciprocal(x), number), "MulBackward0")


def operator_methods() -> dict[str, Any]:
    """__add__, __radd__, __eq__ and the like."""
    table: dict[str, Any] = {}
    for name, function in OPERATORS.items():
        direct = _DIRECT.get(name)
        table[f"__{name}__"] = _operator(f"__{name}__", function, direct=direct)
        table[f"__r{name}__"] = _operator(f"__r{name}__", function, True, direct)
    table["__rtruediv__"] = _any_operator(
        "__rtruediv__", listed(_over, "reciprocal"), swap=True
    )
    table["__rdiv__"] = table["__rtruediv__"]
    for name, function in COMPARISONS.items():
        table[f"__{name}__"] = _operator(f"__{name}__", function, direct=_DIRECT[name])
    table |= {"__neg__": _negative, "__pos__": lambda self: self, "__abs__": P.abs,
              "__invert__": _invert, "__matmul__": listed(_matmul, "matmul"),
              "__rmatmul__": listed(_rmatmul, "matmul")}
    return table
