"""What of a compiled call's history a backward pass has used up.

Eager mode frees what was saved operation by operation: of two results of one call, each can be
differentiated once, where no operation that saved something lies behind both. A folded node is
one node; so it keeps, as bits over the operations of the recorded tape, which of them are spent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...frontend.recorded_function import Call
from ...frontend.recorded_tape import Operation, Place, RecordedTape, Write
from ...ir.autodiff import saved_values
from ...ir.dim import DimEnv
from .parts import Parts


class Spending:
    """Which operations that saved something a pass through a tape runs, and what is left then.

    `gradients`: by the tape's entries, the number of the gradient that arrives there.
    """

    def __init__(
        self, tape: RecordedTape, gradients: Sequence[int | None], parts: Parts, env: DimEnv
    ) -> None:
        self._tape = tape
        self._gradients = gradients
        self._parts = parts
        self._saving: list[int] = []  # by step, itself and those behind it, as bits
        self._leads: list[int] = []  # by step, the gradients that it leads to, as bits
        for number, step in enumerate(tape.steps):
            saving, leads = (1 << number if _saves(step, env) else 0), 0
            for place in step.edges:
                if place is not None:
                    saving |= self._behind(place)
                    leads |= self._leads_to(place)
            self._saving.append(saving)
            self._leads.append(leads)
        self._every = 0
        for place in tape.roots:
            self._every |= self._behind(place)
        self._runs: dict[tuple[tuple[bool, ...], tuple[bool, ...]], int] = {}
        self._kept: dict[int, frozenset[int]] = {}

    def _behind(self, place: Place) -> int:
        return self._saving[place[0]] if place[0] >= 0 else 0

    def _leads_to(self, place: Place) -> int:
        if place[0] >= 0:
            return self._leads[place[0]]
        gradient = self._gradients[~place[0]]
        return 0 if gradient is None else 1 << gradient

    def runs(self, given: tuple[bool, ...], needs: Sequence[bool]) -> int:
        """What runs where the cotangents `given` arrive and the gradients `needs` are asked for."""
        key = given, tuple(needs)
        found = self._runs.get(key)
        if found is None:
            found, asked = 0, sum([1 << i for i, need in enumerate(needs) if need])
            for place, there in zip(self._tape.roots, given, strict=True):
                if there:
                    found |= self._behind(place)
            if not all(needs):
                found = sum([1 << i for i in _bits(found) if self._leads[i] & asked])
            self._runs[key] = found
        return found

    def is_all(self, spent: int) -> bool:
        """Whether nothing is left that could run."""
        return not self._every & ~spent

    def kept(self, spent: int) -> frozenset[int]:
        """The places of saved values that a pass may still read where `spent` has run."""
        found = self._kept.get(spent)
        if found is None:
            places: set[int] = set()
            outputs, count = len(self._tape.roots), len(self._parts.graph.outputs)
            for output, gradients in self._left(spent):
                if gradients:
                    given = tuple([i == output for i in range(outputs)])
                    asked = tuple([bool(gradients >> i & 1) for i in range(count)])
                    places.update(self._parts.reads(given, asked))
            found = self._kept[spent] = frozenset(places)
        return found

    def _left(self, spent: int) -> Iterator[tuple[int, int]]:
        """Each result, and the gradients that can still be had of it, as bits."""
        for output, place in enumerate(self._tape.roots):
            gone = 0
            for step in _bits(self._behind(place) & spent):
                gone |= self._leads[step]
            yield output, self._leads_to(place) & ~gone


def _saves(step: Operation | Write | Call, env: DimEnv) -> bool:
    """Whether freeing what it saved keeps a step from running once more."""
    if isinstance(step, Call):
        return bool(step.saved)
    if isinstance(step, Write):
        return False
    needs = [place is not None for place in step.edges]
    return any(saved_values(step.op, step.in_types, step.attrs, needs, env))


def _bits(bits: int) -> Iterator[int]:
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low
