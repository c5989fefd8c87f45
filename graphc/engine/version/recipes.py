"""Which objects a compiled call can make anew, and how: taken apart into what they hold.

A recipe says what an object holds (`parts`), how to make one (`maker`) and how to fill it (`fill`;
without it, an object is made of its parts at once). Attributes, in `__dict__` and in
`__slots__`, are taken from and given to the object itself, past the methods of its class, so that
dataclasses, frozen or not, and containers with constructors of their own come out as they were.
How objects from before the call are read and guarded is another question: capture/kinds.py.
"""

from __future__ import annotations

import enum
import functools
import gc
import re
import sys
import types
import weakref
from abc import ABCMeta
from array import array
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import Any, Protocol

import numpy as np

from ...frontend.numbers import Size
from ...ir.named import NamedTuple
from ...nn.modules.module import Module
from ..capture.kinds import Kind, kind_of

Maker = Callable[[list[Any]], Any]


class Recipe(NamedTuple):
    """How to take an object apart and to make another one."""

    parts: Callable[[Any], list[Any]]
    # of an object: what makes one like it, given its parts if there is no `fill`
    maker: Callable[[Any], Maker]
    fill: Callable[[Any, list[Any]], None] | None = None


def _empty(base: Any) -> Callable[[Any], Maker]:
    """Makes empty objects of a class derived from `base`."""
    def maker(value: Any) -> Maker:
        kind = type(value)
        return lambda parts: base.__new__(kind)

    return maker


def _from_parts(base: Any) -> Callable[[Any], Maker]:
    def maker(value: Any) -> Maker:
        kind = type(value)
        return lambda parts: base.__new__(kind, parts)

    return maker


def _pairs(kind: Any) -> Recipe:
    """A dict: keys, then values."""

    def fill(made: Any, parts: list[Any]) -> None:
        half = len(parts) // 2
        for key, value in zip(parts[:half], parts[half:], strict=True):
            kind.__setitem__(made, key, value)

    return Recipe(
        lambda value: [*kind.keys(value), *kind.values(value)], _empty(kind), fill
    )


def _defaultdict() -> Recipe:
    pairs = _pairs(dict)

    def fill(made: Any, parts: list[Any]) -> None:
        made.default_factory = parts[0]
        assert pairs.fill is not None
        pairs.fill(made, parts[1:])

    return Recipe(
        lambda value: [value.default_factory, *pairs.parts(value)], _empty(defaultdict), fill
    )


def _deque(value: Any) -> Maker:
    kind, most = type(value), value.maxlen

    def make(parts: list[Any]) -> Any:
        made = deque.__new__(kind)
        deque.__init__(made, (), most)
        return made

    return make


def _array_of(code: str, parts: list[Any]) -> Any:
    return array(code)


def _array(value: Any) -> Maker:
    kept = np.array(value)
    return lambda parts: np.array(kept)


def _partial(value: Any) -> Maker:
    count, names = 1 + len(value.args), tuple(value.keywords)

    def make(parts: list[Any]) -> Any:
        keywords = dict(zip(names, parts[count:], strict=True))
        return functools.partial(parts[0], *parts[1:count], **keywords)

    return make


def _function(value: Any) -> Maker:
    """A function of the call: the same code, with cells of its own."""
    code, space = value.__code__, value.__globals__
    names = {name: getattr(value, name) for name in _OF_FUNCTIONS if hasattr(value, name)}

    def make(parts: list[Any]) -> Any:
        made = types.FunctionType(code, space, names["__name__"], parts[1], parts[0])
        made.__kwdefaults__ = parts[2]
        for name, found in names.items():
            setattr(made, name, found)
        return made

    return make


_OF_FUNCTIONS = (
    "__name__", "__qualname__", "__module__", "__doc__", "__annotations__", "__type_params__",
)


def _is_users(function: types.FunctionType) -> bool:
    """Whether a function is neither graphc's own nor a copy that reports what it does."""
    return not str(function.__globals__.get("__name__")).startswith(_INNER) and not any(
        type(part).__module__.startswith(_INNER) for part in function.__code__.co_consts
    )


