"""Reads of less than all of a container: how many items it has, and whether a key is among them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from ...frontend.trace import Trace
from ..version.guards import Result
from .copies import key_text
from .places import Length, key_of
from .writes import Writes


class Counts(Writes):
    """The counts and keys that one recording has asked for."""

    trace: Trace
    _read: set[Any]

    @staticmethod
    def is_watched(container: Any) -> bool:
        """Whether a container counts its writes."""
        raise NotImplementedError

    def looks_at(self, container: Any) -> None:
        """Something in a container is read."""
        raise NotImplementedError

    def emptiness(self, value: Any, size: Callable[[Any], Any] = bool) -> None:
        """How many items a container has is read, or whether it has any."""
        self.looks_at(value)
        token = (id(value), size)
        if not self.is_known(value):
            return
        self._own_keys(value)
        if token not in self._read:
            self._read.add(token)
            saved = self.saved.get(id(value))
            was = size(value if saved is None else saved[1])
            path = f"{size.__name__}({self.path(value)})"
            self.guards.add(Result(size, (value,), was, path), self.is_watched(value))

    def length(self, value: Any) -> Any:
        """How many items a container has: from its second value on a run-time number."""
        place = Length(value, f"len({self.path(value)})")
        if place not in self.lifted:
            self.emptiness(value, len)
            return len(value)
        self._own_keys(value)
        saved = self.saved.get(id(value))
        before = len(value if saved is None else saved[1])
        pushed = self.pushed.get(id(value))
        if pushed is None or id(value) in self.reshaped:
            return self.trace.lift_number(before, place) + (len(value) - before)
        number = self.trace.lift_number(before, place) + pushed
        return value.maxlen if number > value.maxlen else number

    def _own_keys(self, value: Any) -> None:
        """The call's own writes add a key to a dict only where it was not there."""
        if isinstance(value, dict):
            for key in list(self.keys.get(id(value), ())):
                self.membership(value, key)

    def membership(self, container: Any, key: Any) -> None:
        """Whether a dict or a set has a key is read."""
        self.looks_at(container)
        token = (id(container), "in", key_of(key))
        if token not in self._read:
            self._read.add(token)
            saved = self.saved.get(id(container))
            was = key in (container if saved is None else saved[1])
            path = f"{key_text(key)} in {self.path(container)}"
            guard = Result(operator.contains, (container, key), was, path)
            self.guards.add(guard, self.is_watched(container))
