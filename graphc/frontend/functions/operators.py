"""Python's operators as methods: x + y, 2 ** x, x == y."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..autocast import listed
from ..dispatch import constant
from ..errors import located
from ..promote import is_number
from ..tensor import Tensor
from . import pointwise as P


def _operator(function: Callable[..., Any], swap: bool = False) -> Callable[[Any, Any], Any]:
    def method(self: Tensor, other: Any) -> Any:
        if not isinstance(self, Tensor):
            raise TypeError(located(
                f"{function.__name__}: a Tensor's method called on {type(self).__name__}"
            ))
        if not isinstance(other, Tensor) and not is_number(other):
            if not isinstance(other, np.ndarray):
                return NotImplemented
            other = constant(other)
        return function(other, self) if swap else function(self, other)

    return method


OPERATORS = {
    "add": P.add, "sub": P.sub, "mul": P.mul, "truediv": P.div, "floordiv": P.floor_divide,
    "mod": P.remainder, "pow": listed(P.pow), "and": P.bitwise_and, "or": P.bitwise_or,
    "xor": P.bitwise_xor, "lshift": P.bitwise_left_shift, "rshift": P.bitwise_right_shift,
}
COMPARISONS = {"eq": P.eq, "ne": P.ne, "lt": P.lt, "le": P.le, "gt": P.gt, "ge": P.ge}


def operator_methods() -> dict[str, Any]:
    """__add__, __radd__, __eq__ and the like."""
    table: dict[str, Any] = {}
    for name, function in OPERATORS.items():
        table[f"__{name}__"] = _operator(function)
        table[f"__r{name}__"] = _operator(function, swap=True)
    # torch's is a reciprocal, times the number
    table["__rtruediv__"] = _operator(listed(P.div, "reciprocal"), swap=True)
    table["__rdiv__"] = table["__rtruediv__"]
    for name, function in COMPARISONS.items():
        table[f"__{name}__"] = _operator(function)
    table |= {"__neg__": P.neg, "__pos__": lambda self: self, "__abs__": P.abs,
              "__invert__": P.bitwise_not}
    return table
