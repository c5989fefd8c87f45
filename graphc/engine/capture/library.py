"""Rules for functions of Python's library that are written in C, or that C code calls."""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any

from ...frontend import texts
from ...ir.late import late
from . import items
from .kinds import Kind, content_of, is_plain, kind_of
from .observer import Observer
from .rule import Rule

if TYPE_CHECKING:
    import string
else:
    string = late("string")


def _dir(observer: Observer, function: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    if not args:
        return None
    value = args[0]
    own = vars(value) if hasattr(value, "__dict__") else {}
    if (
        kind_of(type(value)) is not Kind.INSTANCE
        or id(own) in observer.saved
        or (not observer.is_known(value))
    ):
        observer.open("dir()")
        return None
    return (list(observer.result(_names, args, f"dir({observer.path(value)})")),)


def _names(value: Any) -> tuple[str, ...]:
    return tuple(dir(value))


def is_text(value: Any) -> bool:
    """Whether nothing in a value but itself can be formatted."""
    return is_plain(value) or kind_of(type(value)) in (Kind.TENSOR, Kind.NUMBER, Kind.TEXT)


def _text_format(observer: Observer, function: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    """str.format(): its fields name attributes and items."""
    text = getattr(function, "__self__", None)
    if text is None:
        text, *args = args  # type: ignore[assignment]
    if all(map(is_text, (*args, *kwargs.values()))):
        found = texts.format_of(text, tuple(args), kwargs)
        return None if found is None else (found,)
    formatter = string.Formatter()
    return (observer.run(string.Formatter.vformat, formatter, text, tuple(args), kwargs),)


def _join(observer: Observer, function: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    """str.join(): what an iterator gives is looked at, too."""
    between = getattr(function, "__self__", None)
    between, parts = args if between is None else (between, *args)
    found = list(items.unpack(observer, parts))
    if not any(map(texts.is_text, (between, *found))):
        return (between.join(found),)
    return (texts.joined(found, between),)


def _heap(observer: Observer, function: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    """heapq orders a list in place; a comparison in Python is one that C code calls."""
    for value in args:
        observer.whole(value)
    if args and observer.is_known(args[0]):
        observer.reshape(args[0])
    return None


def _count(observer: Observer, function: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    """collections._count_elements(mapping, iterable), of Counter."""
    mapping, counted = args
    given = list(items.unpack(observer, counted))
    if observer.is_known(mapping):
        observer.reshape(mapping)
    function(mapping, given)
    return (None,)


def _handled(observer: Observer, function: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    """sys.exc_info(): an exception that the call itself handles, or none."""
    found = function()
    if found[1] is not None and (observer.is_known(found[1]) or found[1] is observer.handled):
        observer.open("sys.exc_info() of an exception from before the call")
    if found[1] is None:
        observer.result(_handles_none, (), "whether an exception is handled")
    return (found,)


def _handles_none() -> bool:
    return sys.exc_info()[1] is None


def constructed(observer: Observer, kind: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    """An immutable value of a class that is written in Python: Fraction(1, 2), UUID(text)."""
    if not isinstance(kind.__new__, types.FunctionType) or content_of(kind) is not None:
        return None
    given = tuple([items.plain_key(observer, value) for value in args])
    if kwargs or not all(map(is_plain, given)):
        return None
    return (observer.plainly(kind, given, {}),)


def _json(observer: Observer, function: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    """Python's own, of plain data: it reads that alone."""
    if any(callable(value) for value in kwargs.values()):
        return None
    for value in (*args, *kwargs.values()):
        observer.whole(value)
    given = tuple(map(_data, args))
    return (observer.plainly(function, given, kwargs),) if observer.running else None


def _data(value: Any) -> Any:
    """Data for Python's json, with run-time numbers and texts as they are now."""
    if isinstance(value, dict):
        return {_data(key): _data(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_data(item) for item in value]
    return texts.plain_value(value)


RULES: dict[str, Rule] = {
    "builtins.dir": _dir, "str.format": _text_format, "str.join": _join,
    **{f"_heapq.{name}": _heap for name in (
        "heappush", "heappop", "heapify", "heapreplace", "heappushpop"
    )},
    "_collections._count_elements": _count, "sys.exc_info": _handled,
}
PYTHON: dict[str, Rule] = {"json.dumps": _json, "json.loads": _json}
