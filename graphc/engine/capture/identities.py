"""hash() and id(): of what the call makes anew they differ at each call."""

from __future__ import annotations

from typing import Any

from . import copying, items
from .kinds import Kind, kind_of
from .observer import Observer
from .rule import Rule


def _hash(observer: Observer, function: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    found = items.python_method(observer, args[0], "__hash__")
    if found is not None:
        return (int(observer.run(found, args[0])),)
    if _is_anew(observer, args[0]):
        observer.open("hash() of an object that each call makes anew")
    return None


def _is_anew(observer: Observer, value: Any) -> bool:
    """Whether the call itself has made something that is hashed by its identity."""
    if type(value) is tuple:
        return any(_is_anew(observer, item) for item in value)
    return kind_of(type(value)) in _BY_IDENTITY and not observer.is_known(value)


_BY_IDENTITY = frozenset((
    Kind.TENSOR, Kind.INSTANCE, Kind.FUNCTION, Kind.METHOD, Kind.PARTIAL, Kind.ITERATOR,
))


def _identifier(observer: Observer, function: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    value = args[0]
    argument = kind_of(type(value)) is Kind.TENSOR and observer.trace.argument_index(value) >= 0
    if observer.is_known(value) and not argument:
        return None
    if copying.is_key():
        return (copying.Identity(id(value)),)
    observer.open("id() of an object that each call makes anew")
    return None


RULES: dict[str, Rule] = {"builtins.hash": _hash, "builtins.id": _identifier}
