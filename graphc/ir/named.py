"""typing.NamedTuple, but that a class of it costs an import little.

Python's compiles a function for each class when it is made, a quarter of a millisecond together
with all else. Here that function is compiled when the first tuple is made. For graphc's own
machinery: of tuples that users make or get, recordings know Python's classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:
    from collections import _tuplegetter as _getter

    class _Maker(type):
        """Makes plain classes, derived from tuple alone, as Python's does."""

        def __new__(meta, name: str, bases: tuple[type, ...], own: dict[str, Any]) -> type:
            if not bases:
                return super().__new__(meta, name, bases, own)
            if len(bases) > 1:
                raise TypeError(f"{name}: a NamedTuple has no other base")
            fields = tuple(own.get("__annotations__", ()))
            defaults = {field: own.pop(field) for field in fields if field in own}
            if tuple(defaults) != fields[len(fields) - len(defaults):]:
                raise TypeError(f"{name}: a field without a default follows one with a default")
            getters = {
                field: _getter(at, f"Alias for field number {at}")
                for at, field in enumerate(fields)
            }
            return type(name, (tuple,), _SHARED | own | getters | {
                "__slots__": (), "_fields": fields, "_field_defaults": defaults,
                "__match_args__": fields, "__new__": _new(fields, defaults),
            })

    _BASE = type.__new__(_Maker, "NamedTuple", (), {})

    class _NamedTuple:
        def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
            return (_BASE,)

    NamedTuple = _NamedTuple()


def _new(fields: tuple[str, ...], defaults: dict[str, Any]) -> Callable[..., Any]:
    def __new__(cls: Any, *args: Any, **kwargs: Any) -> Any:
        owner = next(each for each in cls.__mro__ if vars(each).get("_fields") is fields)
        given = [f"{name}=_default_{name}" if name in defaults else name for name in fields]
        values = "".join([f"{name}, " for name in fields])
        text = f"lambda _cls, {', '.join(given)}: _tuple(_cls, ({values}))"
        known = {f"_default_{name}": value for name, value in defaults.items()}
        made = eval(compile(text, __file__, "eval"), {"_tuple": tuple.__new__} | known)
        made.__name__, made.__qualname__ = "__new__", f"{owner.__qualname__}.__new__"
        made.__module__ = owner.__module__
        owner.__new__ = staticmethod(made)
        return made(cls, *args, **kwargs)

    return __new__


def _shown(self: Any) -> str:
    fields = [f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True)]
    return f"{type(self).__name__}({', '.join(fields)})"


def _make(cls: Any, values: Iterable[Any]) -> Any:
    made = tuple.__new__(cls, values)
    if len(made) != len(cls._fields):
        raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
    return made


def _replace(self: Any, /, **changes: Any) -> Any:
    made = self._make(map(changes.pop, self._fields, self))
    if changes:
        raise ValueError(f"Got unexpected field names: {list(changes)!r}")
    return made


def _asdict(self: Any) -> dict[str, Any]:
    return dict(zip(self._fields, self, strict=True))


def _newargs(self: Any) -> tuple[Any, ...]:
    return tuple(self)


_SHARED = {
    "__repr__": _shown, "_make": classmethod(_make), "_replace": _replace, "_asdict": _asdict,
    "__getnewargs__": _newargs,
}
