"""Where CPython and NumPy keep what native code reads: found out by looking, once.

Native entries of compiled functions (entry.py) read attributes, weak references, cells, functions
and array headers as C code does. Nothing here is taken on trust: each offset is tried on objects
whose contents are known, and one that is not as expected makes `layout()` None; calls then stay
with Python.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import types
import weakref
from typing import Any

import numpy as np

from graphc.ir.named import NamedTuple

_WORD = 8
_HEADER = 2 * _WORD  # of an object: its count of references, and its class
# an array's data, number of dims (4 bytes), sizes, base, dtype, flags (4 bytes)
DATA, NDIM, SIZES, BASE, DTYPE, FLAGS = 16, 24, 32, 48, 56, 64
C_CONTIGUOUS, OWNS_DATA, ALIGNED, WRITEABLE = 1, 4, 0x100, 0x400
REFERENT, CONTENTS = 16, 16  # of a weak reference; of a cell
COUNT, ITEMS = 16, 24  # of a list; a dict's count is there, too
_KEYS_OF_DICT, _VALUES_OF_DICT = 32, 40  # before 3.13; a dict by itself has no values
TAG = 24  # of a dict, before 3.13: the number that each write changes
CODE, DEFAULTS, KEYWORDS = 48, 56, 64  # of a function
_MEMBER, _OFFSET = 40, 16  # of a slot's descriptor: its PyMemberDef; of that: the slot's offset
_MANAGED_DICT = 1 << 4  # Py_TPFLAGS_MANAGED_DICT
_DICT_AT = -3 * _WORD  # of an object whose dict CPython manages; 3.12: or its values, tagged
_VALUES_AT = -4 * _WORD  # 3.11
# of the first of an object's values: the byte that says how many there are
USED_AT = {(3, 11): -2, (3, 12): -2, (3, 13): -7}
_FLAGS_OF_CLASS = 168  # tp_flags
_SIZE_OF_CLASS = 32  # tp_basicsize


class Layout(NamedTuple):
    """How objects of Python code keep their attributes: which CPython this is; and whether a
    dictionary has a number that each write to it changes, one that no other has had (PEP 509)."""

    version: tuple[int, int]
    counts_writes: bool = False


@functools.cache
def layout() -> Layout | None:
    """None: not a CPython that is known, or not as it is expected to be."""
    version = sys.version_info[:2]
    known = (
        sys.implementation.name == "cpython" and version in ((3, 11), (3, 12), (3, 13))
        and sys.byteorder == "little" and ctypes.sizeof(ctypes.c_void_p) == _WORD
        and "t" not in sys.abiflags
        and object.__basicsize__ == _HEADER and not hasattr(sys, "gettotalrefcount")
    )
    if not known or not (_arrays() and _small_objects()):
        return None
    found = Layout(version, version < (3, 13) and _writes_are_counted())
    return found if _attributes(found) else None


def word(address: int) -> int:
    """The 8 bytes at an address."""
    return ctypes.c_uint64.from_address(address).value


def slot_offset(descriptor: Any) -> int:
    """Where a slot's value is in its object."""
    return ctypes.c_int64.from_address(word(id(descriptor) + _MEMBER) + _OFFSET).value


def dict_place(value: Any) -> int | None:
    """The address of the word that refers to an object's `__dict__`, once somebody has asked for
    it; None: there is none, or not where it is expected."""
    kind = type(value)
    fields = object.__getattribute__(value, "__dict__")
    if word(id(kind) + _FLAGS_OF_CLASS) & _MANAGED_DICT:
        place = id(value) + _DICT_AT
    elif kind.__dictoffset__ > 0:
        place = id(value) + kind.__dictoffset__
    else:
        return None
    return place if word(place) == id(fields) else None


@functools.cache
def order_offset() -> int | None:
    """Where a class refers to its `__mro__`."""
    kinds: tuple[type, ...] = _Slots, _Fields, bool
    size = word(id(type) + _SIZE_OF_CLASS)
    for offset in range(_HEADER, size, _WORD):
        if all(word(id(kind) + offset) == id(kind.__mro__) for kind in kinds):
            return offset
    return None


def attribute_index(kind: type, name: str) -> int | None:
    """Which of an instance's values an attribute is; -1: never one of those that lie together,
    which have no room for further names; None: attributes are not kept so."""
    found = layout()
    return None if found is None else _index(found, kind, name)


def _index(found: Layout, kind: type, name: str) -> int | None:
    if not word(id(kind) + _FLAGS_OF_CLASS) & _MANAGED_DICT:
        return None
    probe: Any = object.__new__(kind)
    mark = object()
    object.__setattr__(probe, name, mark)
    values = _values(found, probe)
    if values is None:
        return -1
    if found.version >= (3, 13):
        sizes = ctypes.c_uint8.from_address
        capacity, used = sizes(values).value, sizes(values + 1).value
        first = values + _WORD
        index = sizes(first + capacity * _WORD + used - 1).value
    else:  # in front of the values: how many there are, then which, in the order of their making
        used = ctypes.c_uint8.from_address(values - 2).value
        index = ctypes.c_uint8.from_address(values - 2 - used).value
        first = values
    if used != 1 or index >= 30 or word(first + index * _WORD) != id(mark):
        return None
    return index


