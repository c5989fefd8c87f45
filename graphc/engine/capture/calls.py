"""Calls under a recording: what is called, and in which form.

A Python function is called in its rewritten copy; graphc's own machinery as it is; a C function
by its row in c_functions.py. `call` gives what is to be called, natively, in the caller's frame.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
import types
from collections.abc import Callable
from enum import Enum, EnumMeta
from typing import Any

from ...frontend.random_state import initial_seed
from ...frontend.texts import is_text
from ..detour import original
from ..marks import Mark, marks
from . import c_attributes, c_functions, draws, exits, numpy_calls, own_objects, settings
from .c_tables import SEEDED, SETTINGS, SWITCHES
from .instrument import Uninstrumentable, Where, instrumented, is_rewritten
from .kinds import Kind, content_of, is_own_name, is_standard_class, kind_of
from .observer import Observer
from .outside import unbound
from .places import MISSING
from .rule import Call, answer
from .streams import is_draw


def call(observer: Observer, function: Any, args: tuple[Any, ...], kwargs: Any) -> Call:
    """What to call in place of `function(*args, **kwargs)`."""
    marked = marks.of(function)
    if marked is not None:
        if marked.mark is not Mark.SUBSTITUTED:
            return exits.call(observer, marked, function, args, kwargs)
        function = marked.detail
    kind = kind_of(type(function))
    if kind is Kind.FUNCTION:
        return _python(observer, function, args, kwargs)
    if kind is Kind.METHOD:
        owner = function.__self__
        if observer.is_known(function):
            observer.know(owner, f"{observer.path(function)}.__self__")
            observer.know(function.__func__, observer.path(function))
        name = getattr(function.__func__, "__name__", "")
        if kind_of(type(owner)) is Kind.TEXT:
            observer.touch([a for a in args if not is_text(a)], kwargs)
            return function, args, kwargs
        if kind_of(type(owner)) is Kind.OPEN:
            if is_draw(owner, name):
                found = draws.call(observer, function, owner, args, kwargs)
                return (function, args, kwargs) if found is None else answer(found[0])
            observer.open(draws.phrase(owner, name), owner=owner)
            return function, args, kwargs
        if observer.is_watched(owner) and is_own_name(function.__func__.__module__):
            c_functions.method(observer, owner, name, args, kwargs)
            return function, args, kwargs
        own_objects.called(observer, owner, name)
        return call(observer, function.__func__, (owner, *args), kwargs)
    if kind is Kind.BUILTIN:
        return c_functions.call(observer, function, args, kwargs)
    if kind is Kind.CLASS:
        return _construct(observer, function, args, kwargs)
    if kind is Kind.PARTIAL:
        if observer.is_known(function):
            path = observer.path(function)
            for name in ("func", "args", "keywords"):
                c_attributes.ask(observer, function, name)
            for i, value in enumerate((*function.args, *function.keywords.values())):
                observer.know(value, f"argument {i} of {path}")
            observer.whole(function.keywords, deep=False)
        named = {**function.keywords, **(kwargs or {})}
        return call(observer, function.func, (*function.args, *args), named or None)
    if kind is Kind.INSTANCE:
        method = observer.lookup(type(function), "__call__")
        if method is not MISSING:
            return call(observer, *_bound(observer, method, function, args), kwargs)
        return function, args, kwargs
    if hasattr(function, "__compiled_function__"):
        inner = function.__compiled_function__
        if observer.is_known(function):
            observer.know(inner, observer.path(function))
        return call(observer, inner, args, kwargs)
    if kind is Kind.OWN:
        return _own(observer, function, args, kwargs)
    return c_functions.call(observer, function, args, kwargs)


def _bound(
    observer: Observer, member: Any, obj: Any, args: tuple[Any, ...]
) -> tuple[Any, tuple[Any, ...]]:
    """A special method as Python calls it: not all that a class holds gets the object."""
    if isinstance(member, classmethod):
        return member.__func__, (type(obj), *args)
    if isinstance(member, staticmethod):
        return member.__func__, args
    if isinstance(member, functools.partial) or not hasattr(type(member), "__get__"):
        return unbound(observer, member), args
    if _binds_in_python(member):
        return observer.run(type(member).__get__, member, obj, type(obj)), args
    return member, (obj, *args)


def _binds_in_python(member: Any) -> bool:
    """Whether a class member is a descriptor written in Python (functools.partialmethod, ...)."""
    return isinstance(getattr(type(member), "__get__", None), types.FunctionType)


def _unwrapped(member: Any) -> Any:
    return member.__func__ if isinstance(member, (staticmethod, classmethod)) else member


def invoke(observer: Observer, function: Any, *args: Any, **kwargs: Any) -> Any:
    """Call something from graphc's own code as the user's code would."""
    if not observer.running:
        return function(*args, **kwargs)
    found, args, named = call(observer, function, args, kwargs or None)
    return found(*args, **(named or {}))


def existed(observer: Observer, function: Any) -> None:
    """A function that graphc's own code will call existed before the call."""
    observer.know(function, getattr(function, "__name__", type(function).__name__))
    if isinstance(function, types.MethodType):
        owner = function.__self__
        observer.know(function.__func__, function.__func__.__qualname__)
        observer.know(owner, type(owner).__name__)


