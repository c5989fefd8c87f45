"""What an object holds, what of it can change, and how that is put back: a Rule for each kind.

Of a function: the globals that its code names (and attributes of modules that it names); those of
installed packages, of Python's library and of graphc itself are left alone.
"""

from __future__ import annotations

import functools
import gc
import io
import operator
import random
import sysconfig
import types
import weakref
from array import array as Array
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np

from ..engine.built import Built, Engine, Engines
from ..engine.capture.kinds import PACKAGE, Kind, content_of, is_own_name, is_standard, kind_of
from ..engine.capture.places import Place
from ..engine.version.recipes import attributes, set_attribute
from ..frontend import placement
from ..frontend.nodes import Node
from ..frontend.random_state import Generator
from ..frontend.storage import Shared, Storage
from ..frontend.tensor import Tensor
from ..ir.memory import DeviceArray, copied, write

Parts = Iterable[tuple[str, Any]]  # (step of the path, what is there)
_INSTALLED = ("/site-packages/", "/dist-packages/")
_PYTHON = (PACKAGE + "/", sysconfig.get_path("stdlib") + "/", "<frozen ")
_CHAIN = 4  # modules in modules that code may name


def _none(value: Any) -> Parts:
    return ()


def _cannot(value: Any, saved: Any) -> None:
    raise AssertionError(f"a {type(value).__name__} cannot be put back")


class Rule(NamedTuple):
    """How objects of a kind are looked into, kept and put back."""

    parts: Callable[[Any], Parts] = _none
    # what it holds that is kept, and that nobody sees
    inner: Callable[[Any], Parts] = _none
    save: Callable[[Any], Any] | None = None
    restore: Callable[[Any, Any], None] = _cannot
    shows: bool = False  # whether what is saved is all there is to see
    # of what cannot be put back: what tells whether it has moved; None where nothing does
    moved: Callable[[Any], Any] | None = None


# --- containers ------------------------------------------------------------------------------


def _items(value: Any) -> Parts:
    kind: Any = content_base(type(value))
    return ((f"[{i}]", item) for i, item in enumerate(list(kind.__iter__(value))))


def content_base(kind: type) -> type:
    """The built-in container that a class derives from, whose methods are the real ones."""
    return next(base for base in kind.__mro__ if base in _CONTAINERS)


_CONTAINERS = frozenset((list, tuple, dict, set, frozenset, deque, np.ndarray))


def _content(value: Any) -> list[tuple[Any, Any]]:
    kind: Any = OrderedDict if isinstance(value, OrderedDict) else dict
    return list(kind.items(value))


def _pairs(value: Any) -> Parts:
    for i, (key, item) in enumerate(_content(value)):
        plain = isinstance(key, (str, int, float, bool, type(None)))
        if not plain:
            yield f" key {i}", key
        yield f"[{key!r}]" if plain else f"[{_named(key, i)}]", item


def _named(key: Any, number: int) -> str:
    named = issubclass(type(key), types.FunctionType | type)
    return str(key.__name__) if named else f"key {number}"


def _save_list(value: Any) -> Any:
    return list.copy(value)


def _save_items(value: Any) -> Any:
    kind: Any = content_base(type(value))
    return list(kind.__iter__(value))


def _restore_list(value: Any, saved: Any) -> None:
    list.__setitem__(value, slice(None), saved)


def _restore_dict(value: Any, saved: Any) -> None:
    kind: Any = OrderedDict if isinstance(value, OrderedDict) else dict
    now = _content(value)
    if len(now) == len(saved) and all(
        a is c and b is d for (a, b), (c, d) in zip(now, saved, strict=True)
    ):
        return
    kind.clear(value)
    for key, item in saved:
        kind.__setitem__(value, key, item)


def _restore_set(value: Any, saved: Any) -> None:
    set.clear(value)
    set.update(value, saved)


def _restore_queue(value: Any, saved: Any) -> None:
    deque.clear(value)
    deque.extend(value, saved)


def _save_array(value: Any) -> Any:
    return value.copy() if value.flags.writeable else None


def _restore_array(value: Any, saved: Any) -> None:
    if saved is not None:
        value[...] = saved


