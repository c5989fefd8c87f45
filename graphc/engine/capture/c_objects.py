"""Calls of C objects: NumPy's functions, functools' caches, weak references, operator's getters."""

from __future__ import annotations

import functools
import operator
import weakref
from typing import Any

import numpy as np

from ...frontend.tensor import Tensor
from . import attributes, items, numpy_calls
from .kinds import Kind, full_name, is_plain, kind_of
from .observer import Observer
from .rule import Call, answer


def call(
    observer: Observer, function: Any, name: str, args: tuple[Any, ...], kwargs: Any
) -> Call:
    """What to call in place of an object that no table of c_functions.py names."""
    kind = type(function)
    if numpy_calls.is_listed(function):
        observer.touch(args, kwargs)
        numpy_calls.called(observer, function, args, kwargs)
        return function, args, kwargs
    if kind is functools._lru_cache_wrapper:
        return _cached(observer, function, args, kwargs)
    if kind is weakref.ReferenceType:
        if isinstance(function(), (Tensor, np.ndarray)) and observer.is_known(function):
            # a version's inputs would keep it alive, where its death is to be seen
            observer.open("a weak reference to a tensor or an array")
            return function, args, kwargs
        return answer(observer.referent(function))
    if full_name(kind) in ("operator.itemgetter", "operator.attrgetter",
                           "operator.methodcaller"):
        return answer(_getter(observer, function, args[0]))
    if full_name(kind) == "functools.KeyWrapper" and not observer.is_known(function):
        return function, args, kwargs  # what cmp_to_key was given is recorded, as it is compared
    observer.open(f"{name}()" if kind_of(kind) is Kind.BUILTIN else f"a call of a {name}")
    return function, args, kwargs


def _cached(observer: Observer, function: Any, args: tuple[Any, ...], kwargs: Any) -> Call:
    """functools.lru_cache: what it holds is the user's own state."""
    given = tuple([items.plain_key(observer, value) for value in args])
    named = {k: items.plain_key(observer, v) for k, v in (kwargs or {}).items()}
    if not all(_keepable(observer, value) for value in (*given, *named.values())):
        observer.open(f"{cache_name(function)}, whose cache keeps what it is given,")
        return function, args, kwargs
    return answer(observer.cached(function, given, named, cache_name(function)))


def cache_name(function: Any) -> str:
    """What a cache keeps, in words; it may be a partial's."""
    return f"{getattr(function, '__name__', 'a function')}()"


def _keepable(observer: Observer, value: Any) -> bool:
    """Whether a cache that keeps a value finds it again at the next call."""
    if issubclass(type(value), Tensor):
        argument = value._graphc_trace is not None or observer.trace.argument_index(value) >= 0
        return not argument and observer.is_known(value)
    if kind_of(type(value)) is Kind.TUPLE:  # a size, say
        return all(_keepable(observer, part) for part in value)
    return is_plain(value) or observer.is_known(value)


def _getter(observer: Observer, getter: Any, value: Any) -> Any:
    """operator.itemgetter and its kin."""
    kind, parts = getter.__reduce__()[:2]
    maker = getattr(kind, "func", kind)  # a partial where a methodcaller has keywords
    if maker is operator.itemgetter:
        found = tuple([items.subscript(observer, value, key) for key in parts])
    elif maker is operator.attrgetter:
        found = tuple([_dotted(observer, value, name) for name in parts])
    else:
        if isinstance(kind, functools.partial):
            name, keywords = kind.args[0], kind.keywords
            given = parts
        else:
            (name, *given), keywords = parts, {}
        return observer.invoke(
            attributes.attribute(observer, value, name), *given, **keywords
        )
    return found[0] if len(found) == 1 else found


def _dotted(observer: Observer, value: Any, path: str) -> Any:
    for name in path.split("."):
        value = attributes.attribute(observer, value, name)
    return value
