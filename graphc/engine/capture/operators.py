"""Operators, comparisons and formatting under a recording."""

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ...frontend import texts
from ...frontend.numbers import is_traced_number
from ...ir.late import late
from . import c_attributes
from .items import contains, python_method, truth, unpack
from .kinds import Kind, content_of, is_plain, kind_of
from .observer import Observer
from .places import MISSING, is_decimal

if TYPE_CHECKING:
    import decimal
else:
    decimal = late("decimal")

# text: (the function, its special method, the reflected one, the in-place one)
_BINARY: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "+": (operator.add, "add"), "-": (operator.sub, "sub"), "*": (operator.mul, "mul"),
    "/": (operator.truediv, "truediv"), "//": (operator.floordiv, "floordiv"),
    "%": (operator.mod, "mod"), "**": (operator.pow, "pow"), "@": (operator.matmul, "matmul"),
    "&": (operator.and_, "and"), "|": (operator.or_, "or"), "^": (operator.xor, "xor"),
    "<<": (operator.lshift, "lshift"), ">>": (operator.rshift, "rshift"),
}
_IN_PLACE: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.iadd, "-": operator.isub, "*": operator.imul, "/": operator.itruediv,
    "//": operator.ifloordiv, "%": operator.imod, "**": operator.ipow, "@": operator.imatmul,
    "&": operator.iand, "|": operator.ior, "^": operator.ixor, "<<": operator.ilshift,
    ">>": operator.irshift,
}
_COMPARE: dict[str, tuple[Callable[[Any, Any], Any], str, str]] = {
    "<": (operator.lt, "__lt__", "__gt__"), "<=": (operator.le, "__le__", "__ge__"),
    "==": (operator.eq, "__eq__", "__eq__"), "!=": (operator.ne, "__ne__", "__ne__"),
    ">": (operator.gt, "__gt__", "__lt__"), ">=": (operator.ge, "__ge__", "__le__"),
}
_UNARY: dict[str, tuple[Callable[[Any], Any], str]] = {
    "-": (operator.neg, "__neg__"), "+": (operator.pos, "__pos__"),
    "~": (operator.invert, "__invert__"),
}
_EASY = frozenset((Kind.VALUE, Kind.TENSOR, Kind.NUMBER, Kind.FIXED))


def binary(observer: Observer, a: Any, b: Any, sign: str) -> Any:
    """`a sign b`; `sign` ends with "=" for the in-place form."""
    plain = sign.removesuffix("=")
    in_place = plain != sign
    function, name = _BINARY[plain]
    kinds = kind_of(type(a)), kind_of(type(b))
    _rounding(observer, a, b)
    if (plain in ("+", "%") and Kind.TEXT in kinds) or (plain == "%" and type(a) is str):
        text = _text(a, b, plain)
        if text is not None:
            return text
    if not (kinds[0] in _EASY and kinds[1] in _EASY):
        found = _by_python(observer, a, b, name, in_place)
        if found is not NotImplemented:
            return found
        if in_place and _mutable(a):
            return _updated(observer, a, b, plain)
        for value, kind in zip((a, b), kinds, strict=True):
            _operand(observer, value, kind, plain)
    return _IN_PLACE[plain](a, b) if in_place else function(a, b)


def _text(a: Any, b: Any, sign: str) -> Any:
    """What a run-time text is added to, or a run-time number formatted by; None for others."""
    if sign == "%":
        return texts.percent(a, b) if isinstance(a, str) else None
    return texts.joined((a, b)) if isinstance(a, str) and isinstance(b, str) else None


def _updated(observer: Observer, a: Any, b: Any, sign: str) -> Any:
    """`a sign= b` of a container."""
    kind = content_of(type(a))
    known = observer.is_known(a)
    if kind in (Kind.LIST, Kind.QUEUE) and sign == "+":
        b = unpack(observer, b)
        if known:
            observer.extend(a)
    else:
        _operand(observer, b, kind_of(type(b)), sign)
        if known and kind is Kind.ARRAY:
            observer.array(a)
        elif known:
            observer.reshape(a)
    return _IN_PLACE[sign](a, b)