def _restore_bytes(value: Any, saved: Any) -> None:
    value[:] = saved


_CONTENT = {
    Kind.LIST: Rule(_items, save=_save_list, restore=_restore_list),
    Kind.DICT: Rule(_pairs, save=_content, restore=_restore_dict),
    Kind.SET: Rule(_items, save=_save_items, restore=_restore_set),
    Kind.QUEUE: Rule(_items, save=_save_items, restore=_restore_queue),
    Kind.TUPLE: Rule(lambda v: ((f"[{i}]", item) for i, item in enumerate(_immutable(v)))),
    Kind.ARRAY: Rule(
        lambda v: _items(v.ravel()) if v.dtype == object else (),
        save=_save_array, restore=_restore_array,
    ),
}


def _immutable(value: Any) -> Any:
    return tuple.__iter__(value) if isinstance(value, tuple) else frozenset.__iter__(value)


# --- objects ---------------------------------------------------------------------------------


def _attributes(value: Any) -> Parts:
    for name, item in list(attributes(value)):
        yield f".{name if isinstance(name, str) else name.__name__}", item
    kind: Any = type(value)
    if not is_library_class(kind):
        yield " class", kind


def _save_attributes(value: Any) -> Any:
    return dict(attributes(value))


def _restore_attributes(value: Any, saved: Any) -> None:
    now = dict(attributes(value))
    if list(now) == list(saved) and all(now[name] is saved[name] for name in saved):
        return
    own = getattr(type(value), "__dictoffset__", 0) and object.__getattribute__(value, "__dict__")
    if own:
        dict.clear(own)
    for name in now:
        if name not in saved and isinstance(name, types.MemberDescriptorType):
            name.__delete__(value)
    for name, item in saved.items():
        set_attribute(value, name, item)


INSTANCE = Rule(_attributes, save=_save_attributes, restore=_restore_attributes)


def _both(content: Rule) -> Rule:
    """Of a class derived from a container: its content, and its attributes."""

    def save(value: Any) -> Any:
        kept = None if content.save is None else content.save(value)
        return kept, _save_attributes(value)

    def restore(value: Any, saved: Any) -> None:
        if content.save is not None:
            content.restore(value, saved[0])
        _restore_attributes(value, saved[1])

    return Rule(lambda v: [*content.parts(v), *_attributes(v)], save=save, restore=restore)


_DERIVED = {kind: _both(rule) for kind, rule in _CONTENT.items()}


def _save_class(value: Any) -> Any:
    return {k: v for k, v in vars(value).items() if k not in _PRIVATE}


# what a class statement makes, and what classes keep for themselves
_PRIVATE = frozenset("""
    __dict__ __weakref__ __module__ __qualname__ __doc__ __annotations__ __annotations_cache__
    __annotate_func__ __firstlineno__ __static_attributes__ __slots__ __parameters__
    __orig_bases__ __abstractmethods__ _abc_impl
""".split())


def _restore_class(value: Any, saved: Any) -> None:
    now = _save_class(value)
    for name in now.keys() - saved.keys():
        type.__delattr__(value, name)
    for name, item in saved.items():
        if now.get(name, now) is not item:
            type.__setattr__(value, name, item)


def _class_parts(value: Any) -> Parts:
    for name, item in _save_class(value).items():
        if not isinstance(item, types.MemberDescriptorType | types.GetSetDescriptorType):
            yield f".{name}", item
    for base in value.__mro__[1:]:
        if not is_library_class(base):
            yield " class", base


# --- tensors ---------------------------------------------------------------------------------


def _tensor_parts(value: Tensor) -> Parts:
    if value._grad is not None:
        yield ".grad", value._grad
    for name, item in list(vars(value).items()):
        if not name.startswith("_"):
            yield f".{name}", item


def _tensor_inner(value: Tensor) -> Parts:
    for name, item in list(vars(value).items()):
        if name.startswith("_") and name not in ("_graphc_array", "_grad"):
            yield f".{name}", item


def _save_storage(value: Storage) -> Any:
    own = value.root is value and value.array.flags.writeable
    return copied(value.flat()) if own else None, value.version, value.exposed


