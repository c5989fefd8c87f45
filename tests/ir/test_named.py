"""ir/named.py's classes are what typing.NamedTuple's are."""

from __future__ import annotations

import copy
import pickle
import re
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphc.ir import named


class Mine(named.NamedTuple):
    """A point."""

    x: int
    names: tuple[str, ...] = ()
    scale: float = 1.0

    def larger(self) -> Mine:
        return self._replace(x=self.x + 1)

    @property
    def double(self) -> int:
        return self.x * 2

    def __str__(self) -> str:
        return f"at {self.x}"


class Theirs(typing.NamedTuple):
    """A point."""

    x: int
    names: tuple[str, ...] = ()
    scale: float = 1.0

    def larger(self) -> Theirs:
        return self._replace(x=self.x + 1)

    @property
    def double(self) -> int:
        return self.x * 2

    def __str__(self) -> str:
        return f"at {self.x}"


class Derived(Mine):
    def __repr__(self) -> str:
        return "derived " + super().__repr__()


class Plain(named.NamedTuple):
    a: Any
    b: Any


class PlainTheirs(typing.NamedTuple):
    a: Any
    b: Any


class Lone(named.NamedTuple):
    one: Any


USES: dict[str, Callable[[Any], Any]] = {
    "positions": lambda cls: tuple(cls(1, ("a",), 2.0)),
    "names": lambda cls: tuple(cls(names=("b",), x=3)),
    "repr": lambda cls: repr(cls(1)).replace("Theirs", "Mine"),
    "fields": lambda cls: (cls._fields, cls._field_defaults, cls.__match_args__),
    "annotations": lambda cls: typing.get_type_hints(cls),
    "doc": lambda cls: (cls.__doc__, cls.x.__doc__),
    "bases": lambda cls: (cls.__mro__[1:], type(cls)),
    "equal": lambda cls: (cls(1) == (1, (), 1.0), cls(1) == cls(2), hash(cls(1)), cls(1) < cls(2)),
    "methods": lambda cls: (tuple(cls(1).larger()), cls(4).double, str(cls(1))),
    "asdict": lambda cls: cls(5)._asdict(),
    "index": lambda cls: (cls(5)[0], cls(5)[-1], cls(5)[:2], type(cls(5)[:2])),
    "copies": lambda cls: (tuple(copy.deepcopy(cls(1))), tuple(pickle.loads(pickle.dumps(cls(1))))),
    "no dict": lambda cls: hasattr(cls(1), "__dict__"),
    "too few": lambda cls: cls(),
    "too many": lambda cls: cls(1, 2, 3, 4),
    "unknown": lambda cls: cls(1, y=2),
    "twice": lambda cls: cls(1, x=2),
    "assigned": lambda cls: setattr(cls(1), "x", 2),
    "replaced unknown": lambda cls: cls(1)._replace(y=2),
    "new": lambda cls: (cls.__new__.__name__, tuple(cls.__new__(cls, 1))),
}


def outcome(use: Callable[[Any], Any], cls: Any) -> Any:
    try:
        return use(cls)
    except (TypeError, ValueError, AttributeError) as error:
        return type(error), str(error).replace("Theirs", "Mine").replace("<lambda>", "__new__")


@pytest.mark.parametrize("name", USES)
def test_as_pythons(name: str) -> None:
    assert outcome(USES[name], Mine) == outcome(USES[name], Theirs)


def test_made_of_values() -> None:
    assert Plain._make([1, 2]) == PlainTheirs._make([1, 2]) == Plain(1, 2)
    for cls in (Plain, PlainTheirs):
        with pytest.raises(TypeError, match="Expected 2 arguments, got 1"):
            cls._make([1])
    assert Lone([1]).one == [1] and Lone(one=2) == (2,)


def test_a_class_derived_before_the_first_tuple() -> None:
    first, second = Derived(1), Derived(2)
    assert type(first) is Derived and isinstance(second, Mine) and type(Mine(1)) is Mine
    assert repr(second) == "derived Derived(x=2, names=(), scale=1.0)"
    assert type(second.larger()) is Derived


def test_fields_by_pattern() -> None:
    match Mine(1, ("a",)):
        case Mine(x, names):
            assert (x, names) == (1, ("a",))
        case _:
            pytest.fail("no match")


def test_what_is_no_class() -> None:
    with pytest.raises(TypeError, match="without a default follows"):
        exec("class Wrong(NamedTuple):\n    a: int = 1\n    b: int", vars(named).copy())
    with pytest.raises(TypeError, match="no other base"):
        exec("class Wrong(NamedTuple, list):\n    a: int", vars(named).copy())


def test_users_get_pythons_own() -> None:
    """Recordings know the code of Python's constructors where a tuple is made or given back."""
    package = Path(named.__file__).parents[1]
    inside = {"ir", "frontend", "engine", "backends", "config.py", "kept_modules.py"}
    found = {
        path.relative_to(package).parts[0] for path in package.rglob("*.py")
        if re.search(r"^from \S*\bnamed import", path.read_text(), re.MULTILINE)
    }
    assert found and found <= inside