def _cell_parts(value: Any) -> list[Any]:
    try:
        return [value.cell_contents]
    except ValueError:
        return []


def _cell(made: Any, parts: list[Any]) -> None:
    if parts:
        made.cell_contents = parts[0]


def _method(value: Any) -> Maker:
    name = value.__name__
    return lambda parts: getattr(parts[0], name)


def _exception(value: Any) -> Maker:
    kind = type(value)
    return lambda parts: BaseException.__new__(kind, *parts)


def _is_simple(error: BaseException) -> bool:
    """Whether an exception was never raised, and its arguments and attributes are all it has."""
    kind = next(cls for cls in type(error).__mro__ if not cls.__flags__ & _HEAP)
    return (
        error.__traceback__ is error.__cause__ is error.__context__ is None
        and kind.__basicsize__ == BaseException.__basicsize__
        and not any("__new__" in vars(cls) for cls in type(error).__mro__ if cls.__flags__ & _HEAP)
    )


def _nothing(made: Any, parts: list[Any]) -> None:
    """Nothing but attributes."""


# what holds other objects, by the built-in class that it is or derives from
BASES: dict[type, Recipe] = {
    list: Recipe(list.copy, _empty(list), list.extend),
    dict: _pairs(dict),
    OrderedDict: _pairs(OrderedDict),
    defaultdict: _defaultdict(),
    set: Recipe(list, _empty(set), set.update),
    deque: Recipe(list, _deque, deque.extend),
    tuple: Recipe(lambda v: [*tuple.__iter__(v)], _from_parts(tuple)),
    frozenset: Recipe(list, _from_parts(frozenset)),
    types.SimpleNamespace: Recipe(lambda v: [], _empty(types.SimpleNamespace), _nothing),
    object: Recipe(lambda v: [], _empty(object), _nothing),
}
# classes that nothing derives from
_EXACT: dict[type, Recipe] = {
    Size: BASES[tuple],
    slice: Recipe(lambda v: [v.start, v.stop, v.step], lambda v: lambda parts: slice(*parts)),
    bytearray: Recipe(
        lambda v: [bytes(v)], lambda v: lambda parts: bytearray(), lambda made, p: made.extend(p[0])
    ),
    array: Recipe(
        lambda v: [v.tobytes()],
        lambda v: functools.partial(_array_of, v.typecode),
        lambda made, p: made.frombytes(p[0]),
    ),
    types.MappingProxyType: Recipe(
        gc.get_referents, lambda v: lambda parts: types.MappingProxyType(parts[0])
    ),
    types.MethodType: Recipe(
        lambda v: [v.__func__, v.__self__], lambda v: lambda parts: types.MethodType(*parts)
    ),
    np.ndarray: Recipe(lambda v: [], _array, _nothing),
    types.FunctionType: Recipe(
        lambda v: [v.__closure__, v.__defaults__, v.__kwdefaults__], _function
    ),
    types.CellType: Recipe(_cell_parts, lambda v: lambda parts: types.CellType(), _cell),
    types.BuiltinFunctionType: Recipe(lambda v: [v.__self__], _method),
    functools.partial: Recipe(lambda v: [v.func, *v.args, *v.keywords.values()], _partial),
}
_PATH = Recipe(lambda v: [str(v)], lambda v: lambda parts: type(v)(parts[0]))
_ERROR = Recipe(lambda v: [*v.args], _exception)
# compared by identity, and there is but one, or nobody can tell
_SINGLE = (enum.Enum, re.Pattern, types.GenericAlias, np.dtype)
# tuples whose constructor adds parts that are left out, and does nothing else
_COMPLETED = frozenset({"graphc.nn.utils.rnn.PackedSequence"})
_META = {type, ABCMeta, type(Protocol)}
_HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made by a class statement, or by an extension
# graphc's own parts, which users hold but do not make
_INNER = ("graphc.frontend.", "graphc.ir.", "graphc.engine.", "graphc.backends.", "graphc.optim.")


