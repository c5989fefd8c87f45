"""Calls of NumPy's functions: rows of numpy_tables.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from .kinds import Kind, kind_of
from .numpy_tables import (
    CLOCK,
    OF_ARRAYS,
    OF_NEW,
    OF_UFUNCS,
    PRINTED,
    SETTINGS,
    TOLD,
    functions,
)
from .observer import Observer


def is_listed(function: Any) -> bool:
    """Whether a function is NumPy's own, and a row says what it does."""
    return any(id(function) in table for table in (functions(), PRINTED, SETTINGS, TOLD, OF_NEW))


def called(observer: Observer, function: Any, args: tuple[Any, ...], kwargs: Any) -> None:
    """A listed function is about to be called; its arguments are read already."""
    named = kwargs or {}
    given = [*args, *named.values()]
    key, name = id(function), f"numpy.{function.__name__}()"
    if function.__name__.startswith("__") and args and observer.is_known(args[0]) and (
        key in OF_NEW or key in SETTINGS
    ):
        observer.open(f"{function.__qualname__}() of {observer.path(args[0])}")
    if key in OF_NEW:
        return
    if key in SETTINGS:
        observer.numpy_setting(SETTINGS[key], switches=True)
        return
    if key in TOLD:
        observer.numpy_setting(TOLD[key], switches=False)
        return
    observer.numpy_settings(text=key in PRINTED)
    if any(map(_calls_back, given)):
        observer.open(f"{name}, which calls a function that it is given,")
    if any(type(value) is str and value in CLOCK for value in _leaves(given)):
        observer.open(f"{name}, which reads the clock,")


def made(observer: Observer, kind: type, args: tuple[Any, ...]) -> None:
    """One of NumPy's scalars is about to be made."""
    if any(type(value) is str and value in CLOCK for value in args):
        observer.open(f"numpy.{kind.__name__}(), which reads the clock,")


def method(observer: Observer, owner: Any, name: str) -> None:
    """A C method of an array, of a scalar or of a ufunc is about to be called."""
    if type(owner) is np.ufunc:
        if name not in OF_UFUNCS or id(owner) not in functions():
            observer.open(f"ufunc.{name}() of {getattr(owner, '__name__', 'a function')}")
        observer.numpy_settings(text=False)
        return
    if name not in OF_ARRAYS:
        observer.open(f"{type(owner).__name__}.{name}()")
    elif name in _SAID:
        observer.numpy_settings()
    if isinstance(owner, np.ndarray):
        observer.array(owner)


_SAID = frozenset(("__str__", "__repr__", "__format__"))


def _calls_back(value: Any) -> bool:
    """Whether a value is a function that nobody records, or holds some."""
    if isinstance(value, (dict, list, tuple)):
        return any(map(_calls_back, value.values() if isinstance(value, dict) else value))
    return kind_of(type(value)) in _FUNCTIONS


_FUNCTIONS = frozenset((Kind.FUNCTION, Kind.METHOD, Kind.BUILTIN, Kind.PARTIAL))


def _leaves(values: Any) -> list[Any]:
    """Values, and what lists and arrays of texts among them hold."""
    found: list[Any] = []
    stack = list(values)
    while stack:
        value = stack.pop()
        if isinstance(value, np.ndarray) and value.dtype.kind in "UO":
            value = value.ravel().tolist()
        if isinstance(value, (list, tuple)):
            stack += value
        else:
            found.append(value)
    return found
