"""What code asks about the class of an object: type(), isinstance(), issubclass()."""

from __future__ import annotations

import types
from abc import ABCMeta
from typing import Any

from ...frontend.pending import PendingItem
from ...frontend.texts import is_traced_value
from . import attributes
from .kinds import Kind, is_standard_class, kind_of
from .observer import Observer
from .places import MISSING


def _type(observer: Observer, function: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    if len(args) != 1:
        observer.open("type() of three arguments")
        return None
    if type(args[0]) is PendingItem:
        observer.open(f"asking for the class of what {args[0].method}() gives")
        return None
    if kind_of(type(args[0])) is Kind.NUMBER:
        return (int if args[0].is_integer_number else float,)
    if kind_of(type(args[0])) is Kind.TEXT:
        return (str,)
    if observer.is_known(args[0]) and kind_of(type(args[0])) is Kind.INSTANCE:
        observer.kind(args[0])
    return None


def _isinstance(observer: Observer, function: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    value, classes = args
    if type(value) is PendingItem:
        observer.open(f"asking for the class of what {value.method}() gives")
        return None
    if observer.is_known(value) and kind_of(type(value)) is Kind.INSTANCE:
        observer.kind(value)
    for kind in classes if isinstance(classes, tuple) else (classes,):
        _registered(observer, value, kind)
        check = observer.lookup(type(kind), "__instancecheck__") if (
            isinstance(kind, type) and type(kind) is not type
        ) else MISSING
        if isinstance(check, types.FunctionType) and check.__module__ not in _CHECKS and (
            not check.__module__.startswith("graphc.")
        ):
            return (bool(observer.run(check, kind, value)),)
    if _tells_its_class(type(value)) or isinstance(
        observer.lookup(type(value), "__getattribute__"), types.FunctionType
    ):  # the object itself says what its class is, where its type is none of these
        if issubclass(type(value), classes):
            return (True,)
        said = attributes.attribute(observer, value, "__class__")
        return (isinstance(said, type) and issubclass(said, classes),)
    return None


def _tells_its_class(kind: type) -> bool:
    """Whether objects of a class say themselves what their class is; no class gets that later."""
    return any("__class__" in vars(base) for base in kind.__mro__ if base is not object)


def _registered(observer: Observer, value: Any, kind: Any) -> None:
    """What is an instance of an abstract class may be registered there, or change (protocols)."""
    fixed = is_standard_class(type(value)) and is_standard_class(kind)
    if fixed or not isinstance(kind, ABCMeta) or is_traced_value(value):
        return
    if observer.is_known(value):
        observer.result(isinstance, (value, kind), f"isinstance(..., {kind.__qualname__})")
    elif type(kind) is ABCMeta:
        _issubclass(observer, issubclass, (type(value), kind), {})


def _issubclass(observer: Observer, function: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    kind, classes = args
    for base in classes if isinstance(classes, tuple) else (classes,):
        if isinstance(base, ABCMeta) and not (
            is_standard_class(kind) and is_standard_class(base)
        ):
            what = f"issubclass({kind.__qualname__}, {base.__qualname__})"
            observer.result(issubclass, (kind, base), what)
    return None


_CHECKS = ("abc", "enum", "typing", "_py_abc")


RULES = {
    "builtins.type": _type, "builtins.isinstance": _isinstance, "builtins.issubclass": _issubclass,
}