def is_constant(value: Any) -> bool:
    """Whether nobody can tell one object from another with the same value, or there is but one."""
    kind = kind_of(type(value))
    if kind is Kind.VALUE:
        return type(value) is not slice and not isinstance(value, PurePath)
    if kind is Kind.FIXED:
        return isinstance(value, _SINGLE)
    if kind is Kind.BUILTIN and isinstance(value, types.BuiltinFunctionType):
        return value.__self__ is None or isinstance(value.__self__, (types.ModuleType, type))
    if kind is Kind.FUNCTION:
        return _importable(value)
    return kind in (Kind.CLASS, Kind.MODULE)


def recipe_of(value: Any) -> Recipe | None:
    """How an object is made anew; None if it cannot be."""
    kind = type(value)
    if kind is np.ndarray and (value.base is not None or value.dtype.hasobject):
        return None
    if kind is functools.partial and vars(value):
        return None
    if kind is types.FunctionType and not _is_users(value):
        return None
    if isinstance(value, PurePath):
        return _PATH if type(value).__module__.startswith("pathlib") else None
    if isinstance(value, BaseException):
        return _ERROR if _is_simple(value) else None
    exact = _EXACT.get(kind) or BASES.get(kind)
    if exact is not None:
        return exact
    base = _base(kind)
    if base is None or weakref.getweakrefcount(value):
        return None  # somebody may keep a list of these
    return BASES[base]


def _base(kind: Any) -> type | None:
    """The built-in class below a class of Python code; None where it cannot be made past that."""
    if type(kind) not in _META or issubclass(kind, (Module, BaseException)):
        return None
    if (kind.__module__ or "").startswith(_INNER):
        return None
    for cls in kind.__mro__:
        if cls in BASES:
            return cls if cls is not object or _of_python(kind) else None
        if not cls.__flags__ & _HEAP or "__del__" in vars(cls):
            return None
        completed = f"{cls.__module__}.{cls.__qualname__}" in _COMPLETED
        if "__new__" in vars(cls) and not (completed or _of_namedtuple(cls)):
            return None
    return None


def _of_python(kind: type) -> bool:
    """Whether all that an instance of a class without a built-in base holds are attributes."""
    for cls in kind.__mro__[:-1]:
        own = vars(cls)
        if "__slots__" in own or (
            isinstance(own.get("__dict__"), types.GetSetDescriptorType)
            and isinstance(own.get("__weakref__"), types.GetSetDescriptorType)
        ):
            return True
    return False


def _of_namedtuple(cls: Any) -> bool:
    if not issubclass(cls, tuple) or not hasattr(cls, "_fields"):
        return False
    if cls.__module__ == "torch.return_types":
        return True
    new = vars(cls)["__new__"]
    code = getattr(getattr(new, "__func__", new), "__code__", None)
    return code is not None and code.co_filename.startswith("<")


def attributes(value: Any) -> Iterator[tuple[Any, Any]]:
    """(name or slot, what it holds) of each attribute of an object of Python code."""
    if type(value) is types.FunctionType:
        yield from value.__dict__.items()
    if type(value) in _EXACT:
        return
    own = getattr(type(value), "__dictoffset__", 0) and object.__getattribute__(value, "__dict__")
    if isinstance(own, dict):
        yield from dict.items(own)
    for cls in type(value).__mro__:
        if cls in BASES:
            return
        for slot in list(vars(cls).values()):
            if isinstance(slot, types.MemberDescriptorType):
                try:
                    yield slot, slot.__get__(value)
                except AttributeError:
                    continue


def set_attribute(made: Any, name: Any, value: Any) -> None:
    """Set what attributes() gave, past the class's own `__setattr__`."""
    if isinstance(name, types.MemberDescriptorType):
        name.__set__(made, value)
    else:
        object.__getattribute__(made, "__dict__")[name] = value


def _importable(function: types.FunctionType) -> bool:
    """Whether a function is its module's, so that there is one of it only."""
    found: Any = sys.modules.get(function.__module__ or "")
    for name in function.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is function



