"""Names of torch that exist here only to say, when they are used, that they do not work.

Scripts import such names at the top and use them behind a flag; `isinstance` with one is False.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from .frontend.errors import located


def refuse(name: str, cure: str) -> NoReturn:
    """Raise NotImplementedError for a use of `name`, given as torch spells it."""
    raise NotImplementedError(located(f"graphc does not have {name}. Cure: {cure}"))


def function(name: str, cure: str) -> Callable[..., NoReturn]:
    """A function that raises NotImplementedError."""

    def missing(*args: Any, **kwargs: Any) -> NoReturn:
        refuse(f"{name}()", cure)

    missing.__name__ = missing.__qualname__ = name.rpartition(".")[2]
    missing.__doc__ = f"Raises NotImplementedError: {cure}."
    return missing


def kind(name: str, cure: str) -> type:
    """A class that has no instances: making one raises NotImplementedError."""

    def new(cls: type, *args: Any, **kwargs: Any) -> NoReturn:
        refuse(name, cure)

    module, _, short = name.rpartition(".")
    text = f"Raises NotImplementedError: {cure}."
    return type(short, (), {"__new__": new, "__module__": module, "__doc__": text})


def table(package: str, cure: str, *, functions: str = "", kinds: str = "") -> dict[str, Any]:
    """Names of `package`, separated by blanks, as refusing functions and classes."""
    made: dict[str, Any] = {name: function(f"{package}.{name}", cure) for name in functions.split()}
    made.update({name: kind(f"{package}.{name}", cure) for name in kinds.split()})
    return made
