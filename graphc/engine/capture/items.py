"""Subscripts, iteration, membership and truth under a recording."""

from __future__ import annotations

import operator
import types
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from ...frontend.numbers import chosen, is_traced_number
from ...frontend.texts import is_text, plain_text
from ...optim.optimizer import ParamGroup
from . import own_objects, schedules
from .kinds import Kind, content_of, is_plain, kind_of
from .observer import Observer
from .places import MISSING

_CONTAINERS = frozenset((
    Kind.TUPLE, Kind.LIST, Kind.DICT, Kind.SET, Kind.QUEUE, Kind.ARRAY, Kind.BUFFER, Kind.VIEW,
))


def python_method(observer: Observer, obj: Any, name: str) -> Any:
    """The Python function that a special method of an object's class is; None for others."""
    if kind_of(type(obj)) is not Kind.INSTANCE:
        return None
    found = observer.lookup(type(obj), name)
    return found if isinstance(found, types.FunctionType) else None


def content(value: Any) -> Kind | None:
    """The container that an object is, by its class's own methods; None for none."""
    kind = kind_of(type(value))
    if kind in _CONTAINERS:
        return kind
    return content_of(type(value)) if kind is Kind.INSTANCE else None


def plain_key(observer: Observer, key: Any) -> Any:
    """A key as Python hashes it: lifted numbers, sizes and their texts as their values."""
    if is_text(key):
        return key.decided()
    if is_traced_number(key):
        return key.__index__() if key.is_integer_number else float(key)
    if issubclass(type(key), tuple):
        parts = [plain_key(observer, part) for part in key]
        if any(a is not b for a, b in zip(parts, key, strict=True)):
            return tuple.__new__(type(key), parts)
    return key


def subscript(observer: Observer, container: Any, key: Any) -> Any:
    """`container[key]`."""
    method = python_method(observer, container, "__getitem__")
    if method is not None and type(container) is not ParamGroup:
        return observer.run(method, container, key)
    container = observer.behind(container)
    kind = content(container)
    known = observer.is_known(container)
    if kind is Kind.DICT:
        return _dict_item(observer, container, key, known)
    if kind in (Kind.TUPLE, Kind.LIST, Kind.QUEUE, Kind.BUFFER):
        return _item(observer, container, key, kind, known)
    if kind is Kind.ARRAY:
        observer.array(container)
        return container[key]
    kind = kind_of(type(container))
    if kind is Kind.CLASS:
        maker = observer.lookup(type(container), "__getitem__")
        if isinstance(maker, types.FunctionType) and not _of_enum(container):
            return observer.run(maker, container, key)
        maker = observer.lookup(container, "__class_getitem__")
        maker = getattr(maker, "__func__", maker)
        if isinstance(maker, types.FunctionType) and maker.__module__ != "typing":
            return observer.run(maker, container, key)
        return container[key]
    if kind is Kind.TENSOR or kind is Kind.OWN:
        own_objects.used(observer, container, "subscripting")
        observer.whole(key)
        return container[key]
    if kind is Kind.VALUE or kind is Kind.NUMBER or kind is Kind.TEXT:
        return plain_text(container)[plain_key(observer, key)]
    if kind is Kind.FIXED:
        return container[key]
    observer.open(f"{observer.path(container)}[...] of a {type(container).__qualname__}")
    return container[key]


def _of_enum(kind: Any) -> bool:
    return type(kind).__module__ == "enum"


def _item(observer: Observer, container: Any, key: Any, kind: Kind, known: bool) -> Any:
    if is_traced_number(key) and kind is not Kind.QUEUE:
        found = chosen(container, key)  # a schedule's table
        if found is not NotImplemented:
            observer.whole(container, deep=False)
            return found
    key = plain_key(observer, key)
    if type(key) is slice or not isinstance(key, int):
        observer.whole(container, deep=False)
        return container[key]
    if known:
        path = f"{observer.path(container)}[{key}]"
        if kind is Kind.LIST:
            _list_item(observer, container, key, path)
        elif kind is Kind.TUPLE:
            value = container[key]
            return value if is_plain(value) else observer.know(value, path)
        else:
            observer.whole(container, deep=False)
    return container[key]


def _list_item(observer: Observer, container: Any, key: int, path: str) -> None:
    """An item of a list that existed before is read, at a place that may be the call's own."""
    before, now = observer.tail(container), len(container)
    if before == now:
        observer.read(container, key, path)
    elif before >= 0:
        at = key + now if key < 0 else key
        if at < before or key >= 0:
            observer.emptiness(container, len)
        if 0 <= at < before:
            observer.read(container, at, path)


