"""C functions that graphc understands, as data; any other is open.

PURE: the result follows from what the arguments hold, and nothing changes.
READS, WRITES: methods of containers. The rest has a rule of its own (`RULES`, by full name).
"""

from __future__ import annotations

import types
from typing import Any

import numpy as np

from ...frontend.number_expr import PYTHON as NUMBERS
from ...frontend.numbers import is_traced_number, number_function
from ...frontend.texts import is_text, plain_text
from . import (
    attributes,
    c_iterating,
    c_objects,
    clocks,
    context_variables,
    copying,
    draws,
    identities,
    items,
    library,
    numpy_calls,
    operators,
    optimizers,
    outside,
    type_rules,
)
from .c_tables import (
    CLASSES,
    HIGHER_ORDER,
    KEYED,
    METHODS_OF_VALUES,
    OPERATORS,
    PURE,
    READS,
    SAYING,
    STORING,
    WRITES,
)
from .kinds import Kind, content_of, full_name, is_own_name, kind_of
from .observer import Observer
from .places import MISSING
from .rule import Call, Rule, answer
from .streams import is_draw


def name_of(function: Any) -> str:
    """A C function's name, with its module or its class."""
    owner = getattr(function, "__objclass__", None)
    if owner is not None:
        return f"{owner.__name__}.{function.__name__}"
    bound = getattr(function, "__self__", None)
    if bound is not None and not issubclass(type(bound), types.ModuleType):
        kind = bound if issubclass(type(bound), type) else type(bound)
        return f"{kind.__name__}.{function.__name__}"
    module = getattr(function, "__module__", None) or "builtins"
    return f"{module}.{getattr(function, '__name__', type(function).__name__)}"


def call(observer: Observer, function: Any, args: tuple[Any, ...], kwargs: Any) -> Call:
    """What to call in place of a C function."""
    if observer.is_known(function) and not isinstance(
        getattr(function, "__self__", types), types.ModuleType
    ):
        observer.know(function.__self__, f"{observer.path(function)}.__self__")
    if type(function) is types.MethodWrapperType:
        args = function.__self__, *args
        function = getattr(function.__objclass__, function.__name__)
    if type(function) is types.BuiltinFunctionType and function.__name__ in copying.METHODS:
        args = function.__self__, *args
        function = getattr(object, function.__name__)
    name = name_of(function)
    if name not in SAYING and getattr(function, "__name__", "") not in STORING:
        args, kwargs = _decided(args, kwargs)
    if kind_of(type(function)) is Kind.FIXED:
        return c_objects.call(observer, function, name, args, kwargs)
    rule = RULES.get(name)
    if rule is not None:
        found = rule(observer, function, args, kwargs or {})
        return (function, args, kwargs) if found is None else answer(found[0])
    sign = OPERATORS.get(name)
    if sign is not None and not kwargs:
        return answer(_operator(observer, function, sign, args))
    if name in HIGHER_ORDER:
        return _higher_order(observer, function, args, kwargs)
    if name in PURE:
        if name in NUMBERS and not kwargs and any(map(is_traced_number, args)):
            found = number_function(name, args)
            if found is not None:
                return answer(found)
        observer.touch(args, kwargs)
        return function, args, kwargs
    bound = getattr(function, "__self__", None)
    if is_draw(bound, function.__name__):
        found = draws.call(observer, function, bound, args, kwargs)
        return (function, args, kwargs) if found is None else answer(found[0])
    if bound is not None and not issubclass(type(bound), (types.ModuleType, type)):
        if function.__name__ in KEYED and items.content(bound) in (Kind.DICT, Kind.SET):
            args = tuple([items.plain_key(observer, key) for key in args[:1]]) + args[1:]
        method(observer, bound, function.__name__, args, kwargs)
        return function, args, kwargs
    owner = getattr(function, "__objclass__", None)
    if owner is not None and args:
        method(observer, args[0], function.__name__, args[1:], kwargs, owner)
        return function, args, kwargs
    if bound is not None and issubclass(type(bound), type):
        return _of_class(observer, function, bound, args, kwargs)
    return c_objects.call(observer, function, name, args, kwargs)


