"""Writes of a traced function to the containers among its arguments.

A trace gets copies of the lists, dicts and dataclasses that arguments are nested in. What they hold
is known in each call: the leaves of the arguments. What they hold at the end, each call gives to
its own containers, which are found by where they are among the arguments. Where the trial goes on
in segments, what it has changed is copied to the originals.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from ...frontend.tree import children
from .places import MISSING, Place


class Given:
    """A container among the arguments of a call: the children to go by from (args, kwargs)."""

    def __init__(self, path: tuple[int, ...]) -> None:
        self.path = path

    def of(self, call: Any) -> Any:
        """This container in a call."""
        for i in self.path:
            inside = children(call)
            assert inside is not None
            call = inside[i]
        return call

    def __repr__(self) -> str:
        return f"the container at {self.path} of the arguments"


class GivenItems(Place):
    """All items of a container among the arguments."""

    __slots__ = ()

    def __init__(self, given: Given, path: str) -> None:
        super().__init__(given, _ITEMS, path)

    def get(self) -> Any:
        """The call's own container holds what it was given."""
        return MISSING

    @staticmethod
    def give(container: Any, items: Any) -> None:
        """Give a call's own container these items."""
        _refill(container, items)


_ITEMS = object()
_KINDS = (list, dict, OrderedDict, defaultdict)


def containers(call: Any) -> Iterator[Any]:
    """The containers of a call's arguments that can be written to, each as often as it is there."""
    stack = [call]
    while stack:
        value = stack.pop()
        inside = children(value)
        if inside is not None:
            stack += inside
            if not isinstance(value, tuple):
                yield value


def may_be_given(value: Any) -> bool:
    """Whether a value is a container that arguments may be nested in."""
    return isinstance(value, (list, dict)) or dataclasses.is_dataclass(type(value))


def apart(call: Any, others: dict[int, Any]) -> bool:
    """Whether these containers are all different ones, and none is among others (by id)."""
    seen: set[int] = set()
    for container in containers(call):
        if id(container) in seen or id(container) in others:
            return False
        seen.add(id(container))
    return True


class ArgumentWrites:
    """The containers of a call's arguments, beside the copies that the trace got."""

    def __init__(self, originals: Any, copies: Any) -> None:
        self._pairs: list[tuple[Any, Any, list[tuple[Any, Any]]]] = []
        self.originals: dict[int, Any] = {}  # by the id of the copy
        self.places: dict[int, Given] = {}  # by the same
        self.call = originals
        self._copies = copies
        stack: list[tuple[Any, Any, tuple[int, ...]]] = [(originals, copies, ())]
        while stack:
            original, copy, path = stack.pop()
            inside = children(copy)
            if inside is None:
                continue
            self.originals[id(copy)], self.places[id(copy)] = original, Given(path)
            if not isinstance(copy, tuple):
                self._pairs.append((original, copy, _items(copy)))
            parts = zip(children(original) or (), inside, strict=True)
            stack += [(part, twin, (*path, i)) for i, (part, twin) in enumerate(parts)]

    @property
    def copies(self) -> list[Any]:
        """The containers that the trace got."""
        return [copy for _, copy, _ in self._pairs if copy is not self._copies[1]]

    def effects(self) -> Iterator[tuple[Place, Any]]:
        """(place, items) of every container that was changed. Raises ValueError where a call
        cannot give them to its own container."""
        for original, copy in self.written():
            kind, now = type(original), dict(_items(copy))
            if kind in _KINDS:
                items = list(copy) if kind is list else now
            elif hasattr(copy, "__dict__") and now.keys() >= dict(_items(original)).keys():
                items = now
            else:
                raise ValueError(kind.__name__)
            yield GivenItems(self.places[id(copy)], f"a {kind.__name__} of the arguments"), items

    def written(self) -> Iterator[tuple[Any, Any]]:
        """(original, copy) of every container that was changed."""
        for original, copy, before in self._pairs:
            now = _items(copy)
            if len(now) != len(before) or any(
                a is not c or b is not d for (a, b), (c, d) in zip(now, before, strict=True)
            ):
                yield original, copy

    def copy_back(self, resolved: Callable[[Any], Any]) -> None:
        """Give the originals the items of their copies; `resolved` says what each leaf is now."""
        real = {id(copy): original for original, copy, _ in self._pairs}
        for original, copy in list(self.written()):
            items = [(key, real.get(id(v), v)) for key, v in _items(copy)]
            items = [(key, resolved(v)) for key, v in items]
            values = [value for _, value in items]
            _refill(original, values if isinstance(original, list) else dict(items))


def _refill(container: Any, items: Any) -> None:
    if isinstance(container, list):
        container[:] = items
    elif isinstance(container, dict):
        container.clear()
        container.update(items)
    else:
        for key, value in items.items():
            object.__setattr__(container, key, value)


def _items(container: Any) -> list[tuple[Any, Any]]:
    if isinstance(container, list):
        return [(None, value) for value in container]
    if isinstance(container, dict):
        return list(container.items())
    return list(vars(container).items()) if hasattr(container, "__dict__") else [
        (name, getattr(container, name)) for name in container.__dataclass_fields__
    ]
