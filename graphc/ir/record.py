"""Small immutable classes, like `dataclass(frozen=True, slots=True)`, that cost an import nothing.

A dataclass compiles up to six functions when its class is made, a third of a millisecond. A
record's are compiled when they are first needed, which in most processes most never are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any, NoReturn, TypeVar, dataclass_transform, overload

T = TypeVar("T")


@overload
def record(cls: type[T], /) -> type[T]: ...
@overload
def record(*, eq: bool = True, frozen: bool = True) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(frozen_default=True)
def record(cls: type[T] | None = None, /, *, eq: bool = True, frozen: bool = True) -> Any:
    """A class of the annotated fields, those with a default last. `eq`: equal and hashed by value;
    else by identity. ClassVars are the class's own. There is no inheritance of fields."""
    if cls is None:
        return lambda given: _made(given, eq, frozen)
    return _made(cls, eq, frozen)


def replaced(value: T, /, **changes: Any) -> T:
    """A record like this one, but for some fields."""
    names = type(value).__match_args__  # type: ignore[attr-defined]
    return type(value)(**({name: getattr(value, name) for name in names} | changes))


def _made(cls: type, eq: bool, frozen: bool) -> type:
    names = tuple([
        name for name, text in cls.__annotations__.items() if "ClassVar" not in str(text)
    ])
    own = {k: v for k, v in vars(cls).items() if k not in ("__dict__", "__weakref__")}
    defaults = {name: own.pop(name) for name in names if name in own}
    own |= {
        "__slots__": names, "__match_args__": names, "__init__": _initialiser(names, defaults),
        "__qualname__": cls.__qualname__,
    }
    own = {"__repr__": _shown, "__reduce__": _reduced} | own
    if eq:
        own |= {name: make(names) for name, make in _BY_VALUE.items() if name not in own or (
            name == "__hash__" and own[name] is None
        )}
    if frozen:
        own |= {"__setattr__": _refused, "__delattr__": _refused}
    made: type = type(cls)(cls.__name__, cls.__bases__, own)
    _rebind(made, cls)
    return made


def _rebind(made: type, cls: type) -> None:
    """Methods that say `super()` or `__class__` refer to a cell with the class."""
    for member in vars(made).values():
        for cell in getattr(member, "__closure__", None) or ():
            if cell.cell_contents is cls:
                cell.cell_contents = made


def _reduced(self: Any) -> Any:
    return type(self), tuple([getattr(self, name) for name in type(self).__match_args__])


def _shown(self: Any) -> str:
    fields = [f"{name}={getattr(self, name)!r}" for name in type(self).__match_args__]
    return f"{type(self).__qualname__}({', '.join(fields)})"


def _refused(self: Any, name: str, value: Any = None) -> NoReturn:
    raise FrozenInstanceError(f"cannot change field {name!r} of a {type(self).__name__}")


# --- functions that are compiled when they are first called ------------------------------------


def _initialiser(names: tuple[str, ...], defaults: dict[str, Any]) -> Callable[..., None]:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        cls = _owner(type(self), names)
        given = [f"{name}=_default_{name}" if name in defaults else name for name in names]
        lines = [f"    _set_{name}(self, {name})" for name in names] or ["    pass"]
        known = {f"_set_{name}": vars(cls)[name].__set__ for name in names}
        known |= {f"_default_{name}": value for name, value in defaults.items()}
        made = _compiled(cls, "__init__", f"self, {', '.join(given)}", lines, known)
        made(self, *args, **kwargs)

    return __init__


def _equality(names: tuple[str, ...]) -> Callable[[Any, Any], Any]:
    def __eq__(self: Any, other: object) -> Any:
        mine, its = (", ".join([f"{each}.{name}" for name in names]) for each in ("self", "other"))
        lines = [
            "    if other.__class__ is not self.__class__:", "        return NotImplemented",
            f"    return ({mine},) == ({its},)",
        ]
        cls = _owner(type(self), names)
        return _compiled(cls, "__eq__", "self, other", lines, {})(self, other)

    return __eq__


def _hashing(names: tuple[str, ...]) -> Callable[[Any], int]:
    def __hash__(self: Any) -> int:
        lines = [f"    return hash(({', '.join([f'self.{name}' for name in names])},))"]
        cls = _owner(type(self), names)
        found: int = _compiled(cls, "__hash__", "self", lines, {})(self)
        return found

    return __hash__


_BY_VALUE: dict[str, Callable[[tuple[str, ...]], Any]] = {
    "__eq__": _equality, "__hash__": _hashing,
}


def _owner(kind: type, names: tuple[str, ...]) -> type:
    """The record itself, of a class that may be derived from it."""
    return next(cls for cls in kind.__mro__ if vars(cls).get("__match_args__") == names)


def _compiled(
    cls: type, name: str, parameters: str, lines: list[str], known: dict[str, Any]
) -> Callable[..., Any]:
    """The real function, which the class has from now on."""
    namespace = dict(known)
    text = "\n".join([f"def {name}({parameters}):", *lines])
    exec(compile(text, __file__, "exec"), namespace)  # in this file: graphc's own code
    made: Callable[..., Any] = namespace[name]
    made.__qualname__, made.__module__ = f"{cls.__qualname__}.{name}", cls.__module__
    setattr(cls, name, made)
    return made