def _decided(args: tuple[Any, ...], kwargs: Any) -> tuple[tuple[Any, ...], Any]:
    """Arguments with texts that say run-time numbers as they are now: C code reads them."""
    if any(map(is_text, args)):
        args = tuple(map(plain_text, args))
    if kwargs and any(map(is_text, kwargs.values())):
        kwargs = {name: plain_text(value) for name, value in kwargs.items()}
    return args, kwargs


def _operator(observer: Observer, function: Any, sign: str, args: tuple[Any, ...]) -> Any:
    if sign == "[]":
        return items.subscript(observer, *args)
    if sign == "[]=":
        return items.store_subscript(observer, *args)
    if sign == "in":
        return items.contains(observer, args[1], args[0])
    if sign in ("is", "is not"):
        return operators.identity(observer, args[0], args[1], sign)
    if sign == "not" or len(args) == 1:
        return operators.unary(observer, args[0], sign)
    if sign in ("<", "<=", "==", "!=", ">", ">="):
        return operators.compare(observer, args[0], args[1], sign)
    return operators.binary(observer, args[0], args[1], sign)


def _higher_order(
    observer: Observer, function: Any, args: tuple[Any, ...], kwargs: Any
) -> Call:
    """sorted, map, ...: the functions among the arguments are recorded, too."""
    given, named = c_iterating.arguments(observer, function.__name__, args, kwargs or {})
    bound = getattr(function, "__self__", None)
    if issubclass(type(bound), list):
        method(observer, bound, function.__name__, (), None)
    return function, given, named or None


# --- methods ---------------------------------------------------------------------------------


def method(
    observer: Observer, owner: Any, name: str, args: tuple[Any, ...], kwargs: Any,
    kind: type | None = None,
) -> None:
    """A C method of a container or a value is about to be called on `owner`."""
    stored = name in STORING
    observer.touch([a for a in args if not is_text(a)] if stored else args, kwargs)
    owner = observer.behind(owner)
    if issubclass(type(owner), str) and name == "format_map" and not all(
        map(library.is_text, args)
    ):
        observer.open("str.format_map() of an object")  # a field may name its attributes
        return
    content = items.content(owner)
    if kind is not None and content is None and issubclass(type(owner), kind):
        content = content_of(kind)
    if content is Kind.ARRAY:
        numpy_calls.method(observer, owner, name)
        return
    if content is not None and content is not Kind.VIEW:
        _container_method(observer, owner, name, content, args, kwargs or {})
        return
    found = kind_of(type(owner))
    if issubclass(type(owner), np.generic) or type(owner) is np.ufunc:
        numpy_calls.method(observer, owner, name)
        return
    if found in _IMMUTABLES or content is Kind.VIEW or (
        full_name(type(owner)) in METHODS_OF_VALUES
    ):
        observer.whole(owner)
        return
    if found is Kind.ITERATOR or (
        found is Kind.INSTANCE and issubclass(type(owner), BaseException)
        and not observer.is_known(owner)
    ):
        observer.whole(owner)
        return
    observer.open(draws.phrase(owner, name), owner=owner)


_IMMUTABLES = frozenset((Kind.VALUE, Kind.NUMBER, Kind.TENSOR, Kind.OWN))


