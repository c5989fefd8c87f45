"""Texts of a trace: what Python formats of run-time numbers.

A TracedText is a str, that of the example, and the expression that says it anew at each call: a
printed line, a warning, a log record or an entry of a list may say a step number. What asks a text
for more than another text (its length, its hash, whether it is equal) decides upon it, which
becomes a guard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from .number_expr import PYTHON, NumberExpr
from .numbers import TracedNumber, plain_number

if TYPE_CHECKING:
    from .trace import Trace


class TracedText(str):
    """A text that says run-time numbers."""

    __slots__ = ("expression", "trace")

    trace: Trace
    expression: NumberExpr

    def __new__(cls, trace: Trace, expression: NumberExpr) -> TracedText:
        text = str.__new__(cls, expression.value)
        text.trace, text.expression = trace, expression
        return text

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return str

    def decided(self) -> str:
        """The text, kept true by a guard."""
        self.trace.check_open(f"the text {self.expression.value!r}")
        text: str = self.trace.decide(self.expression)
        return text

    def __copy__(self) -> TracedText:
        return self

    def __deepcopy__(self, memo: object) -> TracedText:
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        return str, (self.decided(),)


# what gives another text, made of this one and of plain values
_TEXTS = frozenset("""
    capitalize casefold center expandtabs ljust lower lstrip removeprefix removesuffix replace
    rjust rstrip strip swapcase title upper zfill
""".split())
_OWN = frozenset("""
    __class__ __getattribute__ __init__ __init_subclass__ __new__ __setattr__ __delattr__
    __subclasshook__ __reduce__ __reduce_ex__ __dir__ __doc__
""".split())


def _method(name: str) -> Callable[..., Any]:
    """A method of str, of what a text says."""
    def method(self: TracedText, *args: Any, **kwargs: Any) -> Any:
        if name in _TEXTS and not kwargs:
            found = combined("text", name, self, *args)
            if found is not None:
                return found
        args = tuple(map(plain_value, args))
        return getattr(str, name)(self.decided(), *args, **kwargs)

    method.__name__ = name
    return method


for _name in dir(str):
    if _name not in _OWN:
        setattr(TracedText, _name, _method(_name))


def is_text(value: Any) -> bool:
    """True for a TracedText."""
    return type(value) is TracedText


def is_traced_value(value: Any) -> bool:
    """True for what a trace has in place of a number, or of a text that says one."""
    return issubclass(type(value), (TracedNumber, TracedText))


def plain_value(value: Any) -> Any:
    """A traced number or text as its value, kept true by a guard; anything else as it is."""
    return value.decided() if type(value) is TracedText else plain_number(value)


def plain_text(value: Any) -> Any:
    """A traced text as its value, kept true by a guard; anything else as it is."""
    return value.decided() if type(value) is TracedText else value


def combined(op: str, *values: Any) -> Any:
    """The text that `op`, a name in PYTHON, makes of these values, one of which is traced; None
    where another kind of object is among them. Raises what Python raises for the example's."""
    trace = next(value.trace for value in values if is_traced_value(value))
    operands = [_expression(value, trace) for value in values]
    if any(operand is None for operand in operands):
        return None
    trace.check_open("a text")
    return TracedText(trace, trace.numbers.combine(op, *[o for o in operands if o is not None]))


def asked(op: str, text: TracedText, *constants: Any) -> Any:
    """What `op`, a name in PYTHON, says of a text; kept true by a guard."""
    numbers = text.trace.numbers
    given = [numbers.leaf("constant", value, value) for value in constants]
    return text.trace.decide(numbers.combine(op, text.expression, *given))


def formatted(value: Any, conversion: str | None, spec: str) -> Any:
    """f"{value!conversion:spec}" of a traced value, or by one; None where neither is."""
    if not (is_traced_value(value) or is_traced_value(spec)):
        return None
    if conversion is not None and is_traced_value(value):
        value = combined(_CONVERSIONS[conversion], value)
    elif conversion is not None:
        return None
    if type(value) is TracedText and type(spec) is str and not spec:
        return value
    return combined("format", value, spec)


_CONVERSIONS = {"s": "str", "r": "repr", "a": "ascii"}


def joined(parts: Iterable[Any], between: Any = "") -> Any:
    """between.join(parts), some of which are traced texts."""
    texts: list[Any] = []
    for part in parts:
        if texts and type(part) is str and type(texts[-1]) is str and between == "":
            texts[-1] += part
        else:
            texts.append(part)
    return combined("join", between, *texts)


def percent(text: Any, values: Any) -> Any:
    """`text % values`; None where no number is among them, or more than numbers and texts."""
    given = values if type(values) is tuple else (values,)
    if not any(map(is_traced_value, (text, *given))):
        return None
    return combined("percent", text, *given)


def format_of(text: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """text.format(*args, **kwargs); None as for percent()."""
    if not any(map(is_traced_value, (text, *args, *kwargs.values()))):
        return None
    return combined("named", text, tuple(kwargs), *args, *kwargs.values())


def _expression(value: Any, trace: Trace) -> NumberExpr | None:
    if is_traced_value(value):
        expression: NumberExpr = value.expression
        return expression
    if _is_constant(value):
        return trace.numbers.leaf("constant", value, value)
    return None


def _is_constant(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_is_constant, value))
    return type(value) in (str, int, float, bool, type(None))


def _named(text: str, names: tuple[str, ...], *values: Any) -> str:
    count = len(values) - len(names)
    return text.format(*values[:count], **dict(zip(names, values[count:], strict=True)))


def _percent(text: str, *values: Any) -> str:
    return text % values


PYTHON |= {
    "format": format, "str": str, "repr": repr, "ascii": ascii, "percent": _percent,
    "named": _named, "join": lambda between, *parts: between.join(parts),
    "text": lambda name, text, *args: getattr(text, name)(*args),
}
