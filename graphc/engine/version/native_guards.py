"""Guards as conditions that native code asks (backends/host/entry.py).

A condition may hold less often than its guard, never more often: where an object is another one,
though equal, native code says no, and Python is asked. What is not told here stays with Python.
"""

from __future__ import annotations

import gc
import operator
import types
import weakref
from collections.abc import Callable
from typing import Any

from ...backends.host.entry import Conditions
from ...backends.host.layouts import CODE, CONTENTS, COUNT, DEFAULTS, KEYWORDS, dict_place, word
from ..capture.class_members import members_in_order
from ..capture.places import MISSING
from .guards import Code, Entry, Fields, Guard, Items, Referent, Result, Type


def ask_natively(guard: Guard, conditions: Conditions) -> bool:
    """Add what makes a guard hold that holds now; False: Python is to be asked."""
    rule = _RULES.get(type(guard))
    if rule is None:
        return False
    mark = len(conditions.words)
    if rule(guard, conditions):
        return True
    del conditions.words[mark:]
    return False


def is_known(guard: Guard) -> bool:
    """Whether native code may ask a guard like this."""
    return type(guard) in _RULES


def _entry(guard: Entry, conditions: Conditions) -> bool:
    place = guard.place
    now, container = place.get(), place.container
    if guard.reference is not None:
        if type(guard.reference) is not weakref.ref or now is None:
            return False
        conditions.referent(guard.reference, now)  # it alone: the object may die
    else:
        conditions.keep.append(now)
    missing = now is MISSING
    if type(container) is types.CellType:
        conditions.keep.append(container)
        conditions.word(id(container) + CONTENTS, 0 if missing else id(now))
        return True
    if type(place.key) is not str:
        return False
    held = container if isinstance(container, dict) else _dict_of(container)
    if held is None:
        return False
    conditions.item(held, place.key, now, missing)
    return True


def _dict_of(container: Any) -> dict[str, Any] | None:
    """The dictionary of a class."""
    if not isinstance(container, type):
        return None
    found = gc.get_referents(vars(container))
    return found[0] if len(found) == 1 and type(found[0]) is dict else None


def _type(guard: Type, conditions: Conditions) -> bool:
    value = guard.value()
    if value is None:
        return False
    if type(guard.value) is weakref.ref:
        conditions.referent(guard.value, value)
    else:
        conditions.keep.append(value)
    conditions.keep.append(guard.kind)
    conditions.word(id(value) + _CLASS, id(guard.kind))
    if not guard.fields:
        return True
    place = dict_place(value)
    if place is None:
        return False
    conditions.word(place, guard.fields)
    return True


def _code(guard: Code, conditions: Conditions) -> bool:
    if guard.keywords is not None:
        return False
    at = id(guard.function)
    conditions.keep += guard, guard.function.__code__  # which may be a detour
    for offset in (CODE, DEFAULTS, KEYWORDS):
        conditions.word(at + offset, word(at + offset))
    return True


def _fields(guard: Fields, conditions: Conditions) -> bool:
    owner, fields = guard.owner(), guard.fields
    place = None if owner is None else dict_place(owner)
    if place is None or type(guard.owner) is not weakref.ref:
        return False
    conditions.referent(guard.owner, owner)
    conditions.word(place, id(fields))
    for name in guard.absent:
        conditions.item(fields, name, None, missing=True)
    for name, value in zip(guard.names, guard.values, strict=True):
        conditions.keep.append(value)
        conditions.item(fields, name, value)
    return True


def _referent(guard: Referent, conditions: Conditions) -> bool:
    value = guard.reference()
    if type(guard.reference) is not weakref.ref or value is None:
        return False
    conditions.referent(guard.reference, value)
    return True


def _items(guard: Items, conditions: Conditions) -> bool:
    container = guard.container
    if type(container) is not list:
        return False
    conditions.items(container)
    return True


def _result(guard: Result, conditions: Conditions) -> bool:
    function, arguments = guard.function, guard.arguments
    first: Any = arguments[0] if arguments else None
    kind = type(first)
    counted = issubclass(kind, (list, dict)) and kind.__len__ in (list.__len__, dict.__len__)
    if counted and (function is len or (function is bool and not hasattr(kind, "__bool__"))):
        conditions.keep.append(first)
        conditions.word(id(first) + COUNT, len(first))
        return True
    if function is members_in_order and isinstance(first, type):
        conditions.keep.append(guard.value)
        return conditions.members(first)
    if (
        function is operator.contains and type(arguments[1]) is str
        and getattr(kind, "__contains__", None) is dict.__contains__
    ):
        if arguments[1] in first:
            conditions.present(first, arguments[1])
        else:
            conditions.item(first, arguments[1], None, missing=True)
        return True
    return False


_CLASS = 8  # of an object: where its class is named
_RULES: dict[type, Callable[[Any, Conditions], bool]] = {
    Entry: _entry, Type: _type, Code: _code, Fields: _fields, Items: _items,
    Referent: _referent, Result: _result,
}
