"""What needs no rounding when it is stored in half precision: it is a half already, or is made of
halves by operators that give one of their operands, or an integer below it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from graphc.ir.dtypes import DType
from graphc.ir.kernel import Apply, Literal, Scalar, Var
from graphc.ir.op import REGISTRY
from graphc.ir.rounding import EXACT

Lets = Mapping[str, Scalar]  # what names stand for
_DEPTH = 8  # operators that are looked through
_SIGN_BIT = frozenset(("neg", "abs"))


def is_half(dtype: DType) -> bool:
    """Whether it is a float of 16 bits."""
    return dtype.is_float and dtype.bits == 16


def fits(scalar: Scalar, half: DType, lets: Lets, depth: int = _DEPTH) -> bool:
    """Whether a float32 value is one of those that `half` has."""
    scalar = _meant(scalar, lets)
    if isinstance(scalar, Literal):
        with np.errstate(over="ignore"):
            narrow = np.asarray(scalar.value, np.float32).astype(half.numpy)
        return bool(np.float32(narrow) == np.float32(scalar.value))
    if not isinstance(scalar, Apply) or not depth:
        return False
    if scalar.op == "cast":
        return scalar.args[0].dtype is half
    record = REGISTRY.get(scalar.op)
    if record is None or not record.elementwise or record.rounding is not EXACT:
        return False
    given = [arg for arg in scalar.args if arg.dtype is scalar.dtype]
    return bool(given) and all(fits(arg, half, lets, depth - 1) for arg in given)


def by_bits(scalar: Apply, lets: Lets) -> tuple[list[str], Var] | None:
    """Of a half that is made of another by its sign bit alone: the operators, the last first, and
    that other."""
    half, names = scalar.dtype, list[str]()
    if scalar.op != "cast" or not is_half(half):
        return None
    inner = _meant(scalar.args[0], lets)
    while isinstance(inner, Apply) and inner.op in _SIGN_BIT:
        names.append(inner.op)
        inner = _meant(inner.args[0], lets)
    if not names or not isinstance(inner, Apply) or inner.op != "cast":
        return None
    (source,) = inner.args
    # what has a name has been computed: a load, say, from memory that is another by now
    return (names, source) if source.dtype is half and isinstance(source, Var) else None


def _meant(scalar: Scalar, lets: Lets) -> Scalar:
    return lets.get(scalar.name, scalar) if isinstance(scalar, Var) else scalar