def _mutable(value: Any) -> bool:
    return content_of(type(value)) not in (None, Kind.TUPLE)


def _operand(observer: Observer, value: Any, kind: Kind, what: str) -> None:
    if kind in (Kind.OPEN, Kind.OWN, Kind.MODULE, Kind.METHOD, Kind.PARTIAL):
        if kind is Kind.OPEN:
            observer.open(f"{what} of a {type(value).__module__}.{type(value).__qualname__}")
        return
    if kind is Kind.INSTANCE:
        c_attributes.namespace(observer, value)
    observer.whole(value)


def _by_python(observer: Observer, a: Any, b: Any, name: str, in_place: bool) -> Any:
    """The result of special methods written in Python; NotImplemented where there are none."""
    if in_place:
        method = python_method(observer, a, f"__i{name}__")
        if method is not None:
            found = observer.run(method, a, b)
            if found is not NotImplemented:
                return found
    return _both(observer, a, b, f"__{name}__", f"__r{name}__")


def _both(observer: Observer, a: Any, b: Any, name: str, reflected: str) -> Any:
    left = python_method(observer, a, name)
    right = python_method(observer, b, reflected)
    if left is None and right is None:
        return NotImplemented
    if type(a) is type(b) and name != reflected and not name.startswith(
        ("__l", "__g")
    ):
        right = None
    first, second = (a, b, left), (b, a, right)
    if type(a) is not type(b) and issubclass(type(b), type(a)) and right is not None:
        first, second = second, first
    for own, other, method in (first, second):
        if method is not None:
            found = observer.run(method, own, other)
            if found is not NotImplemented:
                return found
        elif own is a and kind_of(type(a)) is not Kind.INSTANCE:
            special = getattr(type(a), name, None)
            found = NotImplemented if special is None else special(a, other)
            if found is not NotImplemented:
                return found
    return NotImplemented


def compare(observer: Observer, a: Any, b: Any, sign: str) -> Any:
    """`a sign b`."""
    function, name, reflected = _COMPARE[sign]
    kinds = kind_of(type(a)), kind_of(type(b))
    if not (kinds[0] in _EASY and kinds[1] in _EASY):
        found = _both(observer, a, b, name, reflected)
        if found is not NotImplemented:
            return found
        if sign == "!=":
            found = _both(observer, a, b, "__eq__", "__eq__")
            if found is not NotImplemented:
                return not truth(observer, found)
        for value, kind in zip((a, b), kinds, strict=True):
            _operand(observer, value, kind, sign)
    return function(a, b)


def identity(observer: Observer, a: Any, b: Any, sign: str) -> bool:
    """`a is b`, `a is not b`."""
    if a is not b and all(is_traced_number(v) or type(v) is int for v in (a, b)):
        # small ints are one object each
        a, b = (v.__index__() if is_traced_number(v) and v.is_integer_number else v for v in (a, b))
    same = a is b
    observer.identity(a, b, same)
    return same if sign == "is" else not same


def unary(observer: Observer, value: Any, sign: str) -> Any:
    """`-value`, `~value`, `not value`."""
    if sign == "not":
        return not truth(observer, value)
    function, name = _UNARY[sign]
    method = python_method(observer, value, name)
    if method is not None:
        return observer.run(method, value)
    _operand(observer, value, kind_of(type(value)), sign)
    _rounding(observer, value)
    return function(value)


def _rounding(observer: Observer, *operands: Any) -> None:
    """Decimals are rounded as the thread's context says."""
    if any(is_decimal(type(value)) for value in operands):
        observer.result(_context, (), "decimal.getcontext()")


def _context() -> tuple[Any, ...]:
    found = decimal.getcontext()
    traps = tuple([name.__name__ for name, is_set in found.traps.items() if is_set])
    return found.prec, found.rounding, found.Emin, found.Emax, found.clamp, traps


def membership(observer: Observer, item: Any, container: Any, sign: str) -> bool:
    """`item in container`, `item not in container`."""
    found = contains(observer, item, container)
    return found if sign == "in" else not found


def formatted(observer: Observer, value: Any, conversion: str | None, spec: str) -> Any:
    """f"{value!conversion:spec}"."""
    found = texts.formatted(value, conversion, spec)
    if found is not None:
        return found
    if conversion is not None:
        value = converted(observer, value, conversion)
    elif not spec and type(value) in (list, tuple, dict):
        return converted(observer, value, "s")
    if texts.is_text(value):
        return texts.formatted(value, None, spec)
    kind = kind_of(type(value))
    if kind is Kind.INSTANCE:
        method = observer.lookup(type(value), "__format__")
        if isinstance(method, types.FunctionType):
            return str(observer.run(method, value, spec))
        if not spec:
            return converted(observer, value, "s")
    show(observer, value)
    return format(value, spec)


def converted(observer: Observer, value: Any, conversion: str) -> Any:
    """str(), repr() or ascii()."""
    found = texts.formatted(value, conversion, "")
    if found is None and conversion != "a" and _holds_numbers(value):
        found = texts.joined(_spelling(observer, value))
    if found is not None:
        return found
    functions: dict[str, Callable[[Any], str]] = {"s": str, "r": repr, "a": ascii}
    function = functions[conversion]
    if kind_of(type(value)) is Kind.INSTANCE:
        names = ("__str__", "__repr__") if conversion == "s" else ("__repr__",)
        for name in names:
            method = observer.lookup(type(value), name)
            if isinstance(method, types.FunctionType):
                text = str(observer.run(method, value))
                return ascii(text)[1:-1] if conversion == "a" else text
            if method is not MISSING and method is not object.__str__:
                break
    show(observer, value)
    return function(value)


def _holds_numbers(value: Any) -> bool:
    """Whether run-time numbers, or texts that say some, are in a list, a tuple or a dict of these
    and of plain values; Python's own code would make constants of them to print it."""
    return any(map(texts.is_traced_value, found := list(_leaves(value)))) and all(
        texts.is_traced_value(leaf) or is_plain(leaf) for leaf in found
    )


def _leaves(value: Any, depth: int = 0) -> Iterator[Any]:
    if type(value) in (list, tuple, dict) and depth < _DEPTH:  # it may hold itself
        for item in (*value, *value.values()) if type(value) is dict else value:
            yield from _leaves(item, depth + 1)
    else:
        yield value


_DEPTH = 4


def _spelling(observer: Observer, value: Any) -> Iterator[Any]:
    """repr() of such a container, in parts."""
    if type(value) not in (list, tuple, dict):
        found = texts.formatted(value, "r", "")
        yield repr(value) if found is None else found
        return
    observer.whole(value, deep=False)
    kind = type(value)
    yield "[" if kind is list else "(" if kind is tuple else "{"
    for i, item in enumerate(value):
        if i:
            yield ", "
        yield from _spelling(observer, item)
        if kind is dict:
            yield ": "
            yield from _spelling(observer, value[item])
    yield "]" if kind is list else "}" if kind is dict else ",)" if len(value) == 1 else ")"


def show(observer: Observer, value: Any) -> None:
    """An object is printed by Python's own code."""
    kind = kind_of(type(value))
    if kind is Kind.OPEN:
        observer.open(f"printing a {type(value).__module__}.{type(value).__qualname__}")
    elif kind is Kind.CLASS:
        c_attributes.named(observer, value)
    elif kind is Kind.INSTANCE and content_of(type(value)) is None:
        c_attributes.printed(observer, value)
    elif kind is Kind.ARRAY:
        observer.numpy_settings()
    observer.whole(value)
