"""How far two right ways to compute one operator may be apart, as a fact of its record.

Engines add in different orders, fuse a product with a sum, have their own exp. What an operator
may do to the last bits of a float result says how closely its results can be compared, and
whether a value of a 16-bit type needs to be rounded again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from .dtypes import DType
from .named import NamedTuple


class Rounding(NamedTuple):
    """What moves, relative to one operation that is rounded once."""

    units: float  # of each result's last place; 0: its bits are fixed
    operands: bool = False  # as if the operands were off, too: terms in a free order, a root
    overflows: bool = False  # partial sums of one order may be infinite, those of another not
    cancels: bool = False  # two large parts: the error is one of the first operand's last place


EXACT = Rounding(0)  # chosen among the operands, or rounded correctly
ROUNDED = Rounding(1)
SUMMED = Rounding(1, operands=True)
LINEAR = Rounding(1, operands=True, overflows=True)
DELICATE = Rounding(4, operands=True)  # sums, and functions of them
CANCELLING = Rounding(1, cancels=True)

# (attrs, dtypes of the operands, dtypes of the results), where it depends on the call
RoundingRule: TypeAlias = Callable[[Mapping[str, Any], Sequence[DType], Sequence[DType]], Rounding]


def rounding_of(
    fact: Rounding | RoundingRule, attrs: Mapping[str, Any], sources: Sequence[DType],
    results: Sequence[DType],
) -> Rounding:
    """The fact of one call. Integers, bools and complex numbers count as exact."""
    if not any(dtype.is_float for dtype in results):
        return EXACT
    return fact if isinstance(fact, Rounding) else fact(attrs, sources, results)
