"""Stretches of an axis: where paddings, parts of a concat and updated regions begin and end, an
axis is cut, and walked by one loop for each stretch. There the conditions are known: nothing is
loaded under a mask, and nothing computed for a place that it does not reach."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

from ...dim import Dim, Size, unwrap
from ...record import record

if TYPE_CHECKING:
    from ...machine import Machine
    from .moves import Condition

_MOST = 32  # stretches of an axis
_FEW = 4  # elements of an axis that may have a stretch each: parts of pairs, say


@record
class Along:
    """A loop along a stretch, or along a part of it: `base` + its variable is below `size`."""

    size: int
    base: Size = 0


def stretches(size: Size, var: str, conditions: Iterable[Condition]) -> tuple[int, ...]:
    """The sizes of an axis's stretches; none where it is one, or they are too many."""
    if not isinstance(size, int):
        return ()
    cuts = {0, size}
    for condition in conditions:
        span = _span(condition, var, 0)
        cuts.update(edge for edge in span or () if 0 < edge < size)
    edges = sorted(cuts)
    found = tuple(b - a for a, b in pairwise(edges))
    return found if 1 < len(found) <= _MOST else ()


def are_loops(found: tuple[int, ...], machine: Machine) -> bool:
    """Whether vector loops along these stretches take less time than one under conditions."""
    return min(found) >= machine.stretch or not _FEW < sum(found) < machine.stretched


def _span(condition: Condition, var: str, base: Size) -> tuple[int, int] | None:
    """For which values of `base` and a variable a condition holds (but for its step), where it is
    about nothing else."""
    shift = unwrap(condition.position - base - Dim.var(var))
    low, high = condition.low, condition.high
    if not isinstance(shift, int) or not isinstance(low, int) or not isinstance(high, int):
        return None
    return low - shift, high - shift


def holds_along(condition: Condition, extents: Mapping[str, Along]) -> bool | None:
    """Whether a condition holds all along one of these loops, or nowhere; None: neither is
    known."""
    position = condition.position
    for var in () if isinstance(position, int) else position.variables() & extents.keys():
        along = extents[var]
        span = _span(condition, var, along.base)
        if span is None:
            continue
        low, high = span
        if high <= 0 or low >= along.size:
            return False
        if low <= 0 and high >= along.size and condition.step == 1:
            return True
    return None
