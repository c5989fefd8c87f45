"""Many symbolic sizes compared at once: which are surely no less than others, for all dims.

A size is a row of numbers, one for each product of names that any of them is made of. What is
rounded up to a multiple (the next buffer of an arena) is the exact number less a remainder, which
is a name with bounds of its own. So the least that a difference of two sizes can be is a sum.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np

from ...dim import Atom, Dim, Monomial, Size, unwrap

Rows = np.ndarray[Any, Any]
_FAR = 1e30  # stands for what has no bound


class Ruler:
    """Knows what all of some sizes are made of. Dims are not negative."""

    def __init__(self, sizes: Iterable[Size]) -> None:
        self._columns: dict[Hashable, int] = {(): 0}
        self._bounds = [(1.0, 1.0)]
        for size in sizes:
            self._parts(size)
        self._least, self._most = map(np.array, zip(*self._bounds, strict=True))

    def row(self, size: Size) -> Rows:
        """Of one of the sizes."""
        found = np.zeros(len(self._bounds))
        for column, number in self._parts(size):
            found[column] += number
        return found

    def least(self, rows: Rows) -> Rows:
        """What sizes, or differences of them, are at least: [n, columns] -> [n]."""
        found: Rows = np.maximum(rows, 0) @ self._least + np.minimum(rows, 0) @ self._most
        return found

    def _parts(self, size: Size, by: int = 1) -> list[tuple[int, int]]:
        """Columns, and how many of each."""
        if isinstance(size, int):
            return [(0, by * size)]
        found: list[tuple[int, int]] = []
        for monomial, coefficient in size.terms:
            number = by * coefficient
            rounded = _rounded(monomial, number)
            if rounded is None:
                bounds = (0.0 if _is_natural(monomial) else -_FAR, _FAR)
                found.append((self._column(monomial, bounds), number))
                continue
            inside, divisor = rounded
            found += self._parts(inside, number // divisor)
            rest = self._column(("rest", inside, divisor), (0.0, divisor - 1.0))
            found.append((rest, -(number // divisor)))
        return found

    def _column(self, name: Hashable, bounds: tuple[float, float]) -> int:
        if not name:
            return 0
        column = self._columns.setdefault(name, len(self._bounds))
        if column == len(self._bounds):
            self._bounds.append(bounds)
        return column


def _rounded(monomial: Monomial, number: int) -> tuple[Size, int] | None:
    """(a, b) where a term is a multiple of b * (a // b)."""
    if len(monomial) != 1 or monomial[0][1] != 1 or monomial[0][0].kind != "floordiv":
        return None
    inside, divisor = map(unwrap, monomial[0][0].args)
    if not isinstance(divisor, int) or divisor <= 0 or number % divisor:
        return None
    return inside, divisor


def _is_natural(monomial: Monomial) -> bool:
    return all(_is_natural_atom(atom) for atom, _ in monomial)


def _is_natural_atom(atom: Atom) -> bool:
    return atom.kind == "var" or all(_is_natural_size(unwrap(arg)) for arg in atom.args)


def _is_natural_size(size: Size) -> bool:
    if not isinstance(size, Dim):
        return size >= 0
    return all(number >= 0 and _is_natural(monomial) for monomial, number in size.terms)
