"""What expressions over named sizes may come to, for all values of the sizes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np

from graphc.export.errors import ExportError
from graphc.ir.dim import Atom, Dim, Size

Ranges: TypeAlias = Mapping[str, tuple[int, int]]
Interval: TypeAlias = tuple[int, int]


def bounds(size: Size, ranges: Ranges) -> Interval:
    """No value of a size is smaller, or larger. Raises ExportError for a division by what may not
    be positive."""
    if isinstance(size, int):
        return size, size
    low = high = 0
    for monomial, coefficient in size.terms:
        term = coefficient, coefficient
        for atom, power in monomial:
            for _ in range(power):
                term = _product(term, _atom(atom, ranges))
        low, high = low + term[0], high + term[1]
    return low, high


def _product(a: Interval, b: Interval) -> Interval:
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


def _atom(atom: Atom, ranges: Ranges) -> Interval:
    if atom.kind == "var":
        return ranges[atom.name]
    a, b = (bounds(each, ranges) for each in atom.args)
    if atom.kind == "min":
        return min(a[0], b[0]), min(a[1], b[1])
    if atom.kind == "max":
        return max(a[0], b[0]), max(a[1], b[1])
    if b[0] < 1:
        raise ExportError(f"{atom.text()} divides by what may be {b[0]}: sizes are {_told(ranges)}")
    if atom.kind == "mod":
        return 0, b[1] - 1
    corners = [x // y for x in a for y in b]
    return min(corners), max(corners)


def _told(ranges: Ranges) -> str:
    return ", ".join(f"{name} {low} to {high}" for name, (low, high) in ranges.items())


def values(sizes: Iterable[Size], ranges: Ranges, most: int) -> np.ndarray | None:
    """Every row of values that some sizes have together, each once; None where there may be more
    than `most` values of the named sizes to look at."""
    sizes = list(sizes)
    names = sorted({n for size in sizes if isinstance(size, Dim) for n in size.variables()})
    spans = [np.arange(low, high + 1, dtype=np.int64) for low, high in map(ranges.get, names)]  # type: ignore[misc]
    count = 1
    for span in spans:
        count *= len(span)
    if count > most:
        return None
    grid = dict(zip(names, (g.reshape(-1) for g in np.meshgrid(*spans, indexing="ij")),
                    strict=True))
    columns = [np.broadcast_to(_valued(size, grid), (count,)) for size in sizes]
    return np.unique(np.stack(columns, axis=1), axis=0) if columns else np.zeros((1, 0), np.int64)


def _valued(size: Size, grid: Mapping[str, np.ndarray]) -> Any:
    if isinstance(size, int):
        return size
    total: Any = 0
    for monomial, coefficient in size.terms:
        term: Any = coefficient
        factors = (itertools.repeat(atom, power) for atom, power in monomial)
        for atom in itertools.chain.from_iterable(factors):
            term = term * _valued_atom(atom, grid)
        total = total + term
    return total


_COMBINE = {
    "floordiv": np.floor_divide, "mod": np.mod, "min": np.minimum, "max": np.maximum,
}


def _valued_atom(atom: Atom, grid: Mapping[str, np.ndarray]) -> Any:
    if atom.kind == "var":
        return grid[atom.name]
    return _COMBINE[atom.kind](*(_valued(each, grid) for each in atom.args))
