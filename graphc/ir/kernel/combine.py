"""How two values become one: in combining stores, in carries, between partial results."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from .. import dtypes
from ..dtypes import DType


class Combine(NamedTuple):
    """One way. `operator` is its name among the elementwise operators."""

    operator: str
    ufunc: Any  # what it means: a NumPy function with .reduce and .at
    stores: bool  # whether a store may combine by it


COMBINES = {
    "add": Combine("add", np.add, True),
    "mul": Combine("mul", np.multiply, True),
    "max": Combine("maximum", np.maximum, True),
    "min": Combine("minimum", np.minimum, True),
    "or": Combine("logical_or", np.logical_or, False),
    "and": Combine("logical_and", np.logical_and, False),
}
STORES = frozenset(name for name, combine in COMBINES.items() if combine.stores)
# A carry of the value and the carry of its index behind it.
ARGUMENTS = frozenset({"argmax", "argmin", "argmax_last"})
# What a carry may say: "set" replaces the value.
CARRIES = frozenset({*COMBINES, *ARGUMENTS, "index", "set"})


def lowest(dtype: DType) -> float | int | bool:
    """What every value is at least: the identity of max."""
    if dtype.is_float:
        return -math.inf
    if dtype is dtypes.bool_:
        return False
    return -(1 << (dtype.bits - 1)) if dtype.kind == "int" else 0


def highest(dtype: DType) -> float | int | bool:
    """What every value is at most: the identity of min."""
    if dtype.is_float:
        return math.inf
    if dtype is dtypes.bool_:
        return True
    return (1 << (dtype.bits - (dtype.kind == "int"))) - 1


def identity(combine: str, dtype: DType) -> float | int | bool:
    """The value that a combine leaves the other operand unchanged by; where the value of an
    argmax or argmin starts."""
    if combine in ("max", "argmax", "argmax_last"):
        return lowest(dtype)
    if combine in ("min", "argmin"):
        return highest(dtype)
    if combine == "and":
        return True if dtype is dtypes.bool_ else -1
    number = {"add": 0, "mul": 1, "or": 0}[combine]
    return float(number) if dtype.is_float else bool(number) if dtype is dtypes.bool_ else number