def _dict_item(observer: Observer, container: Any, key: Any, known: bool) -> Any:
    key = plain_key(observer, key)
    if issubclass(type(container), ParamGroup):
        schedules.read_group(observer, container, key)
        return container[key]
    if not known:
        return container[key]
    if not hashed_as_is(key):
        observer.whole(container)
        return container[key]
    value = observer.read(container, key, f"{observer.path(container)}[{_text(key)}]",
                          observer.is_watched(container))
    if value is not MISSING:
        return value
    if type(container) is defaultdict:
        observer.write(container, key)
        factory = observer.result(
            _factory, (container,), f"{observer.path(container)}.default_factory"
        )
        if factory is not None:
            container[key] = observer.run(factory)
        return container[key]
    missing = observer.lookup(type(container), "__missing__")
    if isinstance(missing, types.FunctionType):
        if observer.is_watched(container):
            observer.save(container)
            observer.real.add(id(container))
            return observer.know(container[key], f"{observer.path(container)}[{_text(key)}]")
        return observer.run(missing, container, key)
    return container[key]


_factory = operator.attrgetter("default_factory")


def hashed_as_is(key: Any) -> bool:
    """Whether a key is found by its value or its identity, without the user's own code."""
    if is_plain(key):
        return True
    kind = kind_of(type(key))
    if kind is Kind.TUPLE:
        return all(map(hashed_as_is, key))
    return kind in (
        Kind.FIXED, Kind.TENSOR, Kind.FUNCTION, Kind.CLASS, Kind.MODULE, Kind.BUILTIN, Kind.OWN
    ) or (kind is Kind.INSTANCE and type(key).__hash__ is object.__hash__)


def _text(key: Any) -> str:
    return repr(key) if is_plain(key) else "..."


def store_subscript(observer: Observer, container: Any, key: Any, value: Any) -> None:
    """`container[key] = value`."""
    method = python_method(observer, container, "__setitem__")
    if method is not None and not observer.is_watched(container):
        observer.run(method, container, key, value)
        return
    kind = content(container)
    if kind is not None:
        key = plain_key(observer, key)
        if observer.is_known(container):
            written_item(observer, container, key, kind)
            observer.note_real(container)
    elif kind_of(type(container)) is Kind.TENSOR:
        observer.whole(key)
    else:
        observer.open(f"{observer.path(container)}[...] = ...")
    container[key] = value


def written_item(observer: Observer, container: Any, key: Any, kind: Kind) -> None:
    """An item of a container that existed before is about to be written."""
    if kind is Kind.ARRAY:
        observer.array(container)
    elif kind is Kind.DICT and hashed_as_is(key):
        observer.write(container, key)
    elif kind is Kind.LIST and isinstance(key, int) and observer.tail(container) >= 0:
        at = key + len(container) if key < 0 else key
        if at < observer.tail(container):
            observer.write(container, at)
        if key < 0 or at >= observer.tail(container):
            observer.emptiness(container, len)
    else:
        observer.reshape(container)


def delete_subscript(observer: Observer, container: Any, key: Any) -> None:
    """`del container[key]`."""
    method = python_method(observer, container, "__delitem__")
    if method is not None and not observer.is_watched(container):
        observer.run(method, container, key)
        return
    kind, key = content(container), plain_key(observer, key)
    if kind is None:
        observer.open(f"del {observer.path(container)}[...]")
    elif observer.is_known(container):
        if kind is Kind.DICT and hashed_as_is(key):
            observer.membership(container, key)
            observer.remove(container, key)
        else:
            observer.reshape(container)
    del container[key]


def iterate(observer: Observer, obj: Any) -> Any:
    """iter(obj)."""
    kind = kind_of(type(obj))
    method = python_method(observer, obj, "__iter__")
    if method is not None:
        return _stepped(observer, observer.run(method, obj))
    if kind is Kind.ITERATOR:
        observer.whole(obj)
        return _stepped(observer, iter(obj))
    if content(obj) is not None:
        observer.whole(obj, deep=False)
        return iter(obj)
    if kind in (Kind.VALUE, Kind.TENSOR, Kind.OWN, Kind.NUMBER, Kind.TEXT):
        own_objects.used(observer, obj, "iterating over")
        return iter(plain_text(obj))
    if kind is Kind.INSTANCE:
        getter = python_method(observer, obj, "__getitem__")
        if getter is not None:
            return _by_index(observer, obj)
        return iter(obj)  # raises what Python raises
    if kind is Kind.CLASS and _of_enum(obj):
        members = observer.result(tuple, (obj,), f"the members of {obj.__qualname__}")
        return iter(unpack(observer, members))
    observer.open(f"iterating over a {type(obj).__module__}.{type(obj).__qualname__}")
    return iter(obj)


def _stepped(observer: Observer, iterator: Any) -> Any:
    """An iterator whose steps, where they are Python's, are recorded."""
    step = python_method(observer, iterator, "__next__")
    if step is not None:
        return _steps(observer, iterator, step)
    return iterator


