"""What a recording writes to containers that existed before, and how each call does it again.

A container is copied before its first write. What was written by key (an attribute, an item) is
written again by key; what was put at a list's end is put at the end of what the list is then; any
other change of a length or an order needs a guard on all items, and gives the container all of its
new ones. A write of what was there already changes nothing: that it is there is a guard.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np

from ...frontend.context import local
from ...frontend.errors import user_location
from ...frontend.watched import Watched, WatchedOrdered
from ...ir.graph import Loc
from ...optim.optimizer import ParamGroup
from ..version.guard_list import Guards
from ..version.guards import Entry
from .copies import copy_of, entry_path, items_of, memory_of, put_back
from .kinds import is_plain
from .places import MISSING, Place

Change = tuple[Place, Any, Any]


class Contents(Place):
    """All items of a container."""

    __slots__ = ()

    def __init__(self, container: Any, path: str) -> None:
        super().__init__(container, _ALL, path)

    def get(self) -> Any:
        """The items, in a container of their own."""
        return items_of(self.container)

    def set(self, value: Any) -> None:
        """Give the container these items."""
        put_back(self.container, value)


class Tail(Place):
    """What comes at the end of a list or a deque, wherever that is."""

    __slots__ = ("length",)

    def __init__(self, container: Any, length: int, path: str) -> None:
        super().__init__(container, _END, path)
        self.length = length  # of the container before the call that was recorded

    def get(self) -> Any:
        """Nothing is there yet."""
        return MISSING

    def set(self, value: Any) -> None:
        """Put items there."""
        kind = deque if isinstance(self.container, deque) else list
        kind.extend(self.container, value)

    def put(self, value: Any) -> None:
        """Put items there, or take away what the recording did."""
        if value is not MISSING:
            self.set(value)
            return
        while len(self.container) > self.length:
            del self.container[-1]


class Window(Tail):
    """What comes at the end of a deque with a maxlen; what is at the other end may fall out."""

    __slots__ = ("before",)

    def __init__(self, container: Any, before: list[Any], path: str) -> None:
        super().__init__(container, len(before), path)
        self.before = before  # all items, until what the recording did is taken back

    def put(self, value: Any) -> None:
        """Put items there, or take away what the recording did."""
        if value is not MISSING:
            self.set(value)
            return
        put_back(self.container, self.before)
        self.before = []


class Variable(Place):
    """A context's variable (contextvars)."""

    __slots__ = ("token",)

    def __init__(self, variable: ContextVar[Any], path: str) -> None:
        super().__init__(variable, None, path)
        self.token: Any = None  # of the first write that the recording did

    def put(self, value: Any) -> None:
        """Put a value, or take back what the recording did."""
        if value is MISSING:
            if self.get() is not MISSING:
                self.container.reset(self.token)
            return
        super().put(value)


class Repeat(Place):
    """A function that is called at each call: its place in the order of the effects."""

    __slots__ = ("names",)

    def __init__(self, function: Callable[..., Any], names: tuple[str, ...]) -> None:
        super().__init__(function, object(), getattr(function, "__name__", "a call"))
        self.names = names  # of the last arguments

    def get(self) -> Any:
        """Nothing is there."""
        return MISSING

    def set(self, value: Any) -> None:
        """Call it, with these arguments."""
        count = len(value) - len(self.names)
        self.container(*value[:count], **dict(zip(self.names, value[count:], strict=True)))


def _differs(container: Any, copy: Any) -> bool:
    if isinstance(copy, np.ndarray):  # of objects
        return any(a is not b for a, b in zip(copy.flat, container.flat, strict=True))
    return bytes(container) != bytes(copy)


_ALL, _END = object(), object()


