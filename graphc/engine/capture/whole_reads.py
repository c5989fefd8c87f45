"""Reads of all that is in an object: what a container, an array or a tuple holds, and they hold."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..version.guard_list import Guards
from ..version.guards import Array, Items
from .array_memory import is_captured
from .copies import READERS, key_text
from .counts import Counts
from .kinds import Kind, content_of, is_plain, kind_of

_ARRAY_BYTES = 1 << 24  # larger arrays are not compared at every call
_NO_CONTENT = frozenset((
    Kind.VALUE, Kind.FIXED, Kind.FUNCTION, Kind.METHOD, Kind.BUILTIN, Kind.PARTIAL, Kind.CLASS,
    Kind.MODULE, Kind.TENSOR, Kind.NUMBER, Kind.OWN,
))
_HOLDERS = frozenset((
    Kind.TUPLE, Kind.LIST, Kind.DICT, Kind.SET, Kind.QUEUE, Kind.ARRAY, Kind.BUFFER, Kind.VIEW,
    Kind.INSTANCE, Kind.ITERATOR, Kind.OPEN, Kind.TEXT,
))


class WholeReads(Counts):
    """The containers and arrays that one recording has read as a whole."""

    guards: Guards
    known: dict[int, tuple[Any, str]]
    _whole: set[int]

    def open(self, what: str, cure: str = "", owner: Any = None) -> None:
        """What follows is not understood."""
        raise NotImplementedError

    def know(self, value: Any, path: str) -> Any:
        """A value existed before the call, at this place."""
        raise NotImplementedError

    def behind(self, value: Any) -> Any:
        """The mapping that a types.MappingProxyType shows; anything else is itself."""
        raise NotImplementedError

    def numpy_settings(self, text: bool = True) -> None:
        """NumPy computes, or makes a text of what it has."""
        raise NotImplementedError

    def touch(self, args: Iterable[Any], kwargs: Any = None) -> None:
        """C code reads everything in its arguments."""
        for value in args:
            self.whole(value)
        if kwargs:
            for value in kwargs.values():
                self.whole(value)

    def whole(self, value: Any, deep: bool = True) -> None:
        """Code that graphc does not follow reads everything in an object."""
        value = self.behind(value)
        kind = kind_of(type(value))
        if kind in _NO_CONTENT:
            return
        if kind is Kind.TEXT:
            value.decided()
            return
        if kind is Kind.INSTANCE:
            content = content_of(type(value))
            if content is None:
                return
            kind = content
        if kind is Kind.TUPLE:
            if not is_plain(value):
                path = self.path(value)
                for i, item in enumerate(tuple.__iter__(value) if issubclass(type(value), tuple)
                                         else value):
                    self._inside(value, item, f"{path}[{i}]", deep)
            return
        if kind is Kind.ARRAY:
            self.array(value)
        elif kind in READERS:
            self._container(value, kind, deep)
        elif kind is Kind.ITERATOR:
            if self.is_known(value):
                self.open(f"reading {self.path(value)}, an iterator made before the call,")
        elif kind is Kind.OPEN:
            self.open(f"use of a {type(value).__module__}.{type(value).__qualname__}")

    def _inside(self, holder: Any, item: Any, path: str, deep: bool, own: bool = False) -> None:
        """An item is read; `own`: the call itself has put it there."""
        if not own and self.is_known(holder) and id(item) not in self.known:
            self.know(item, path)
        if deep and kind_of(type(item)) in _HOLDERS:
            self.whole(item)

    def _container(self, value: Any, kind: Kind, deep: bool) -> None:
        self.looks_at(value)
        if value in self.trace.late:
            self.open(f"reading {self.path(value)} after a schedule's step")
        if self.is_known(value) and id(value) not in self._whole:
            self._whole.add(id(value))
            saved = self.saved.get(id(value))
            was = None if saved is None else saved[1]
            guard = Items(value, READERS[kind], self.path(value), was)
            if kind is Kind.BUFFER:  # NumPy may write to it unseen
                if self.shares_memory(value):
                    self.open(f"reading {guard.path}, which shares memory with a NumPy array,")
                self.save(value)
            self.guards.add(guard, self.is_watched(value))
        path, saved = self.path(value), self.saved.get(id(value))
        # what a container that was written to held before
        old = None if saved is None else set(map(id, READERS[kind](saved[1])))
        if kind is Kind.DICT:
            for key, item in list(dict.items(value)):
                own = old is not None and id(item) not in old
                self._inside(value, key, f"a key of {path}", deep, old is not None and (
                    id(key) not in old
                ))
                self._inside(value, item, f"{path}[{key_text(key)}]", deep, own)
        elif kind is not Kind.BUFFER:
            items = value.flat if kind is Kind.ARRAY else value
            for i, item in enumerate(list(items)):
                own = old is not None and id(item) not in old
                self._inside(value, item, f"{path}[{i}]", deep, own)

    def array(self, value: np.ndarray) -> None:
        """The values of a NumPy array are read."""
        if self.is_known(value) and is_captured(self.trace, value):
            self.open(f"use of {self.path(value)}, a NumPy array on a tensor's memory,")
        if not self.is_known(value) or id(value) in self._whole:
            return
        path = self.path(value)
        if self.shares_memory(value):
            self.open(f"reading {path}, a NumPy array that shares memory with another,")
            return
        if value.dtype.hasobject and value.dtype != object:
            self.open(f"reading {path}, a NumPy array of records with objects,")
            return
        if value.dtype == object:
            self._container(value, Kind.ARRAY, deep=False)
            self.save(value)
            return
        if value.nbytes > _ARRAY_BYTES:
            what = f"of {value.nbytes >> 20} MB"
            self.open(f"reading {path}, a NumPy array {what},", "make it a tensor once, outside")
            return
        self._whole.add(id(value))
        self.save(value)
        self.guards.add(Array(value, path))
        self.numpy_settings()
