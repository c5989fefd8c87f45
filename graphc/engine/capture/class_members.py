"""What classes have under a name, read during a recording: guarded once per class and name."""

from __future__ import annotations

import functools
import operator
from typing import Any

from ...frontend.numbers import is_traced_number
from ..version.guard_list import Guards
from ..version.guards import Entry, Result
from .kinds import is_ours, is_own_name, is_plain, is_standard_class
from .places import MISSING, Place


class ClassMembers:
    """The part of an Observer that looks at classes."""

    guards: Guards
    saved: dict[int, tuple[Any, Any, str]]
    lifted: set[Place]
    _read: set[Any]
    _kept: list[Any]
    _lookups: dict[tuple[int, str], Any]

    def know(self, value: Any, path: str) -> Any:
        """Note that an object existed before the call; gives it."""
        raise NotImplementedError

    def passes(self, path: str) -> None:
        """What a place holds is of this call alone: a later backward pass may find another."""
        raise NotImplementedError

    def lookup(self, kind: type, name: str) -> Any:
        """What a class or its bases have under a name; MISSING if nothing. Guarded."""
        found = self._lookups.get((id(kind), name))
        if found is None:
            self.order(kind)
            found = self._lookups[id(kind), name] = (self.look(kind.__mro__, name),)
            self._kept.append(kind)
        value = found[0]
        return value

    def order(self, kind: type) -> None:
        """The bases of a class are relied on."""
        token = (id(kind), "order")
        name = kind.__module__
        if token not in self._read:
            self._read.add(token)
            self._kept.append(kind)
            if not (is_own_name(name) or is_ours(kind) or is_standard_class(kind)):
                order = f"the order of {kind.__qualname__}'s bases"
                self.guards.add(Result(members_in_order, (kind,), kind.__mro__, order))

    def look(self, bases: tuple[type, ...], name: str) -> Any:
        """What the first of these classes that has a name has under it; MISSING if none does.
        Guarded."""
        for base in bases:
            value = vars(base).get(name, MISSING)
            fixed = base.__flags__ & _IMMUTABLE or is_standard_class(base)
            saved = self.saved.get(id(base))
            written = saved is not None and saved[1].get(name, MISSING) is not value
            token = (id(base), (str, name))
            if written:
                self.passes(f"{base.__qualname__}.{name}")
            done = written or token in self._read
            if fixed or done or name in ("__dict__", "__class__"):
                pass
            elif value is not MISSING or not base.__module__.startswith("graphc."):
                self._read.add(token)
                place = Place(base, name, f"{base.__qualname__}.{name}")
                if place not in self.lifted and not is_traced_number(value):
                    self.guards.add(Entry(place, value, not is_plain(value)))
                else:
                    self.passes(place.path)
            if value is not MISSING:
                if not written and not is_plain(value):
                    path = f"{base.__qualname__}.{name}"
                    self.know(value, path)
                    for part in _FUNCTIONS_OF.get(type(value), ()):
                        self.know(getattr(value, part), path)
                return value
        return MISSING


# the functions of what a class may hold in place of one
_FUNCTIONS_OF: dict[type, tuple[str, ...]] = {
    property: ("fget", "fset", "fdel"), classmethod: ("__func__",), staticmethod: ("__func__",),
    functools.cached_property: ("func",),
}
members_in_order = operator.attrgetter("__mro__")
_IMMUTABLE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE
