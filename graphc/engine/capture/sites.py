"""Sites that do exactly what Python does: the base of those that also look.

One class for each kind of event of `instrument.py`. What a site needs besides its operands it has
in a slot: a name, an operator, the globals of the function.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from types import CellType, CodeType, CoroutineType, GeneratorType
from typing import Any

from .instrument import Where
from .site import MISSING, Site
from .sites_match import MatchClass, MatchKeys

_CO_ITERABLE_COROUTINE = 0x180  # CO_COROUTINE | CO_ITERABLE_COROUTINE

_OPERATORS = {
    "+": operator.add,
    "&": operator.and_,
    "//": operator.floordiv,
    "<<": operator.lshift,
    "@": operator.matmul,
    "*": operator.mul,
    "%": operator.mod,
    "|": operator.or_,
    "**": operator.pow,
    ">>": operator.rshift,
    "-": operator.sub,
    "/": operator.truediv,
    "^": operator.xor,
    "+=": operator.iadd,
    "&=": operator.iand,
    "//=": operator.ifloordiv,
    "<<=": operator.ilshift,
    "@=": operator.imatmul,
    "*=": operator.imul,
    "%=": operator.imod,
    "|=": operator.ior,
    "**=": operator.ipow,
    ">>=": operator.irshift,
    "-=": operator.isub,
    "/=": operator.itruediv,
    "^=": operator.ixor,
}
_COMPARISONS = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
}
_UNARY: dict[str, Callable[[Any], Any]] = {
    "+": operator.pos,
    "-": operator.neg,
    "~": operator.invert,
    "not": operator.not_,
}
_CONVERSIONS: dict[str, Callable[[Any], str]] = {"s": str, "r": repr, "a": ascii}


class Detailed(Site):
    """A site that knows the detail of its event."""

    __slots__ = ("detail",)

    def __init__(self, detail: Any) -> None:
        self.detail = detail


class Attribute(Detailed):
    """`object.name`"""

    __slots__ = ()

    def __getitem__(self, operand: Any) -> Any:
        return getattr(operand, self.detail)


class SuperAttribute(Detailed):
    """`super().name`, where `super` may be anything"""

    __slots__ = ("explicit",)

    def __init__(self, detail: str, where: Where) -> None:
        super().__init__(detail)
        # LOAD_SUPER_ATTR's second bit: the code has `super(class, self)`, not `super()`
        self.explicit = bool(where.code.co_code[where.offset + 1] & 2)

    def __getitem__(self, operand: tuple[Any, type, Any]) -> Any:
        maker, owner, instance = operand
        bare = maker is not super and not self.explicit
        return getattr(maker() if bare else maker(owner, instance), self.detail)


class StoreAttribute(Detailed):
    """`object.name = value`"""

    __slots__ = ()

    def __getitem__(self, operand: tuple[Any, Any]) -> None:
        setattr(operand[0], self.detail, operand[1])


class DeleteAttribute(Detailed):
    """`del object.name`"""

    __slots__ = ()

    def __getitem__(self, operand: Any) -> None:
        delattr(operand, self.detail)


class Named(Detailed):
    """A site that knows the function's globals."""

    __slots__ = ("globals",)

    def __init__(self, detail: Any, globals: dict[str, Any]) -> None:
        super().__init__(detail)
        self.globals = globals

    def builtins(self) -> dict[str, Any]:
        builtins = self.globals.get("__builtins__", sys.modules["builtins"])
        return builtins if isinstance(builtins, dict) else vars(builtins)


class Global(Named):
    """A global, or a builtin"""

    __slots__ = ()

    def __getitem__(self, operand: None) -> Any:
        name = self.detail
        value = self.globals.get(name, MISSING)
        if value is MISSING:
            value = self.builtins().get(name, MISSING)
        if value is MISSING:
            raise NameError(f"name '{name}' is not defined", name=name)
        return value


class StoreGlobal(Named):
    """`global name; name = value`"""

    __slots__ = ()

    def __getitem__(self, operand: Any) -> None:
        self.globals[self.detail] = operand


class DeleteGlobal(Named):
    """`global name; del name`"""

    __slots__ = ()

    def __getitem__(self, operand: None) -> None:
        if self.detail not in self.globals:
            raise NameError(f"name '{self.detail}' is not defined", name=self.detail)
        del self.globals[self.detail]


class Free(Detailed):
    """A variable of an enclosing function"""

    __slots__ = ()

    def __getitem__(self, operand: CellType) -> Any:
        try:
            return operand.cell_contents
        except ValueError:
            raise _unbound(self.detail) from None


class StoreFree(Detailed):
    """`nonlocal name; name = value`"""

    __slots__ = ()

    def __getitem__(self, operand: tuple[CellType, Any]) -> None:
        operand[0].cell_contents = operand[1]


class DeleteFree(Detailed):
    """`nonlocal name; del name`"""

    __slots__ = ()

    def __getitem__(self, operand: CellType) -> None:
        try:
            _ = operand.cell_contents
        except ValueError:
            raise _unbound(self.detail) from None
        del operand.cell_contents


def _unbound(name: str) -> NameError:
    return NameError(
        f"cannot access free variable '{name}' where it is not associated with a value"
        " in enclosing scope",
        name=name,
    )


class Subscript(Site):
    """`container[key]`"""

    __slots__ = ()

    def __getitem__(self, operand: tuple[Any, Any]) -> Any:
        return operand[0][operand[1]]


class Slice(Site):
    """`container[start:stop]`"""

    __slots__ = ()

    def __getitem__(self, operand: tuple[Any, Any, Any]) -> Any:
        container, start, stop = operand
        return container[start:stop]


class StoreSubscript(Site):
    """`container[key] = value`"""

    __slots__ = ()

    def __getitem__(self, operand: tuple[Any, Any, Any]) -> None:
        container, key, value = operand
        container[key] = value


class StoreSlice(Site):
    """`container[start:stop] = value`"""

    __slots__ = ()

    def __getitem__(self, operand: tuple[Any, Any, Any, Any]) -> None:
        container, start, stop, value = operand
        container[start:stop] = value


class DeleteSubscript(Site):
    """`del container[key]`"""

    __slots__ = ()

    def __getitem__(self, operand: tuple[Any, Any]) -> None:
        del operand[0][operand[1]]


class Unary(Site):
    """`-value`"""

    __slots__ = ("function",)

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __getitem__(self, operand: Any) -> Any:
        return self.function(operand)


class Binary(Site):
    """`a + b`, `a += b`, `a < b`, `a is b`"""

    __slots__ = ("function",)

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self.function = function

    def __getitem__(self, operand: tuple[Any, Any]) -> Any:
        return self.function(operand[0], operand[1])


class Contains(Detailed):
    """`item in container`"""

    __slots__ = ()

    def __getitem__(self, operand: tuple[Any, Any]) -> bool:
        item, container = operand
        return item in container if self.detail == "in" else item not in container


class Truth(Site):
    """`if value:`"""

    __slots__ = ()

    def __getitem__(self, operand: Any) -> bool:
        return True if operand else False  # noqa: SIM210 bool() may be another's global


class Iterate(Detailed):
    """`for x in iterable:` and `yield from iterable`"""

    __slots__ = ("coroutines",)

    def __init__(self, detail: str | None, code: CodeType) -> None:
        super().__init__(detail)
        self.coroutines = bool(code.co_flags & _CO_ITERABLE_COROUTINE)

    def __getitem__(self, operand: Any) -> Any:
        if self.detail is not None:
            if type(operand) is GeneratorType:
                return operand
            if type(operand) is CoroutineType:
                if self.coroutines:
                    return operand
                raise TypeError(
                    "cannot 'yield from' a coroutine object in a non-coroutine generator"
                )
        return iter(operand)


class Format(Site):
    """The braces of an f-string"""

    __slots__ = ()

    def __getitem__(self, operand: tuple[Any, str | None, str]) -> str:
        value, conversion, spec = operand
        if conversion is not None:
            value = _CONVERSIONS[conversion](value)
        return format(value, spec)


class Join(Site):
    """The parts of an f-string"""

    __slots__ = ()

    def __getitem__(self, operand: tuple[str, ...]) -> str:
        return "".join(operand)


class Enter(Site):
    """`with manager as entered:`"""

    __slots__ = ()

    def __getitem__(self, operand: Any) -> tuple[Any, Any]:
        enter, leave = special(operand, "__enter__"), special(operand, "__exit__")
        if enter is None or leave is None:
            missed = " (missed __exit__ method)" if enter is not None else ""
            raise TypeError(
                f"'{_type_name(operand)}' object does not support the context manager"
                f" protocol{missed}"
            )
        return leave, enter()


def special(value: Any, name: str) -> Any:
    """A bound special method, looked up where the interpreter does: on the class. None: absent."""
    for owner in type(value).__mro__:
        if name in vars(owner):
            found = vars(owner)[name]
            bind = getattr(type(found), "__get__", None)
            return found if bind is None else bind(found, value, type(value))
    return None


def _type_name(value: Any) -> str:
    """A class as the interpreter's messages call it."""
    owner = type(value)
    if owner.__flags__ & (1 << 9) and owner.__module__ != "builtins":  # Py_TPFLAGS_HEAPTYPE
        return f"{owner.__module__}.{owner.__qualname__}"
    return owner.__qualname__


class Import(Named):
    """`import name`"""

    __slots__ = ()

    def __getitem__(self, operand: tuple[int, tuple[str, ...] | None]) -> Any:
        level, names = operand
        function = self.builtins().get("__import__")
        if function is None:
            raise ImportError("__import__ not found")
        return function(self.detail, self.globals, None, names, level)


class ImportFrom(Detailed):
    """`from module import name`"""

    __slots__ = ()

    def __getitem__(self, operand: Any) -> Any:
        value = getattr(operand, self.detail, MISSING)
        if value is not MISSING:
            return value
        name = getattr(operand, "__name__", "<unknown module name>")
        value = sys.modules.get(f"{name}.{self.detail}", MISSING)
        if value is not MISSING:
            return value
        path = getattr(operand, "__file__", None) or "unknown location"
        raise ImportError(
            f"cannot import name '{self.detail}' from '{name}' ({path})", name=name, path=path
        )


_DETAILED: dict[str, type[Detailed]] = {
    "attribute": Attribute,
    "store_attribute": StoreAttribute,
    "delete_attribute": DeleteAttribute,
    "free": Free,
    "store_free": StoreFree,
    "delete_free": DeleteFree,
    "contains": Contains,
    "import_from": ImportFrom,
}
_NAMED: dict[str, type[Named]] = {
    "global": Global,
    "store_global": StoreGlobal,
    "delete_global": DeleteGlobal,
    "import": Import,
}
_ALIKE: dict[str, Site] = {
    "subscript": Subscript(),
    "slice": Slice(),
    "store_subscript": StoreSubscript(),
    "store_slice": StoreSlice(),
    "delete_subscript": DeleteSubscript(),
    "truth": Truth(),
    "format": Format(),
    "join": Join(),
    "with": Enter(),
    "is_none": Site(),
    "unpack": Site(),
    "spread": Site(),
    "call": Site(),
}


def transparent(kind: str, detail: Any, where: Where, globals: dict[str, Any]) -> Site:
    """The site that does what Python does. KeyError: there is no such kind of event."""
    if kind in _ALIKE:
        return _ALIKE[kind]
    if kind in _DETAILED:
        return _DETAILED[kind](detail)
    if kind in _NAMED:
        return _NAMED[kind](detail, globals)
    if kind == "super_attribute":
        return SuperAttribute(detail, where)
    if kind == "iterate":
        return Iterate(detail, where.code)
    if kind == "match":
        return MatchClass() if detail == "MATCH_CLASS" else MatchKeys()
    if kind == "identity":
        return Binary(operator.is_ if detail == "is" else operator.is_not)
    if kind == "unary":
        return Unary(_UNARY[detail])
    if kind == "convert":
        return Unary(_CONVERSIONS[detail])
    return Binary({"binary": _OPERATORS, "compare": _COMPARISONS}[kind][detail])