def entry(observer: Observer, function: Any) -> Any:
    """What code that is not rewritten may call in place of a user's function."""
    kind = kind_of(type(function)) if marks.of(function) is None else Kind.FIXED
    if kind is Kind.FUNCTION:
        if is_own(function) or is_rewritten(function.__code__):
            return function
        return copy_of(observer, function)
    if kind is Kind.METHOD and isinstance(function.__func__, types.FunctionType):
        if is_own(function.__func__):
            return function
        if observer.is_known(function) or observer.is_known(function.__self__):
            existed(observer, function)
        return types.MethodType(entry(observer, function.__func__), function.__self__)
    if kind in (Kind.METHOD, Kind.PARTIAL, Kind.INSTANCE, Kind.CLASS, Kind.BUILTIN, Kind.FIXED):
        def entered(*args: Any, **kwargs: Any) -> Any:
            return invoke(observer, function, *args, **kwargs)

        return entered
    return function


# --- Python functions ------------------------------------------------------------------------


def is_own(function: types.FunctionType) -> bool:
    """Whether a function belongs to graphc's own machinery."""
    return is_own_name(function.__globals__.get("__name__"))


def _python(observer: Observer, function: Any, args: tuple[Any, ...], kwargs: Any) -> Call:
    rule = c_functions.PYTHON.get(f"{function.__module__}.{function.__qualname__}")
    if rule is not None:
        found = rule(observer, function, args, kwargs or {})
        return answer(found[0]) if found is not None else (function, args, kwargs)
    if is_own(function) or SWITCHES.get(function.__name__, "") == function.__module__:
        return _own(observer, function, args, kwargs)
    if numpy_calls.is_listed(function):
        return c_functions.call(observer, function, args, kwargs)
    return copy_of(observer, function), args, kwargs


def _own(observer: Observer, function: Any, args: tuple[Any, ...], kwargs: Any) -> Call:
    """Something of graphc's own reads all that it gets, and may call what it gets."""
    name = getattr(function, "__name__", "")
    if name in SETTINGS and function.__module__ == SETTINGS[name]:
        return answer(settings.read(observer, function, name, args))
    if name in SWITCHES and function.__module__ == SWITCHES[name]:
        settings.write(observer, name)
    if name in SEEDED and function.__module__ == SEEDED[name]:
        observer.result(args[0].initial_seed if args else initial_seed, (), "initial_seed()")
    wrapped = getattr(function, "__wrapped__", None)
    if wrapped is not None and observer.is_known(function):  # a decorator: no_grad, autocast
        observer.know(wrapped, observer.path(function))
    wrap = not name.startswith("register_") and name != "defer"  # these keep it
    given = tuple([_handed(observer, value, wrap) for value in args])
    named = {k: _handed(observer, v, wrap) for k, v in kwargs.items()} if kwargs else None
    return function, given, named


def _handed(observer: Observer, value: Any, wrap: bool) -> Any:
    kind = kind_of(type(value))
    if kind is Kind.TEXT:
        return value.decided()
    if kind in (Kind.FUNCTION, Kind.METHOD, Kind.PARTIAL):
        return entry(observer, value) if wrap else value
    if kind is Kind.CLASS:
        _members(observer, value)
    if kind is Kind.ARRAY:
        observer.lend(value)
    if kind in _HELD or (kind is Kind.INSTANCE and content_of(type(value)) is not None):
        observer.whole(value)
    return value


def _members(observer: Observer, kind: type) -> None:
    """graphc's own code may call whatever a user's class has (a custom Function's backward)."""
    for base in kind.__mro__:
        if not (base.__module__.startswith("graphc.") or is_standard_class(base)):
            for name, member in list(vars(base).items()):
                if isinstance(member, (types.FunctionType, staticmethod, classmethod)):
                    observer.lookup(kind, name)


_HELD = frozenset((
    Kind.LIST, Kind.TUPLE, Kind.DICT, Kind.SET, Kind.QUEUE, Kind.ARRAY, Kind.VIEW, Kind.ITERATOR,
))
# (id of code, id of globals): the copy, and what keeps the ids taken
_CODES: dict[tuple[int, int], tuple[types.CodeType, types.CodeType, Any]] = {}
_LIMIT = 4096


