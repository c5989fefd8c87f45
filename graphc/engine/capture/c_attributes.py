"""Attributes that C code answers: of arrays, partials, enumerations, exceptions, classes.

What a known object says is guarded by asking again at each call, unless it can never change.
"""

from __future__ import annotations

import re
import types
from typing import Any

from .kinds import Kind, is_own_name, is_standard_class, kind_of
from .observer import Observer
from .places import same

_METHODS = (
    types.BuiltinFunctionType, types.MethodWrapperType, types.MethodType,
    type(re.compile("").sub),  # a method that is told its class
)
# of an array, but for its values
_OF_ARRAYS = frozenset("shape dtype ndim size itemsize nbytes strides base flags".split())


def ask(observer: Observer, obj: Any, name: str, read: Any = getattr) -> Any:
    """What an object says is its attribute; `read` asks it."""
    value = read(obj, name)
    if not observer.is_known(obj) or (
        type(value) in _METHODS and value.__self__ is obj
    ):
        return value
    path = f"{observer.path(obj)}.{name}"
    if kind_of(type(obj)) is Kind.ARRAY and name not in _OF_ARRAYS:
        observer.array(obj)  # a view of its values
        return value
    if type(value) is types.MappingProxyType:  # another at each time, of the same mapping
        return observer.know(value, path)
    if value is not (again := read(obj, name)) and not same(value, again):
        observer.open(f"reading {path}, which is another object each time,")
        return value
    return observer.result(read, (obj, name), path)


def of_class(observer: Observer, kind: type, name: str) -> Any:
    """An attribute of every class, which its metaclass computes: __name__, __mro__."""
    module = kind.__module__
    if isinstance(module, str) and (
        is_own_name(module) or module.startswith("graphc.") or is_standard_class(kind)
    ):
        return getattr(kind, name)
    if name in _OF_ORDER:
        observer.order(kind)
    elif name in _NAMES:
        observer.result(getattr, (kind, name), f"{kind.__qualname__}.{name}")
    return getattr(kind, name)


_OF_ORDER = frozenset(("__mro__", "__bases__", "__base__", "mro"))
_NAMES = frozenset(("__name__", "__qualname__", "__module__"))


def named(observer: Observer, kind: type) -> None:
    """C code prints the name of a class."""
    for name in ("__qualname__", "__module__"):
        of_class(observer, kind, name)


def printed(observer: Observer, obj: Any) -> None:
    """C code prints an instance. (Its address is another at each run, not at each call.)"""
    named(observer, type(obj))
    if isinstance(obj, BaseException):
        observer.whole(ask(observer, obj, "args", object.__getattribute__))
    else:
        namespace(observer, obj)


def namespace(observer: Observer, obj: Any) -> None:
    """C code prints or compares an instance: of a SimpleNamespace, all attributes."""
    if issubclass(type(obj), types.SimpleNamespace) and observer.is_known(obj):
        observer.whole(observer.know(vars(obj), f"{observer.path(obj)}.__dict__"))