class Writes:
    """The containers that one recording has written to."""

    guards: Guards
    _whole: set[int]  # ids of containers that were read whole

    def __init__(self) -> None:
        self.saved: dict[int, tuple[Any, Any, str]] = {}  # container, its copy, path
        self.fields: dict[Place, Any] = {}  # slots, cells, attributes of tensors before a write
        self._written: list[int | Place] = []  # what is in `saved` and in `fields`, as it came
        self.real: set[int] = set()  # containers that got state which the call made for good
        self.lifted: set[Place] = set()  # places whose number is a run-time input
        self.keys: dict[int, dict[Any, None]] = {}  # what was written by key, by container
        self.variables: dict[ContextVar[Any], Variable] = {}  # that were set
        self.repeats: dict[Place, list[Any]] = {}  # with the arguments
        self.removed: dict[int, set[Any]] = {}  # keys that were, at some time
        self.reshaped: set[int] = set()  # containers that changed otherwise than by key and tail
        self.pushed: dict[int, int] = {}  # how many items, to the end of a deque with a maxlen
        self.lent: set[int] = set()  # NumPy memory that graphc's own code got
        self._kept: list[Any] = []  # keeps ids taken
        self._lines: dict[int, Loc | None] = {}  # of first writes, while exporting
        self._effects = 0

    def is_known(self, value: Any) -> bool:
        """Whether an object existed before the call."""
        raise NotImplementedError

    def path(self, value: Any) -> str:
        """An object's name in the user's words."""
        raise NotImplementedError

    def was_read(self, place: Place) -> bool:
        """Whether a place was read before the call wrote to it."""
        raise NotImplementedError

    def is_of_the_call(self, place: Place, value: Any) -> bool:
        """Whether what was put into a place that nobody had read is a tensor that calls are given:
        each call puts its own there, also where this one's was there before."""
        raise NotImplementedError

    def whole(self, value: Any, deep: bool = True) -> None:
        """Code that graphc does not follow reads everything in an object."""
        raise NotImplementedError

    # --- before a write ----------------------------------------------------------------------

    def save(self, container: Any, path: str = "") -> None:
        """A container that existed before is about to be written to."""
        self._note_line(container)
        self._effects += 1
        if id(container) not in self.saved:
            self.saved[id(container)] = container, copy_of(container), path or self.path(container)
            self._written.append(id(container))

    def write(self, container: Any, key: Any, path: str = "") -> None:
        """An item of a container that existed before is about to be written."""
        self.save(container, path)
        self.keys.setdefault(id(container), {})[key] = None

    def remove(self, container: Any, key: Any) -> None:
        """An item of a dict that existed before is about to be removed."""
        self.write(container, key)
        self.removed.setdefault(id(container), set()).add(key)

    def reshape(self, container: Any) -> None:
        """The items of a container are about to change in a way that depends on all of them."""
        self.whole(container, deep=False)
        self.save(container)
        self.reshaped.add(id(container))

    def extend(self, container: Any, one: bool = False) -> None:
        """Items, or one, are about to be put at the end of a list or a deque."""
        if getattr(container, "maxlen", None) is None:
            self.save(container)
        elif one:
            self.save(container)
            self.pushed[id(container)] = self.pushed.get(id(container), 0) + 1
        else:  # what falls out at the other end depends on how many
            self.reshape(container)

    def save_field(self, container: Any, key: Any, path: str) -> None:
        """A slot, a cell or an attribute that stands alone is about to be written to."""
        self.save_place(Place(container, key, path))

    def save_place(self, place: Place) -> bool:
        """The same; whether this is the first write."""
        self._note_line(place.container)
        self._effects += 1
        if place in self.fields:
            return False
        self.fields[place] = place.get()
        self._written.append(place)
        self._kept.append(place.container)
        return True

    def repeat(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Repeat:
        """Each call calls a function outside the program, after what it writes."""
        self._effects += 1
        place = Repeat(function, tuple(kwargs))
        self._note_line(place)
        self.repeats[place] = [*args, *kwargs.values()]
        return place

    def _note_line(self, written: Any) -> None:
        """For what a file cannot do, which an export says by its line."""
        if local.exporting and id(written) not in self._lines:
            self._lines[id(written)] = user_location()

    def line_of(self, place: Place) -> str:
        """Where the call first wrote there, as the end of a sentence; while exporting."""
        found = self._lines.get(id(place)) or self._lines.get(id(place.container))
        return "" if found is None else f" at {found}"

    def effects(self) -> int:
        """How many writes, calls outside the program and random numbers there were."""
        return self._effects

    def tail(self, container: Any) -> int:
        """How long a list or a deque was, but for what the call itself has put at its end; -1
        where it cannot be said what it has put where."""
        if id(container) in self.reshaped:
            return -1
        saved = self.saved.get(id(container))
        return len(container if saved is None else saved[1])

    def lend(self, array: np.ndarray) -> None:
        """graphc's own code may make a tensor of an array, that shares its memory."""
        memory = _memory(array)
        self.lent.add(id(memory))
        self._kept.append(memory)

    # --- the effects -------------------------------------------------------------------------

    def changes(self) -> Iterator[Change]:
        """(place, value before, value now) of everything that a call has to write.

        Raises ValueError saying what changed in another way.
        """
        # what was read whole is fetched, or guarded, whole
        self.reshaped |= self.pushed.keys() & self._whole
        for container, copy, path in list(self.saved.values()):
            if isinstance(copy, dict):
                yield from self._of_dict(container, copy, path)
            elif isinstance(container, (np.ndarray, bytearray, array)):
                if _differs(container, copy):
                    if id(_memory(container)) in self.lent:
                        raise ValueError(f"changes {path}, whose memory is a tensor's, too")
                    was = list(copy.flat) if isinstance(copy, np.ndarray) else copy
                    yield Contents(container, path), was, items_of(container)
            elif isinstance(container, (list, deque)) and id(container) not in self.reshaped:
                pushed = self.pushed.get(id(container))
                if pushed is None:
                    yield from self._of_list(container, copy, path)
                else:
                    end = list(container)[-pushed:]
                    yield Window(container, copy, f"the end of {path}"), MISSING, end
            elif len(container) != len(copy) or any(
                a is not b for a, b in zip(container, copy, strict=True)
            ):
                self.whole(container, deep=False)
                yield Contents(container, path), copy, items_of(container)
        for place, before in self.fields.items():
            if (now := place.get()) is not before or self.is_of_the_call(place, now):
                yield place, before, now
            else:
                self._stays(place, before)

    def _of_dict(self, container: Any, copy: dict[Any, Any], path: str) -> Iterator[Change]:
        mapping = vars(container) if isinstance(container, type) else container
        left = [key for key in copy if key in mapping]
        again = self.removed.get(id(container), set()).intersection(left)  # now further back
        if again or any(a is not b for a, b in zip(left, mapping, strict=False)):
            if isinstance(container, type) or id(container) in self.real:
                raise ValueError(f"changes the order of {path}")
            self.whole(container, deep=False)
            yield Contents(container, path), copy, items_of(container)
            return
        if id(container) in self.real:
            return
        written = self.keys.get(id(container), {})
        for key in dict.fromkeys((*written, *copy, *mapping)):
            before, now = copy.get(key, MISSING), mapping.get(key, MISSING)
            place = Place(container, key, entry_path(path, key))
            if now is not before or (key in written and isinstance(container, ParamGroup)):
                if now is MISSING and key not in written:
                    self.whole(container, deep=False)
                yield place, before, now
            elif key in written:
                if self.is_of_the_call(place, now):
                    yield place, before, now
                else:
                    self._stays(place, before)

    def _of_list(self, container: Any, copy: list[Any], path: str) -> Iterator[Change]:
        written = self.keys.get(id(container), {})
        for i, before in enumerate(copy):
            now = container[i]
            place = Place(container, i, f"{path}[{i}]")
            if now is not before or (i in written and self.is_of_the_call(place, now)):
                yield place, before, now
            elif i in written:
                self._stays(place, before)
        if len(container) > len(copy):
            end = [container[i] for i in range(len(copy), len(container))]
            yield Tail(container, len(copy), f"the end of {path}"), MISSING, end

    def _stays(self, place: Place, before: Any) -> None:
        """What a call writes is there already: nothing is to be done while that is so."""
        if place not in self.lifted and not self.was_read(place):
            watched = isinstance(place.container, (Watched, WatchedOrdered))
            self.guards.add(Entry(place, before, not is_plain(before)), watched)

    def shares_memory(self, value: Any) -> bool:
        """Whether an array that was looked at already has memory of this one."""
        own = memory_of(value)
        return any(
            np.may_share_memory(memory_of(other), own) for other, _, _ in self.saved.values()
            if other is not value and isinstance(other, (np.ndarray, bytearray, array))
        )

    def restore(self) -> None:
        """Put every container back as it was, the last first: a global may be written by its name
        and in globals()."""
        for each in reversed(self._written):
            if isinstance(each, Place):
                if each.get() is not (before := self.fields[each]):
                    each.put(before)
            else:
                container, copy, _ = self.saved[each]
                put_back(container, copy)


def _memory(container: Any) -> Any:
    """The array that another one is a view of, at last."""
    while isinstance(getattr(container, "base", None), np.ndarray):
        container = container.base
    return container
