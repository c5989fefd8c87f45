"""What a function reaches by name, for the names of graph inputs; nothing is decided by it."""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from ...frontend.names import fields_of, is_module
from ...frontend.tensor import Tensor
from ...frontend.tree import Structure
from .kinds import PACKAGE, is_standard

_ITEMS = 64  # of a container that are looked at
_DEPTH = 3  # of containers, objects and functions in each other


def reached(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any],
    also: Callable[[Any], bool] | None = None,
) -> dict[str, Any]:
    """The Modules and tensors among arguments, globals and closure cells, by variable. `also` says
    what else is wanted; then the function's own are looked at, wherever it is from."""
    found: dict[str, Any] = {}
    inner, given = unwrapped(function, args)
    seen: set[int] = set()
    for name, value in (*zip(_names(inner, len(given)), given, strict=True), *kwargs.items()):
        _note(name, value, found, seen, also, _DEPTH)
    _note("", inner, found, seen, also, _DEPTH)
    if also is not None and isinstance(inner, types.FunctionType):
        for name, value in _variables(inner):
            _note(name, value, found, seen, also, _DEPTH)
    return found


def given(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The tensors that are arguments themselves, by the names of these."""
    inner, values = unwrapped(function, args)
    named = (*zip(_names(inner, len(values)), values, strict=True), *kwargs.items())
    return {name: value for name, value in named if isinstance(value, Tensor)}


def argument_names(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], structure: Structure
) -> list[str]:
    """A name for each leaf of (args, kwargs): "x", "batch['mask']", "inputs[0]"."""
    inner, given = unwrapped(function, args)
    names = _names(inner, len(given))[len(given) - len(args) :]
    positional, named = structure.children
    found: list[str] = []
    for name, child in (
        *zip(names, positional.children, strict=True),
        *zip(kwargs, named.children, strict=True),
    ):
        found += _paths(str(name), child)
    return found


def unwrapped(function: Any, args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """The Python function behind partials, methods, decorators and Modules, and its arguments."""
    while True:
        if isinstance(function, functools.partial):
            function, args = function.func, (*function.args, *args)
        elif isinstance(function, types.MethodType):
            function, args = function.__func__, (function.__self__, *args)
        elif hasattr(type(function), "__compiled_function__"):
            function = function.__compiled_function__
        elif isinstance(function, types.FunctionType) and "__wrapped__" in vars(function):
            function = vars(function)["__wrapped__"]
        elif is_module(function):
            function = function.forward
        elif args and is_module(args[0]) and getattr(function, "__name__", "") == "__call__":
            function, args = args[0].forward, args[1:]
        elif isinstance(function, types.FunctionType):
            return function, args
        else:
            call = getattr(type(function), "__call__", None)  # noqa: B004
            return (call, (function, *args)) if isinstance(call, types.FunctionType) else (
                None, args
            )


def _names(function: types.FunctionType | None, count: int) -> list[str]:
    """Names of the first positional arguments. A method's `self` goes without."""
    if function is None:
        return [f"argument{i}" for i in range(count)]
    code = function.__code__
    names = list(code.co_varnames[: min(code.co_argcount, count)])
    if names[:1] == ["self"]:
        names[0] = ""
    starred = code.co_flags & inspect.CO_VARARGS
    rest = code.co_varnames[code.co_argcount + code.co_kwonlyargcount] if starred else "argument"
    return names + [f"{rest}[{i}]" for i in range(count - len(names))]


def _paths(name: str, structure: Structure) -> Iterator[str]:
    if structure.kind is None:
        yield name
    for i, child in enumerate(structure.children):
        key = structure.keys[i] if structure.keys else i
        yield from _paths(f"{name}[{_key(key)}]", child)


def _key(key: Any) -> str:
    """A key as text; the user's __repr__ is not called."""
    return repr(key) if type(key) in (str, int) else type(key).__name__


def _note(
    name: str, value: Any, found: dict[str, Any], seen: set[int],
    also: Callable[[Any], bool] | None, depth: int,
) -> None:
    if also is not None and also(value):
        found.setdefault(name, value)
    if issubclass(type(value), Tensor) or is_module(value):
        found.setdefault(name, value)
        value = getattr(type(value), "forward", None)  # what a Module's code reaches
    if depth == 0 or id(value) in seen:
        return
    seen.add(id(value))
    for inner, item in _items(name, value):
        _note(inner, item, found, seen, also, depth - 1)


def _items(name: str, value: Any) -> list[tuple[str, Any]]:
    """What a container, an object of the user's, or a function of the user's holds."""
    kind = type(value)  # the user's __class__ is not asked
    if kind is types.MethodType:
        return [("", value.__self__), ("", value.__func__)]
    if kind is types.FunctionType:
        return _variables(value) if _users(value) else []
    if kind in (list, tuple):
        return [(f"{name}[{i}]", item) for i, item in enumerate(value[:_ITEMS])]
    if kind is dict:
        return [(f"{name}[{_key(key)}]", item) for key, item in islice(value.items(), _ITEMS)]
    if issubclass(kind, type) or not _users(kind):
        return []
    fields = islice(fields_of(value).items(), _ITEMS)
    return [(f"{name}.{key}" if name else key, v) for key, v in fields]


def _users(value: Any) -> bool:
    """Whether a class or a function is the user's, not a library's."""
    module = sys.modules.get(value.__module__ or "")
    file = getattr(module, "__file__", None) or ""
    return value.__module__ == "__main__" or (
        bool(file) and not file.startswith(PACKAGE) and "site-packages" not in file
        and not is_standard(value.__module__)
    )


def code_names(code: types.CodeType) -> list[str]:
    """The names in code and in the functions that it makes."""
    names = list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names.extend(code_names(constant))
    return names


def _variables(function: types.FunctionType) -> list[tuple[str, Any]]:
    """The closure cells of a function and the globals that its code names."""
    found: list[tuple[str, Any]] = []
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            found.append((name, cell.cell_contents))
        except ValueError:
            continue  # an empty cell
    names = dict.fromkeys(code_names(code))
    return found + [(n, function.__globals__[n]) for n in names if n in function.__globals__]
