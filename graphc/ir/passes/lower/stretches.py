"""Stretches of an axis: where paddings, parts of a concat and updated regions begin and end, an
axis is cut, and walked by one loop for each stretch. There the conditions are known: nothing is
loaded under a mask, and nothing computed for a place that it does not reach."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

from ...dim import Dim, Size, unwrap

if TYPE_CHECKING:
    from ...machine import Machine
    from .moves import Condition

_MOST = 8  # stretches of an axis: each repeats the code
_FEW = 4  # elements of an axis that may have a stretch each: parts of pairs, say


def stretches(
    size: Size, var: str, conditions: Iterable[Condition], machine: Machine
) -> tuple[int, ...]:
    """The sizes of an axis's stretches; none where it is one, or one is too short for a loop."""
    if not isinstance(size, int):
        return ()
    cuts = {0, size}
    for condition in conditions:
        span = _span(condition, var)
        cuts.update(edge for edge in span or () if 0 < edge < size)
    edges = sorted(cuts)
    found = tuple(b - a for a, b in pairwise(edges))
    loops = min(found) >= machine.stretch or not _FEW < size < machine.stretched
    return found if 1 < len(found) <= _MOST and loops else ()


def _span(condition: Condition, var: str) -> tuple[int, int] | None:
    """For which values of a variable a condition holds (but for its step), where it is about
    nothing else."""
    shift = unwrap(condition.position - Dim.var(var))
    low, high = condition.low, condition.high
    if not isinstance(shift, int) or not isinstance(low, int) or not isinstance(high, int):
        return None
    return low - shift, high - shift


def holds_along(condition: Condition, extents: Mapping[str, int]) -> bool | None:
    """Whether a condition holds all along one of these loops, or nowhere; None: neither is
    known."""
    position = condition.position
    for var in () if isinstance(position, int) else position.variables() & extents.keys():
        span = _span(condition, var)
        if span is None:
            continue
        low, high = span
        if high <= 0 or low >= extents[var]:
            return False
        if low <= 0 and high >= extents[var] and condition.step == 1:
            return True
    return None
