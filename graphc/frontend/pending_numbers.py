"""Arithmetic on numbers that are there once the graph has run: `total += loss.item()`.

The graph computes in float64 what Python would compute with floats: IEEE 754 says how sums,
products and quotients are rounded. Python's ints have no bounds; what gives one is Python's.
"""

from __future__ import annotations

from typing import Any

from graphc.ir import dtypes
from graphc.ir.op import get as get_op

from . import promote
from .context import local
from .eager import apply
from .numbers import is_traced_number
from .pending import PendingItem, is_pending
from .tensor import Tensor

_LARGEST = 2**1023  # of ints that are a float, too


def combined(op: str, number: PendingItem, other: Any, swap: bool) -> Any:
    """A number from which another is made by a Python operation: `op`, a name in `ops`. None:
    Python has to do it; NotImplemented: the other's class."""
    if isinstance(other, Tensor):
        return NotImplemented
    if local.trace is not number.tensor._graphc_trace:
        return None
    dtype = number.tensor.dtype
    if op in ("neg", "abs"):
        return _pending(number, op, number.tensor) if dtype.is_float else None
    if not (dtype.is_float or _is_float(other)) or dtype.is_complex:
        return None
    if op == "div" and (swap or not _divides(other)):
        return None
    operand = _operand(other)
    if operand is None:
        return None
    pair = (operand, number.tensor) if swap else (number.tensor, operand)
    return _pending(number, op, *pair)


def _pending(number: PendingItem, op: str, *operands: Tensor) -> PendingItem:
    wide = [promote.cast(operand.reshape(()), dtypes.f64) for operand in operands]
    result = apply(get_op(op), *wide)
    return PendingItem(result, "item", number.ask, combined)


def _is_float(value: Any) -> bool:
    if type(value) is PendingItem:
        return is_pending(value) and value.tensor.dtype.is_float
    return type(value) is float or (is_traced_number(value) and not value.is_integer_number)


def _divides(value: Any) -> bool:
    """Whether a number is known not to be zero."""
    return type(value) is not PendingItem and (
        is_traced_number(value) or type(value) in (bool, int, float)
    ) and bool(value != 0)


def _operand(value: Any) -> Tensor | None:
    if type(value) is PendingItem:
        tensor: Tensor = value.tensor
        fits = is_pending(value) and tensor._graphc_trace is local.trace
        return tensor if fits and not tensor.dtype.is_complex else None
    if is_traced_number(value) or type(value) in (bool, float) or (
        type(value) is int and -_LARGEST < value < _LARGEST
    ):
        return promote.operand(value, dtypes.f64)
    return None
