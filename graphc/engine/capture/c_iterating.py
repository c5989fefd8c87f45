"""C functions that iterate over their arguments, and call functions among them."""

from __future__ import annotations

from typing import Any

from . import items
from .c_tables import FUNCTION_AT, ITERATED
from .kinds import Kind, content_of, kind_of
from .observer import Observer
from .places import MISSING


def arguments(
    observer: Observer, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What such a function gets: its functions in their recorded form, what it iterates over
    taken apart."""
    place = FUNCTION_AT.get(name)
    first, end = ITERATED.get(name, (0, 1))
    if name in ("min", "max") and len(args) > 1:  # they are compared themselves
        for value in args:
            observer.whole(value)
        end = 0
    given = tuple([
        _entry(observer, value) if i == place
        else _items(observer, value) if first <= i and (end is None or i < end) else value
        for i, value in enumerate(args)
    ])
    named = {
        k: _entry(observer, v) if k in ("key", "func")
        else _items(observer, v) if k == "iterable" else v
        for k, v in kwargs.items()
    }
    return given, named


def _entry(observer: Observer, value: Any) -> Any:
    called = kind_of(type(value)) in _CALLED or callable(value)
    return observer.entry(value) if called else value


def _items(observer: Observer, value: Any) -> Any:
    kind = kind_of(type(value))
    if kind in _CALLED or kind in (
        Kind.VALUE, Kind.NUMBER, Kind.TENSOR, Kind.OWN, Kind.TEXT
    ):
        return value
    if kind is Kind.INSTANCE and content_of(type(value)) is None and not any(
        observer.lookup(type(value), name) is not MISSING for name in ("__iter__", "__getitem__")
    ):
        return value
    if kind is Kind.OPEN:  # memory, say, that bytes() copies and does not iterate over
        observer.whole(value)
        return value
    return items.unpack(observer, value)


_CALLED = frozenset((Kind.FUNCTION, Kind.METHOD, Kind.PARTIAL, Kind.CLASS, Kind.BUILTIN,
                     Kind.FIXED))


def reversed_of(
    observer: Observer, function: Any, args: tuple[Any, ...], kwargs: Any
) -> tuple[Any] | None:
    """reversed()."""
    turn = items.python_method(observer, args[0], "__reversed__")
    if turn is not None:
        return (items.iterate(observer, observer.run(turn, args[0])),)
    if items.content(args[0]) is None or kind_of(type(args[0])) is Kind.INSTANCE:
        observer.whole(args[0])
        return None
    return (reversed(items.unpack(observer, args[0])),)
