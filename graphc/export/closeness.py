"""How far two computations of one result may be apart, and where they are further."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from graphc.ir.dtypes import from_numpy
from graphc.ir.graph import Graph
from graphc.ir.types import TupleType


class Tolerance(NamedTuple):
    """|found - wanted| <= rtol * |wanted| + atol * the largest |wanted| of the result."""

    rtol: float
    atol: float


# by the coarsest numbers that a graph computes with
_BY_DTYPE = {
    "f64": Tolerance(1e-7, 1e-8), "c128": Tolerance(1e-7, 1e-8),
    "f32": Tolerance(1e-3, 1e-4), "c64": Tolerance(1e-3, 1e-4),
    "f16": Tolerance(2e-2, 1e-2), "bf16": Tolerance(5e-2, 5e-2),
}


def tolerance_of(graph: Graph) -> Tolerance:
    """Of a graph's results."""
    names: set[str] = set()
    stack = [graph]
    while stack:
        for node in stack.pop().nodes:
            types = node.type.elements if isinstance(node.type, TupleType) else (node.type,)
            names |= {type_.dtype.name for type_ in types}
            stack.extend(node.graphs)
    present = [tolerance for name, tolerance in _BY_DTYPE.items() if name in names]
    return max(present, default=_BY_DTYPE["f64"])


def first_difference(
    found: Sequence[Any], wanted: Sequence[Any], tolerance: Tolerance,
    spread: Sequence[Any] | None = None,
) -> tuple[int, str] | None:
    """The number of the first leaf that differs, and how; None where none does. `spread`: what
    more each element may be off."""
    if len(found) != len(wanted):
        return min(len(found), len(wanted)) - 1, f"is one of {len(found)}, not of {len(wanted)}"
    for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
        said = _difference(one, other, tolerance, None if spread is None else spread[number])
        if said:
            return number, said
    return None


def _difference(found: Any, wanted: Any, tolerance: Tolerance, spread: Any) -> str:
    if not isinstance(wanted, np.ndarray) or not isinstance(found, np.ndarray):
        same = type(found) is type(wanted) and (found == wanted or found != found)
        return "" if same else f"is {found!r}, not {wanted!r}"
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return (f"is {from_numpy(found.dtype)}{list(found.shape)}, not "
                f"{from_numpy(wanted.dtype)}{list(wanted.shape)}")
    off = excess(found, wanted, tolerance, spread)
    if not off.size or not off.any():
        return ""
    place = np.unravel_index(int(np.argmax(off)), off.shape) if off.ndim else ()
    where = "[" + ", ".join(map(str, place)) + "]" if place else ""
    most = f"most in {where}: " if where else ""
    return (f"is off in {int((off > 0).sum()):,} of {off.size:,} elements, {most}"
            f"{found[place]!s} instead of {wanted[place]!s}")


def excess(
    found: np.ndarray, wanted: np.ndarray, tolerance: Tolerance, spread: Any = None
) -> np.ndarray:
    """By how much each element is further off than it may be; 0 where it is not."""
    if wanted.dtype.kind in "biu":
        off = (found != wanted).astype(np.float64)
        return off if spread is None else np.where(spread > 0, 0.0, off)
    with np.errstate(all="ignore"):
        one, other = _wide(found), _wide(wanted)
        finite = np.isfinite(other)
        scale = float(np.abs(other[finite]).max()) if finite.any() else 0.0
        allowed = tolerance.rtol * np.abs(other) + tolerance.atol * scale
        if spread is not None:
            allowed = allowed + spread
        same = (one == other) | ((one != one) & (other != other))
        apart = np.abs(one - other)
        off = np.where(same | (apart <= allowed), 0.0, np.where(np.isnan(apart), np.inf, apart))
    return np.asarray(off)


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def spread(value: Any, others: Sequence[Any], times: float) -> Any:
    """How far each element is moved by larger rounding errors, so many times."""
    if not isinstance(value, np.ndarray):
        return None
    if any(not isinstance(o, np.ndarray) or o.shape != value.shape for o in others):
        return np.full(value.shape, np.inf)  # even its size hangs on rounding
    wide = _wide(value)
    with np.errstate(all="ignore"):
        moved = [np.abs(_wide(other) - wide) for other in others]
    return times * np.max(moved, axis=0)


def beyond(wanted: np.ndarray, spread: np.ndarray, tolerance: Tolerance) -> bool:
    """Whether some element may be moved further than the tolerance allows."""
    if wanted.dtype.kind in "biu":
        return bool((spread > 0).any())
    return bool(excess(_wide(wanted) + spread, wanted, tolerance).any())


def share(
    found: np.ndarray, wanted: np.ndarray, tolerance: Tolerance, apart: float = 0.0
) -> float:
    """How much of what is allowed the largest distance of two close results is."""
    if wanted.dtype.kind in "biu" or not wanted.size:
        return 0.0
    with np.errstate(all="ignore"):
        one, other = _wide(found), _wide(wanted)
        finite = np.isfinite(other) & np.isfinite(one)
        if not finite.any():
            return 0.0
        scale = float(np.abs(other[finite]).max())
        allowed = tolerance.rtol * np.abs(other) + tolerance.atol * scale + apart
        off = np.where(finite, np.abs(one - other), 0.0)
        return float(np.max(np.where(off > 0, off / np.maximum(allowed, 1e-300), 0.0)))
