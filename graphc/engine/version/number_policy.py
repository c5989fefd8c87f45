"""Which number arguments a trace gets as themselves, and which as run-time inputs.

The first value of a position is passed as itself. At its second distinct value the position is
lifted: any value fits. Where a trace had to decide upon the very value (a size, a dict's key, a
text), the position is passed as itself again from then on, and there is a version per value.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...frontend.number_expr import NumberGuard, spelled
from ...frontend.tree import Structure

_LIFTED, _DECIDED = object(), object()


class NumberPolicy:
    """What was seen of the numbers at each position; an int and a float there are apart."""

    def __init__(self, at_once: bool) -> None:
        self._at_once = at_once  # lift from the first value
        # the first value, _LIFTED or _DECIDED, by structure, position and type
        self._states: dict[Any, Any] = {}

    def part(self, structure: Structure, position: int, value: float | int) -> Any:
        """The number's part of a version's key: its type where it is lifted, else its value."""
        place = (structure, position, type(value))
        own = spelled(value)
        state = self._states.setdefault(place, _LIFTED if self._at_once else own)
        if state is _DECIDED or state == own:
            return own
        if state is not _LIFTED:
            self._states[place] = _LIFTED
        return type(value)

    def decide(self, structure: Structure, positions: Iterable[int], leaves: list[Any]) -> None:
        """From now on these numbers are passed as themselves."""
        self._set(_DECIDED, structure, positions, leaves)

    def lift(self, structure: Structure, positions: Iterable[int], leaves: list[Any]) -> None:
        """From now on these numbers are run-time inputs."""
        self._set(_LIFTED, structure, positions, leaves)

    def _set(
        self, state: object, structure: Structure, positions: Iterable[int], leaves: list[Any]
    ) -> None:
        for position in positions:
            self._states[structure, position, type(leaves[position])] = state


def decided_upon(guards: Iterable[NumberGuard]) -> set[int]:
    """The arguments whose very values a trace decided upon."""
    sources = (g.expression.args[0] for g in guards if g.expression.op == "source")
    return {source[1] for source in sources if type(source) is tuple}