def shared_keys(kind: type, name: str) -> int:
    """Where the keys are that the `__dict__`s of a class share: one with these has its values side
    by side, in the order of attribute_index. 0: a dict has no such values, or there is no need, as
    an object keeps its own."""
    index = attribute_index(kind, name)
    found = layout()
    if index is None or index < 0 or found is None or found.version >= (3, 13):
        return 0
    probe: Any = object.__new__(kind)
    mark = object()
    object.__setattr__(probe, name, mark)
    fields = id(object.__getattribute__(probe, "__dict__"))
    values = word(fields + _VALUES_OF_DICT)
    if _values(found, probe) is not None or not values or word(values + index * _WORD) != id(mark):
        return 0
    return word(fields + _KEYS_OF_DICT)


def _values(found: Layout, value: Any) -> int | None:
    """The address of an object's values; None: they are in a dict."""
    if found.version >= (3, 13):
        size = word(id(type(value)) + _SIZE_OF_CLASS)
        valid = ctypes.c_uint8.from_address(id(value) + size + 3).value
        return id(value) + size if valid else None
    if found.version == (3, 12):
        tagged = word(id(value) + _DICT_AT)
        return tagged + 1 if tagged & 1 else None
    return word(id(value) + _VALUES_AT) or None


# --- looking ------------------------------------------------------------------------------------


def _arrays() -> bool:
    probe = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    own, other = np.empty((0, 5)), np.frombuffer(bytes(9), np.int16, 4, 1)
    for array in (probe, probe[1], probe[:, ::2], probe[..., 1], own, np.zeros(()), other):
        place = id(array)
        sizes = word(place + SIZES)
        if not (
            word(place + DATA) == array.__array_interface__["data"][0]
            and ctypes.c_int32.from_address(place + NDIM).value == array.ndim
            and tuple(word(sizes + _WORD * i) for i in range(array.ndim)) == array.shape
            and word(place + BASE) == (0 if array.base is None else id(array.base))
            and word(place + DTYPE) == id(array.dtype)
            and all(bool(word(place + FLAGS) & bit) == is_set for bit, is_set in (
                (C_CONTIGUOUS, array.flags.c_contiguous), (OWNS_DATA, array.flags.owndata),
                (ALIGNED, array.flags.aligned), (WRITEABLE, array.flags.writeable),
            ))
        ):
            return False
    return True


def _writes_are_counted() -> bool:
    table, other = {"a": 1, "b": 2}, {"a": 1, "b": 2}
    one: Any = _Fields()
    one.first, fields = 1, vars(one)
    seen = {word(id(other) + TAG), before := word(id(table) + TAG)}
    if table.get("a") != 1 or word(id(table) + TAG) != before:
        return False
    writes = (
        lambda: table.update(a=3), lambda: table.pop("b"), lambda: table.setdefault("c", 4),
        lambda: table.__setitem__("a", 4), lambda: table.__delitem__("c"), table.popitem,
    )
    for write in writes:
        write()
        seen.add(word(id(table) + TAG))
    seen.add(word(id(fields) + TAG))
    for value in (2, 3):
        one.first = value
        seen.add(word(id(fields) + TAG))
    return len(seen) == 2 + len(writes) + 3 and 0 not in seen


class _Slots:
    __slots__ = ("__weakref__", "first", "second")
    __weakrefoffset__: int


def _small_objects() -> bool:
    one: Any = _Slots()
    one.first, one.second = object(), object()
    alive, gone = weakref.ref(one), weakref.ref(_Slots())
    cell = types.CellType(one)

    def function(a: Any = one, *, b: Any = one) -> Any:
        return a, b

    at, several, table = id(function), [one, alive], {"a": one, "b": alive, "c": gone}
    items = word(id(several) + ITEMS)
    return (
        word(id(several) + COUNT) == 2 and word(id(table) + COUNT) == 3
        and [word(items), word(items + _WORD)] == [id(one), id(alive)]
        and word(id(one) + _Slots.__weakrefoffset__) == id(alive)
        and word(id(one) + slot_offset(_Slots.__dict__["second"])) == id(one.second)
        and word(id(one) + slot_offset(_Slots.__dict__["first"])) == id(one.first)
        and word(id(alive) + REFERENT) == id(one) and word(id(gone) + REFERENT) == id(None)
        and word(id(cell) + CONTENTS) == id(one)
        and word(at + CODE) == id(function.__code__)
        and word(at + DEFAULTS) == id(function.__defaults__)
        and word(at + KEYWORDS) == id(function.__kwdefaults__)
        and word(id(_Slots) + _SIZE_OF_CLASS) == _Slots.__basicsize__
        and word(id(_Slots) + _FLAGS_OF_CLASS) == _Slots.__flags__
    )


class _Fields:
    first = None


def _attributes(found: Layout) -> bool:
    """An instance's values are found, and its dict, once it has one."""
    one: Any = _Fields()
    one.first, one.second = object(), object()
    indices = _index(found, _Fields, "first"), _index(found, _Fields, "second")
    values = _values(found, one)
    if None in indices or values is None:
        return False
    first = values + _WORD if found.version >= (3, 13) else values
    kept = [word(first + _WORD * (i or 0)) for i in indices]
    weak = id(one) + _Fields.__weakrefoffset__
    if word(weak) or (reference := weakref.ref(one)) is None or word(weak) != id(reference):
        return False
    if ctypes.c_uint8.from_address(first + USED_AT[found.version]).value != 2:
        return False
    return kept == [id(one.first), id(one.second)] and (
        vars(one) is not None and dict_place(one) is not None
        and (found.version >= (3, 13) or _values(found, one) is None)
    )