def copy_of(observer: Observer, function: types.FunctionType) -> types.FunctionType:
    """The rewritten copy of a Python function."""
    code = function.__code__
    if is_rewritten(code):
        return function
    observer.know(function.__globals__, function.__module__ or "globals")
    observer.code(function)
    if observer.is_known(function):
        for cell in function.__closure__ or ():
            observer.know(cell, "a closure's variable")
    try:
        rewritten = rewritten_code(original(code), function.__globals__)
    except Uninstrumentable as error:
        observer.open(f"{function.__qualname__}(), which has {error},")
        return function
    copy = types.FunctionType(
        rewritten, function.__globals__, function.__name__, function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def rewritten_code(code: types.CodeType, namespace: dict[str, Any]) -> types.CodeType:
    """A code object that reports what it does, for functions with these globals."""
    key = id(code), id(namespace)
    found = _CODES.get(key)
    if found is not None and found[1] is code and found[2] is namespace:
        return found[0]
    if len(_CODES) >= _LIMIT:  # of code that comes and goes: the oldest leaves
        del _CODES[next(iter(_CODES))]

    def make(kind: str, detail: Any, where: Where) -> Any:
        kind_of_site = SITES.get(kind)
        return None if kind_of_site is None else kind_of_site(detail, where, namespace)

    made = instrumented(code, make)
    _CODES[key] = made, code, namespace
    return made


SITES: dict[str, Callable[[Any, Where, dict[str, Any]], Any]] = {}  # filled by recorded_sites.py


# --- classes ---------------------------------------------------------------------------------


def _construct(observer: Observer, kind: Any, args: tuple[Any, ...], kwargs: Any) -> Call:
    meta = observer.lookup(type(kind), "__call__") if type(kind) is not type else MISSING
    if isinstance(meta, types.FunctionType) and not _of_library(type(kind)):
        return call(observer, meta, (kind, *args), kwargs)
    made = kind_of(kind)
    if isinstance(kind, EnumMeta):
        observer.touch(args, kwargs)
        if observer.lookup(kind, "_missing_") is _NO_MEMBER:  # none of the user's code runs
            member = observer.plainly(kind, args, kwargs or {})
            return answer(observer.know(member, f"{kind.__qualname__}({args[0]!r})"))
        return kind, args, kwargs
    if made is Kind.INSTANCE:
        return answer(_made(observer, kind, args, kwargs or {}))
    if made in (Kind.TENSOR, Kind.OWN):
        return _own(observer, kind, args, kwargs)
    return c_functions.construct(observer, kind, args, kwargs)


_NO_MEMBER = vars(Enum)["_missing_"]


def _of_library(kind: type) -> bool:
    return is_own_name(kind.__module__) or kind.__module__ in ("enum", "abc", "typing")


def _made(observer: Observer, kind: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A new instance of a class written in Python."""
    if observer.lookup(kind, "__del__") is not MISSING:  # no recording sees it run
        observer.open(f"making a {kind.__qualname__}, whose __del__() runs when it dies,")
    maker = observer.lookup(kind, "__new__")
    start = observer.lookup(kind, "__init__")
    maker = _unwrapped(maker)
    if isinstance(maker, types.FunctionType) and maker.__module__ != "typing":
        made = observer.run(maker, kind, *args, **kwargs)
    else:
        if not isinstance(start, types.FunctionType):
            found, given, named = c_functions.construct(observer, kind, args, kwargs or None)
            return found(*given, **(named or {}))
        if kind.__new__ is object.__new__ or content_of(kind) not in (None, Kind.TUPLE):
            made = kind.__new__(kind)
        else:
            made = kind.__new__(kind, *args, **kwargs)
    if isinstance(made, kind):
        if isinstance(start, types.FunctionType):
            observer.run(start, made, *args, **kwargs)
        elif _binds_in_python(start):
            bound, _ = _bound(observer, start, made, ())
            observer.run(bound, *args, **kwargs)
        elif start is not MISSING and start is not object.__init__:
            observer.touch(args, kwargs)
            start(made, *args, **kwargs)
    return made


def run(observer: Observer, function: Any, *args: Any, **kwargs: Any) -> Any:
    """Run a Python function, recorded."""
    return invoke(observer, function, *args, **kwargs)


def imported(
    observer: Observer, plain: Any, name: str, operand: Any, namespace: dict[str, Any]
) -> Any:
    """`import name`: of a module that is loaded, a read; of another one, its code runs."""
    level, fromlist = operand
    full = importlib.util.resolve_name("." * level + name, namespace.get("__package__")) if (
        level
    ) else name
    loaded = sys.modules.get(full)
    if loaded is None or any(
        part != "*" and not hasattr(loaded, part) for part in fromlist or ()
    ):  # its code runs once, as it would without a recording
        with observer.trace.suspended():
            found = observer.plainly(plain.__getitem__, (operand,), {})
    else:
        found = plain[operand]
    observer.read(sys.modules, full, f"sys.modules[{full!r}]")
    return observer.know(found, found.__name__)
