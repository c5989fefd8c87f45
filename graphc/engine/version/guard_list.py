"""The guards of a version: one list, which explain() prints.

It is ordered by when guards can be asked, then by what asking costs, so that a call which does not
fit finds out early; of those that cost the same the first met comes first. Entries of dictionaries
that count their writes (frontend/watched.py), and attributes of Modules and optimizers that
graphc's own code read, are *counted*: an unchanged counter skips them all.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from ...frontend import state_version
from ..capture.places import Place
from .call import Call
from .guards import Asked, Entry, Fields, Guard, Items, OfArgument
from .sources import Stale


class Guards:
    """The guards of one version."""

    def __init__(self) -> None:
        self.records: list[Guard] = []
        # told by the recording, for the call that is to run next: those asked last hold
        self.asked = False
        self._fields: dict[int, Fields] = {}  # by the id of the dict
        self._of_arguments: set[tuple[int, str]] = set()
        # those that are asked together, in order, once the recording is over
        self.loose: tuple[Guard, ...] = ()  # on state
        self.counted: tuple[Guard, ...] = ()
        self.of_calls: tuple[Guard, ...] = ()
        self.of_memory: tuple[Guard, ...] = ()
        self.of_fetched: tuple[Guard, ...] = ()
        self.of_numbers: tuple[Guard, ...] = ()
        self._last: tuple[Guard, ...] = ()
        # the address of the number `version`, for native code
        self.seen = ctypes.c_int64()
        self.version = state_version.current()

    @property
    def version(self) -> int:
        """The count of writes at which those that are counted held."""
        return self._version

    @version.setter
    def version(self, count: int) -> None:
        self.seen.value = 0  # while none of the two is looked at, as other objects may come there
        self._version = count
        self.seen.value = id(count)

    def add(self, guard: Guard, counted: bool = False) -> None:
        """One more; `counted`: it can only break when the count of writes grows."""
        guard.counted = counted
        self.records.append(guard)

    def found_by(self, guards: Iterable[Guard]) -> None:
        """What the version is found by, which is known when it is made; it comes first."""
        found = list(guards)
        for guard in found:
            guard.counted = False
        self.records[:0] = found

    def field(self, owner: Any, fields: dict[str, Any], name: str, value: Any, path: str) -> None:
        """A counted field of a Module or an optimizer was read."""
        found = self._fields.get(id(fields))
        if found is None:
            found = self._fields[id(fields)] = Fields(owner, fields, path)
            self.add(found)
        found.note(name, value)

    def of_argument(self, index: int, name: str, value: Any) -> None:
        """An attribute that the user gave to a tensor among the arguments was read."""
        if (index, name) not in self._of_arguments:
            self._of_arguments.add((index, name))
            self.add(OfArgument(index, name, value))

    def broken(self) -> Guard | None:
        """The first guard on state that does not hold; None if all do."""
        for guard in self.loose:
            if not guard.holds():
                return guard
        return self.counted_broken()

    def counted_broken(self) -> Guard | None:
        """The first of those that the count of writes tells of that does not hold."""
        version = state_version.current()
        if version == self.version:
            return None
        for guard in self.counted:
            if not guard.holds():
                return guard
        self.version = version
        return None

    def last_broken(self) -> Guard | None:
        """The first of those asked last that does not hold."""
        if self.asked:
            self.asked = False
            return None
        if not self._last:  # as nearly always
            return None
        return next((guard for guard in self._last if not guard.holds()), None)

    @property
    def asks_last(self) -> bool:
        """Whether some are asked for real at each call, after all others."""
        return bool(self._last)

    def on_state(self) -> Iterator[Guard]:
        """Those that say how the user's objects are."""
        return (guard for guard in self.records if guard.asked is Asked.STATE)

    def all_broken(self) -> list[Guard]:
        """Every guard on state that does not hold."""
        return [guard for guard in self.on_state() if not guard.holds()]

    def fixed(self) -> dict[int, set[Place]]:
        """By the id of a tensor: the places at which it must be the same one."""
        found: dict[int, set[Place]] = {}
        for guard in self.records:
            for place, value in guard.tensors():
                found.setdefault(id(value), set()).add(place)
        return found

    def drop(self, places: set[Place]) -> None:
        """Forget what is at these places: it is a run-time input."""
        for guard in self.records:
            if isinstance(guard, Items):
                for place in places:
                    if place.container is guard.container:
                        guard.fetch(place)

        def kept(guard: Guard) -> bool:
            return not (isinstance(guard, Entry) and guard.place in places)

        self.records = [guard for guard in self.records if kept(guard)]

    def seal(self) -> None:
        """The recording is over, and all guards on state hold now, at this count."""
        self.records.sort(key=lambda guard: (guard.asked, guard.counted, guard.cost))
        groups = {
            key: tuple(found) for key, found in groupby(
                self.records, lambda guard: (guard.asked, guard.counted)
            )
        }
        self.loose = groups.get((Asked.STATE, False), ())
        self.counted = groups.get((Asked.STATE, True), ())
        self.of_calls, self.of_memory, self.of_fetched, self.of_numbers, self._last = (
            groups.get((asked, False), ()) for asked in
            (Asked.CALL, Asked.MEMORY, Asked.FETCHED, Asked.NUMBERS, Asked.LAST)
        )
        self.version = state_version.current()


def ask(guards: tuple[Guard, ...], call: Call) -> None:
    """Raise Stale for the first that does not hold in a call."""
    for guard in guards:
        if not guard.holds_for(call):
            raise Stale(guard.reason(call))
