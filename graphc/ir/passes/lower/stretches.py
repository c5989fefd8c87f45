"""Stretches of an axis: where paddings, parts of a concat and updated regions begin and end, an
axis is cut, and walked by one loop for each stretch. There the conditions are known: nothing is
loaded under a mask, and nothing computed for a place that it does not reach."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

from ...dim import Dim, Size, floordiv, substitute, unwrap
from ...record import record

if TYPE_CHECKING:
    from ...machine import Machine
    from .moves import Condition

_MOST = 32  # stretches of an axis
_FEW = 4  # elements of an axis that may have a stretch each: parts of pairs, say


@record
class Along:
    """A loop along a stretch, or along a part of it: `base` + its variable is below `size`; so many
    of its steps are one of the outermost axis that its own was merged from."""

    size: int
    base: Size = 0
    unit: int = 1


def stretches(
    size: Size, var: str, conditions: Iterable[Condition], unit: int = 1
) -> tuple[int, ...]:
    """The sizes of an axis's stretches; none where it is one, or they are too many. `unit`: see
    Along."""
    if not isinstance(size, int):
        return ()
    cuts = {0, size}
    for condition in conditions:
        span = _span(condition, Dim.var(var), unit)
        cuts.update(edge for edge in span or () if 0 < edge < size)
    edges = sorted(cuts)
    found = tuple(b - a for a, b in pairwise(edges))
    return found if 1 < len(found) <= _MOST else ()


def are_loops(found: tuple[int, ...], machine: Machine) -> bool:
    """Whether vector loops along these stretches take less time than one under conditions."""
    return min(found) >= machine.stretch or not _FEW < sum(found) < machine.stretched


def _span(condition: Condition, place: Size, unit: int) -> tuple[int, int] | None:
    """For which places a condition holds (but for its step), where it is about nothing else."""
    low, high = condition.low, condition.high
    if not isinstance(low, int) or not isinstance(high, int):
        return None
    for steps in (1, unit):
        shift = unwrap(condition.position - floordiv(place, steps))
        if isinstance(shift, int):
            return (low - shift) * steps, (high - shift) * steps
    return None


def is_decided(condition: Condition, var: str, unit: int) -> bool:
    """Whether a condition is about an axis alone: all along each of its stretches, or nowhere."""
    return condition.step == 1 and _span(condition, Dim.var(var), unit) is not None


def holds_along(condition: Condition, extents: Mapping[str, Along]) -> bool | None:
    """Whether a condition holds all along one of these loops, or nowhere; None: neither is
    known."""
    position = condition.position
    if isinstance(position, int):
        return _holds_at(condition, position)
    for var in position.variables() & extents.keys():
        along = extents[var]
        span = _span(condition, along.base + Dim.var(var), along.unit)
        if span is None:
            continue
        low, high = span
        if high <= 0 or low >= along.size:
            return False
        if low <= 0 and high >= along.size and condition.step == 1:
            return True
    alone = {v: 0 for v in position.variables() if _is_one_place(extents.get(v))}
    there = substitute(position, alone) if alone else position
    return _holds_at(condition, there) if isinstance(there, int) else None


def _is_one_place(along: Along | None) -> bool:
    return along is not None and along.size == 1 and along.base == 0


def _holds_at(condition: Condition, position: int) -> bool | None:
    """Whether a condition holds for one place that is known."""
    low, high, phase = condition.low, condition.high, condition.phase
    if not isinstance(low, int) or not isinstance(high, int) or not isinstance(phase, int):
        return None
    return low <= position < high and (position - phase) % condition.step == 0