def _restore_storage(value: Storage, saved: Any) -> None:
    values, value.version, value.exposed = saved
    Shared.rewound += 1
    if values is not None:
        write(value.flat(), values)


# --- code ------------------------------------------------------------------------------------


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _globals(function: types.FunctionType) -> Iterator[Place]:
    """The places outside a function that its code names."""
    if is_library_file(function.__code__.co_filename):
        return
    names = list(dict.fromkeys(_names(function.__code__)))
    space = function.__globals__
    modules = [(space, "", 0)]
    for mapping, prefix, depth in modules:
        for name in names:
            if prefix and name not in mapping:
                continue
            place = Place(mapping, name, f"{prefix}{name}")
            yield place
            found = place.get()
            if isinstance(found, types.ModuleType) and depth < _CHAIN:
                modules.append((vars(found), f"{prefix}{name}.", depth + 1))


def _function_parts(value: types.FunctionType) -> Parts:
    names = value.__code__.co_freevars
    for name, cell in zip(names, value.__closure__ or (), strict=True):
        yield f"|{name}", cell
    for i, default in enumerate(value.__defaults__ or ()):
        yield f".__defaults__[{i}]", default
    for name, default in (value.__kwdefaults__ or {}).items():
        yield f".__kwdefaults__[{name!r}]", default
    for name, item in vars(value).items():
        yield f".{name}", item
    for place in _globals(value):
        found = place.get()
        if not place.is_missing(found) and not isinstance(found, types.ModuleType):
            yield f"|{place.path}", found


def _save_function(value: types.FunctionType) -> Any:
    return (
        value.__code__, value.__defaults__, value.__kwdefaults__ and dict(value.__kwdefaults__),
        dict(vars(value)), [(place, place.get()) for place in _globals(value)],
    )


def _restore_function(value: types.FunctionType, saved: Any) -> None:
    code, defaults, keywords, own, places = saved
    if value.__code__ is not code:
        value.__code__ = code
    if value.__defaults__ is not defaults:
        value.__defaults__ = defaults
    if value.__kwdefaults__ != keywords:
        value.__kwdefaults__ = keywords
    if vars(value) != own:
        vars(value).clear()
        vars(value).update(own)
    for place, was in places:
        if place.get() is not was:
            place.put(was)


def _cell_parts(value: Any) -> Parts:
    found = Place(value, "", "").get()
    if not Place.is_missing(found):
        yield "", found


def _restore_cell(value: Any, saved: Any) -> None:
    Place(value, "", "").put(saved)


def _restore_buffer(value: Any, saved: Any) -> None:
    value.seek(0)
    value.truncate()
    value.write(saved[0])
    value.seek(saved[1])


def _position(value: Any) -> Any:
    if isinstance(value, types.GeneratorType):
        frame = value.gi_frame
        return None if frame is None else frame.f_lasti, value.gi_yieldfrom is None
    return repr(value) if type(value).__name__ == "count" else operator.length_hint(value, -1)


def _where(value: Any) -> Any:
    return None if value.closed or not value.seekable() else value.tell()


