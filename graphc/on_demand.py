"""Packages whose names are imported when they are first asked for (PEP 562).

    __getattr__, __dir__, __all__ = on_demand(__name__, {"conv": "Conv1d Conv2d"}, ("utils",))

A program that uses two layers does not load a hundred others. Type checkers read the imports that
stand beside this under `if TYPE_CHECKING:`; a test holds the two lists to each other.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any, TypeAlias

from .collecting import IMPORTING

# what a module's names become, by name
Finish: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]


def names_so_far(module: ModuleType) -> dict[str, Any]:
    """A module's namespace as it is, which `vars()` would complete."""
    found: dict[str, Any] = vars(ModuleType)["__dict__"].__get__(module)
    return found


class Package(ModuleType):
    """A package that has all its names when somebody looks through it: `optim.__dict__["SGD"]` and
    `vars(nn).items()` are as usual as `getattr`."""

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        namespace = names_so_far(self)
        for name in self.__dir__():
            if name not in namespace:
                getattr(self, name)
        return namespace


def on_demand(
    package: str, names: Mapping[str, str], modules: Iterable[str] = (),
    finish: Finish | None = None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` for a package. `names`: those of each module in it;
    `modules`: others, which are attributes themselves, as
    those are; `finish`: asked once for the names of a
    module, together."""
    home = {name: module for module, text in names.items() for name in text.split()}
    parts = {*modules, *(name for name in names if "." not in name)}
    itself = sys.modules[package]
    namespace = names_so_far(itself)
    itself.__class__ = Package

    def load(name: str) -> Any:
        module = importlib.import_module(f".{home[name]}", package)
        if finish is None:
            found = {name: getattr(module, name)}
        else:
            found = finish({each: getattr(module, each) for each in names[home[name]].split()})
        for each, value in found.items():  # not what somebody has put in its place
            namespace.setdefault(each, value)
        return namespace[name]

    def __getattr__(name: str) -> Any:
        with IMPORTING:
            if name in home:
                return load(name)
            if name in parts:
                return importlib.import_module(f".{name}", package)
        raise AttributeError(
            f"module {package!r} has no attribute {name!r}", name=name, obj=itself
        )

    def __dir__() -> list[str]:
        return sorted({*namespace, *home, *parts})

    return __getattr__, __dir__, sorted(home)


def elsewhere(package: str, names: str) -> Callable[[str], Any]:
    """`__getattr__` for a module that torch has these names in, where another one of the package
    defines them."""
    known = frozenset(names.split())

    def __getattr__(name: str) -> Any:
        if name in known:
            return getattr(sys.modules[package], name)
        raise AttributeError(f"module has no attribute {name!r}", name=name)

    return __getattr__