def _container_method(
    observer: Observer, owner: Any, name: str, content: Kind, args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    if content is Kind.TUPLE:
        observer.whole(owner)
        return
    if name in WRITES:
        if observer.is_known(owner):
            _write(observer, owner, name, content, args, kwargs)
            observer.note_real(owner)
    elif content is Kind.DICT and name == "get" and args and items.hashed_as_is(args[0]):
        if observer.is_known(owner):
            observer.read(owner, args[0], f"{observer.path(owner)}[{args[0]!r}]",
                          observer.is_watched(owner))
    elif name == "__contains__" and content in (Kind.DICT, Kind.SET) and (
        len(args) == 1 and items.hashed_as_is(args[0])
    ):
        if observer.is_known(owner):
            observer.membership(owner, args[0])
    elif name in READS:
        observer.whole(owner, deep=name in ("index", "count", "remove"))
    else:
        observer.open(f"{type(owner).__name__}.{name}()")


def _write(
    observer: Observer, owner: Any, name: str, content: Kind, args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    """A method is about to change a container that existed before."""
    if content is Kind.DICT:
        keys = _written_keys(name, args, kwargs)
        if keys is not None and all(map(items.hashed_as_is, keys)):
            for key in keys:
                if name != "update" and name != "__setitem__":
                    observer.read(owner, key, f"{observer.path(owner)}[{key!r}]",
                                  observer.is_watched(owner))
                (observer.remove if name == "pop" else observer.write)(owner, key)
            return
    elif name in ("append", "extend") and content is not Kind.BUFFER:
        observer.extend(owner, one=name == "append")
        return
    elif name == "remove":
        observer.whole(owner)
    observer.reshape(owner)


def _written_keys(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[Any] | None:
    """The keys of a dict that a method writes to; None where the arguments alone do not say."""
    if name in ("__setitem__", "setdefault", "pop") and args:
        return [args[0]]
    if name == "update" and all(isinstance(value, dict) for value in args):
        return [key for value in (*args, kwargs) for key in value]
    return None


def _of_class(
    observer: Observer, function: Any, owner: type, args: tuple[Any, ...], kwargs: Any
) -> Call:
    """A class method in C: dict.fromkeys, int.from_bytes, object.__new__; or one of `type`."""
    member = vars(type).get(function.__name__)
    if type(member) is types.MethodDescriptorType:
        return call(observer, member, (owner, *args), kwargs)
    if kind_of(owner) in (Kind.OPEN, Kind.CLASS) and function.__name__ != "__new__":
        observer.open(f"{owner.__name__}.{function.__name__}()")
    observer.touch(args, kwargs)
    return function, args, kwargs


# --- classes ---------------------------------------------------------------------------------


def construct(observer: Observer, kind: Any, args: tuple[Any, ...], kwargs: Any) -> Call:
    """What to call to make an instance of a class that C code makes."""
    name = full_name(kind)
    if name not in SAYING:
        args, kwargs = _decided(args, kwargs)
    if kind_of(kind) is Kind.VALUE:
        value = library.constructed(observer, kind, args, kwargs)
        if value is not None:
            return answer(value[0])
    rule = RULES.get(name)
    if rule is not None:
        found = rule(observer, kind, args, kwargs or {})
        return (kind, args, kwargs) if found is None else answer(found[0])
    if name in HIGHER_ORDER:
        return _higher_order(observer, kind, args, kwargs)
    if name in CLASSES or is_own_name(kind.__module__) or (
        issubclass(kind, (BaseException, np.generic, np.dtype))
        or kind_of(kind) in (Kind.FIXED, Kind.VALUE, Kind.INSTANCE, Kind.MODULE, Kind.BUFFER)
    ):
        observer.touch(args, kwargs)
        if issubclass(kind, np.generic):
            numpy_calls.made(observer, kind, args)
        return kind, args, kwargs
    observer.open(f"{name}()")
    return kind, args, kwargs


# --- rules: each gives a 1-tuple with the result, or None to call the function itself ---------


def _getattr(observer: Observer, _: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    obj, name, *default = args
    if not default:
        return (attributes.attribute(observer, obj, name),)
    try:
        return (attributes.attribute(observer, obj, name),)
    except AttributeError:
        return (default[0],)


def _hasattr(observer: Observer, _: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    try:
        attributes.attribute(observer, *args)
    except AttributeError:
        return (False,)
    return (True,)


def _setattr(observer: Observer, _: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    attributes.store_attribute(observer, *args)
    return (None,)


def _delattr(observer: Observer, _: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    attributes.delete_attribute(observer, *args)
    return (None,)


def _plain_delattr(observer: Observer, _: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    if kind_of(type(args[0])) is not Kind.INSTANCE:
        return _delattr(observer, _, args, kwargs)
    attributes.plain_delete(observer, *args)
    return (None,)


def _plain_getattr(observer: Observer, _: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    if kind_of(type(args[0])) is not Kind.INSTANCE:
        return _getattr(observer, _, args, kwargs)
    value = attributes.generic(observer, *args)
    return None if value is MISSING else (value,)


def _plain_setattr(observer: Observer, _: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    if kind_of(type(args[0])) is not Kind.INSTANCE:
        return _setattr(observer, _, args, kwargs)
    attributes.plain_store(observer, *args)
    return (None,)


def _class_setattr(observer: Observer, _: Any, args: tuple[Any, ...], kwargs: Any) -> None:
    """type.__setattr__, type.__delattr__: past a metaclass's own."""
    if observer.trace.whole:
        observer.write(args[0], args[1], args[0].__qualname__)


def _callable(observer: Observer, _: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    if kind_of(type(args[0])) is not Kind.INSTANCE:
        return None
    return (observer.lookup(type(args[0]), "__call__") is not MISSING,)


def _subclasses(observer: Observer, function: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    kind = args[0]
    path = f"{kind.__qualname__}.__subclasses__()"
    return (list(observer.result(_subclasses_of, (kind,), path)),)


def _subclasses_of(kind: type) -> tuple[type, ...]:
    return tuple(type.__subclasses__(kind))


def _setting(observer: Observer, function: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    """What the interpreter is set to."""
    return (observer.result(function, args, f"{name_of(function)}()"),)


def _len(observer: Observer, _: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    return (items.length(observer, *args),)


def _iter(observer: Observer, _: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    return (items.iterate(observer, args[0]),) if len(args) == 1 else None


def _next(observer: Observer, _: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    step = items.python_method(observer, args[0], "__next__")
    if step is None:
        observer.whole(args[0])
        return None
    try:
        return (observer.run(step, args[0]),)
    except StopIteration:
        if len(args) > 1:
            return (args[1],)
        raise


def _vars(observer: Observer, function: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    if not args:
        return None
    return (attributes.attribute(observer, args[0], "__dict__"),)


def _str(observer: Observer, function: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    if len(args) != 1 or kwargs:
        observer.touch(args, kwargs)
        return None
    return (operators.converted(observer, args[0], "s"),)


def _repr(observer: Observer, function: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    return (operators.converted(observer, args[0], "r"),)


def _format(observer: Observer, function: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    return (operators.formatted(observer, args[0], None, args[1] if len(args) > 1 else ""),)


def _bool(observer: Observer, function: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    return (items.truth(observer, args[0]),) if args else None


def _number(observer: Observer, function: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    for name in ("__int__", "__index__") if function is int else ("__float__", "__index__"):
        for value in args[:1]:
            found = items.python_method(observer, value, name)
            if found is not None:
                return (function(observer.run(found, value), *args[1:], **kwargs),)
    if len(args) == 1 and not kwargs and is_traced_number(args[0]):
        return (args[0].__trunc__() if function is int else args[0].as_float(),)
    observer.touch(args, kwargs)
    return None


def _dict(observer: Observer, function: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    if args:
        keys = items.python_method(observer, args[0], "keys")
        mapping = keys is not None or isinstance(args[0], dict)
        given = items.spread(observer, args[0], "DICT_UPDATE") if mapping else (
            items.unpack(observer, args[0])
        )
        return (function(given, **kwargs),)
    return None


def _super(observer: Observer, function: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    return None


RULES: dict[str, Rule] = {
    "builtins.getattr": _getattr, "builtins.setattr": _setattr, "builtins.delattr": _delattr,
    "builtins.hasattr": _hasattr, "object.__setattr__": _plain_setattr,
    "object.__getattribute__": _plain_getattr, "object.__delattr__": _plain_delattr,
    "type.__setattr__": _class_setattr, "type.__delattr__": _class_setattr,
    "type.__subclasses__": _subclasses, "builtins.callable": _callable,
    "sys.getrecursionlimit": _setting,
    "builtins.len": _len, "builtins.iter": _iter, "builtins.next": _next,
    "builtins.reversed": c_iterating.reversed_of, **type_rules.RULES, "builtins.vars": _vars,
    "builtins.str": _str, "builtins.repr": _repr,
    "builtins.format": _format, "builtins.bool": _bool, "builtins.int": _number,
    "builtins.float": _number, "builtins.dict": _dict, "builtins.super": _super,
    "collections.OrderedDict": _dict,
    **clocks.RULES, **context_variables.RULES, **copying.RULES, **identities.RULES,
    **library.RULES, **outside.RULES,
}
PYTHON: dict[str, Rule] = {
    **library.PYTHON, **copying.PYTHON, **optimizers.PYTHON, **outside.PYTHON,
}