# the first class that an object is an instance of
_CLASSES: tuple[tuple[Any, Rule], ...] = (
    (Tensor, Rule(
        _tensor_parts, _tensor_inner, lambda v: dict(vars(v)),
        lambda v, saved: (vars(v).clear(), vars(v).update(saved))[1],
    )),
    (Storage, Rule(
        inner=lambda v: [(".root", v.root)], save=_save_storage, restore=_restore_storage
    )),
    (DeviceArray, Rule(save=copied, restore=write)),
    (placement.Place, Rule()),  # the device itself
    (Engines | Engine | Built, Rule()),  # compiled code, with scratch of its own
    (Node, INSTANCE._replace(parts=_none, inner=_attributes)),
    (Generator, INSTANCE._replace(save=lambda v: (v.state, _save_attributes(v))[1])),
    (random.Random, Rule(
        save=lambda v: v.getstate(), restore=lambda v, s: v.setstate(s), shows=True
    )),
    (np.random.Generator, Rule(
        save=lambda v: v.bit_generator.state,
        restore=lambda v, s: setattr(v.bit_generator, "state", s), shows=True,
    )),
    (np.random.RandomState, Rule(
        save=lambda v: v.get_state(legacy=False), restore=lambda v, s: v.set_state(s), shows=True
    )),
    (types.FunctionType, Rule(_function_parts, save=_save_function, restore=_restore_function)),
    (types.MethodType, Rule(lambda v: [(".__self__", v.__self__), (".__func__", v.__func__)])),
    (functools.partial, Rule(
        lambda v: [(".func", v.func), (".args", v.args), (".keywords", v.keywords)]
    )),
    (types.CellType, Rule(
        _cell_parts, save=lambda v: Place(v, "", "").get(), restore=_restore_cell
    )),
    (staticmethod | classmethod, Rule(lambda v: [("", v.__func__)])),
    (property, Rule(lambda v: [("", f) for f in (v.fget, v.fset, v.fdel) if f is not None])),
    (functools.cached_property, Rule(lambda v: [("", v.func)])),
    (bytearray | Array, Rule(save=lambda v: v[:], restore=_restore_bytes, shows=True)),
    (types.BuiltinFunctionType, Rule(
        lambda v: [] if isinstance(v.__self__, types.ModuleType | type) else [("", v.__self__)]
    )),
    (ContextVar, Rule(lambda v: [(".get()", v.get(None))])),  # each run has a context of its own
    (io.StringIO | io.BytesIO, Rule(
        save=lambda v: (v.getvalue(), v.tell()), restore=_restore_buffer, shows=True
    )),
    (weakref.ref, Rule(lambda v: [("()", v())])),
    (types.GeneratorType, Rule(moved=_position)),
)
_CLASS = Rule(_class_parts, save=_save_class, restore=_restore_class)
# nothing tells what is in a cache: every run begins with an empty one
_CACHE = Rule(
    lambda v: [("", v.__wrapped__)], save=lambda v: v.cache_clear(),
    restore=lambda v, saved: v.cache_clear(),
)
_VIEW = Rule(lambda v: [("", item) for item in gc.get_referents(v)])
_ITERATOR = Rule(moved=_position)
_FILE = Rule(moved=_where)
_OPEN = Rule(moved=lambda v: None)
# which object it is means nothing
UNNAMED = (tuple, frozenset, types.MethodType)
_ATOMS = frozenset((Kind.VALUE, Kind.FIXED, Kind.MODULE, Kind.NUMBER))


def is_library_file(file: str) -> bool:
    """Whether code is Python's own, graphc's or an installed package's."""
    return file.startswith(_PYTHON) or any(part in file for part in _INSTALLED)


@functools.lru_cache(maxsize=4096)
def is_library_class(kind: Any) -> bool:
    """Whether a class is Python's own, graphc's or an installed package's."""
    module = kind.__module__
    if is_standard(module) or is_own_name(module) or module.split(".")[0] in ("graphc", "numpy"):
        return True
    methods = [m for m in vars(kind).values() if isinstance(m, types.FunctionType)]
    return any(is_library_file(m.__code__.co_filename) for m in methods[:1])


def rule_of(value: Any) -> Rule | None:
    """How an object is kept; None for one that holds nothing and never changes."""
    kind = kind_of(type(value))
    if hasattr(type(value), "cache_info"):
        return _CACHE
    for classes, rule in _CLASSES:
        if issubclass(type(value), classes):  # isinstance() would ask a user's object
            return rule
    if issubclass(type(value), type):
        return None if is_library_class(value) else _CLASS
    if kind in _ATOMS:
        return None
    if hasattr(type(value), "__compiled_function__"):
        return Rule(lambda v: [("", v.__compiled_function__)])
    if kind is Kind.VIEW:
        return _VIEW
    if kind is Kind.ITERATOR:
        return _ITERATOR
    if kind in _CONTENT:
        return _CONTENT[kind]
    content = content_of(type(value))
    if content is not None and kind is not Kind.OPEN:
        return _DERIVED[content]
    if kind in (Kind.INSTANCE, Kind.OWN):
        return INSTANCE
    if hasattr(type(value), "seekable") and hasattr(type(value), "tell"):
        return _FILE
    return _OPEN if kind is Kind.OPEN else None
