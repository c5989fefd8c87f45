"""The exact range of an index expression, by trying every iteration of its loops.

Interval analysis treats terms that share a variable as independent, and so may find a range too
wide; where it does, the verifier asks here.
"""

from __future__ import annotations

import numpy as np

from ..dim import Atom, Dim, Size, unwrap
from .bounds import Interval, Scope

_LIMIT = 1 << 20  # iterations
_Points = dict[str, np.ndarray]


def exact_interval(index: Size, scope: Scope) -> Interval | None:
    """Bounds of `index`; None where there are too many iterations, or they depend on data.

    An index that is never reached has the bounds (0, -1).
    """
    index = scope.resolve(index)
    if isinstance(index, int):
        return index, index
    needed = _needed(index, scope)
    if not needed <= scope.extents.keys():
        return None
    points: _Points = {}
    count = 1
    for var in scope.extents:
        if var not in needed:
            continue
        extent = scope.extents[var]
        sizes = np.maximum(np.broadcast_to(_value(extent, points), (count,)), 0)
        count = int(sizes.sum())
        if count > _LIMIT:
            return None
        points = {name: np.repeat(values, sizes) for name, values in points.items()}
        starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
        points[var] = np.arange(count) - starts
    if count == 0:
        return 0, -1
    found = _value(index, points)
    return int(np.min(found)), int(np.max(found))


def _needed(index: Dim, scope: Scope) -> set[str]:
    """The names that the index, and the extents of its loops, depend on."""
    needed = set(index.variables())
    for var in reversed(scope.extents):
        extent = scope.extents[var]
        if var in needed and isinstance(extent, Dim):
            needed |= extent.variables()
    return needed


def _value(size: Size, points: _Points) -> np.ndarray:
    if isinstance(size, int):
        return np.asarray(size, np.int64)
    total = np.zeros((), np.int64)
    for monomial, coefficient in size.terms:
        term = np.asarray(coefficient, np.int64)
        for atom, power in monomial:
            term = term * _atom(atom, points) ** power
        total = total + term
    return total


def _atom(atom: Atom, points: _Points) -> np.ndarray:
    if atom.kind == "var":
        return points[atom.name]
    left, right = (_value(unwrap(arg), points) for arg in atom.args)
    found: np.ndarray = _COMBINE[atom.kind](left, right)
    return found


_COMBINE = {
    "min": np.minimum, "max": np.maximum, "floordiv": np.floor_divide, "mod": np.remainder,
}