def _steps(observer: Observer, iterator: Any, step: Any) -> Iterator[Any]:
    while True:
        try:
            value = observer.run(step, iterator)
        except StopIteration:
            return
        yield value


def _by_index(observer: Observer, obj: Any) -> Iterator[Any]:
    index = 0
    while True:
        try:
            value = subscript(observer, obj, index)
        except IndexError:
            return
        yield value
        index += 1


def contains(observer: Observer, item: Any, container: Any) -> bool:
    """`item in container`."""
    item, container = plain_text(item), plain_text(container)
    method = python_method(observer, container, "__contains__")
    if method is not None:
        return bool(observer.run(method, container, item))
    kind = content(container)
    if kind is Kind.DICT or kind is Kind.SET:
        item = plain_key(observer, item)
    hashed = python_method(observer, item, "__hash__")
    if hashed is not None and isinstance(container, (dict, set, frozenset)):
        return _is_member(observer, item, container, hashed)
    if kind is Kind.DICT or kind is Kind.SET:
        if observer.is_known(container):
            if hashed_as_is(item):
                observer.membership(container, item)
            else:
                observer.whole(container)
        return item in container
    if kind is not None:
        observer.whole(container)
        observer.whole(item)
        return item in container
    if python_method(observer, container, "__iter__") is not None:
        return any(found is item or found == item for found in iterate(observer, container))
    if kind_of(type(container)) in (Kind.VALUE, Kind.TENSOR, Kind.OWN, Kind.CLASS):
        if not own_objects.is_inner(container):
            own_objects.used(observer, container, "`in` of")
        return item in container
    observer.open(f"`in` of a {type(container).__module__}.{type(container).__qualname__}")
    return item in container


def _is_member(observer: Observer, item: Any, container: Any, hashed: Any) -> bool:
    """`item in container` by the item's own __hash__ and __eq__, written in Python."""
    observer.whole(container, deep=False)
    number = observer.run(hashed, item).__index__()
    same = python_method(observer, item, "__eq__")
    for key in list(container):
        if key is item:
            return True
        if python_method(observer, key, "__hash__") is not None:
            observer.open(f"`in` among objects with a __hash__ of their own, {key!r}")
            return item in container
        if hash(key) == hash(number) and same is not None:
            found = observer.run(same, item, key)
            if found is not NotImplemented and truth(observer, found):
                return True
    return False


def truth(observer: Observer, value: Any) -> bool:
    """bool(value)."""
    kind = kind_of(type(value))
    if kind is Kind.INSTANCE:
        for name in ("__bool__", "__len__"):
            method = observer.lookup(type(value), name)
            if isinstance(method, types.FunctionType):
                return bool(observer.run(method, value))
        if content_of(type(value)) is not None:
            observer.emptiness(value)
        return bool(value)
    if kind in _SIZED:
        observer.emptiness(value)
    elif kind is Kind.ARRAY:
        observer.array(value)
    elif kind is Kind.OWN:
        own_objects.told(observer, value, bool)
    elif kind is Kind.OPEN:
        observer.open(f"the truth of a {type(value).__module__}.{type(value).__qualname__}")
    return bool(value)


_SIZED = frozenset((Kind.LIST, Kind.DICT, Kind.SET, Kind.QUEUE, Kind.BUFFER, Kind.VIEW))


def length(observer: Observer, value: Any) -> Any:
    """len(value)."""
    method = python_method(observer, value, "__len__")
    if method is not None:
        return observer.run(method, value).__index__()
    if content(value) in _SIZED:
        return observer.length(value)
    if content(value) is None:
        own_objects.told(observer, value, len)
    if content(value) is not Kind.TUPLE:
        observer.whole(value)
    return len(value)


def unpack(observer: Observer, value: Any) -> Any:
    """What `a, b = value` or `f(*value)` takes apart."""
    if content(value) is not None and python_method(observer, value, "__iter__") is None:
        observer.whole(value, deep=False)
        return value
    return iterate(observer, value)


def spread(observer: Observer, value: Any, operation: str) -> Any:
    """What `[*value]`, `{**value}`, `f(*value, **value)` spreads."""
    if value is None:
        return value
    mapping = operation in ("DICT_UPDATE", "DICT_MERGE") or (
        issubclass(type(value), dict)
    )
    if not mapping:
        return unpack(observer, value)
    if content(value) is Kind.DICT:
        observer.whole(value, deep=False)
        return value
    keys = python_method(observer, value, "keys")
    if keys is not None:
        names = list(iterate(observer, observer.run(keys, value)))
        return {key: subscript(observer, value, key) for key in names}
    observer.whole(value)
    return value
