"""sym_int and its kin: arithmetic that takes Python numbers and symbolic sizes alike."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Iterable
from functools import reduce
from typing import Any


def sym_int(a: Any) -> Any:
    """The number without its fraction, as an int."""
    return a if hasattr(a, "dim") else int(a)


def sym_float(a: Any) -> Any:
    """The number as a float."""
    return a * 1.0 if hasattr(a, "trace") else float(a)


def sym_not(a: Any) -> Any:
    """Whether it is false."""
    return not a


def sym_ite(b: Any, t: Any, f: Any) -> Any:
    """`t` where `b` holds, else `f`; both of one type. Raises AssertionError elsewhere."""
    if not isinstance(b, bool) or type(t) is not type(f):
        raise AssertionError(
            f"sym_ite() takes a bool and two values of one type, not {b!r}, {t!r} and {f!r}"
        )
    return t if b else f


def sym_max(a: Any, b: Any) -> Any:
    """The larger number; a float where either is one."""
    return _kind(builtins.max(a, b), a, b)


def sym_min(a: Any, b: Any) -> Any:
    """The smaller number; a float where either is one."""
    return _kind(builtins.min(a, b), a, b)


def _kind(found: Any, a: Any, b: Any) -> Any:
    return float(found) if isinstance(found, int) and float in (type(a), type(b)) else found


def sym_sum(args: Iterable[Any]) -> Any:
    """The sum of numbers."""
    return reduce(operator.add, args, 0)


def sym_sqrt(a: Any) -> Any:
    """The square root; of a symbolic size, of its value in this trace."""
    return math.sqrt(a)
