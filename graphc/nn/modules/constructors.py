"""Constructors by the name of the class that the user calls."""

from __future__ import annotations

import types
from typing import Any


def own_constructors(namespace: dict[str, Any]) -> None:
    """Those of the public classes that a file defines."""
    for name, each in namespace.items():
        own = isinstance(each, type) and each.__module__ == namespace["__name__"]
        if own and not name.startswith("_"):
            own_constructor(each)


def own_constructor(cls: type[Any]) -> None:
    """Give `cls` the `__init__` of its private base under its own name.

    Python's errors for wrong arguments then say `Conv2d.__init__()`, not `_ConvNd.__init__()`.
    """
    given = cls.__init__
    if not given.__qualname__.startswith("_"):
        return
    own = types.FunctionType(
        given.__code__, given.__globals__, "__init__", given.__defaults__, given.__closure__
    )
    own.__kwdefaults__, own.__annotations__ = given.__kwdefaults__, given.__annotations__
    own.__doc__, own.__module__ = given.__doc__, given.__module__
    own.__qualname__ = f"{cls.__qualname__}.__init__"
    cls.__init__ = own
