"""Flags of a module that are others for a while: torch's `config.patch`."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any


def patching(module: str) -> Callable[..., contextlib.AbstractContextManager[None]]:
    """`patch(name=value)`, `patch("name", value)` or `patch({"name.of.a.part": value})` for a
    module of flags: a context, or a decorator. Raises AttributeError for a flag that is none."""

    @contextlib.contextmanager
    def patch(
        first: str | Mapping[str, Any] | None = None, value: Any = None, **flags: Any
    ) -> Iterator[None]:
        wanted = {first: value} if isinstance(first, str) else {**(first or {}), **flags}
        places = {name: _place(sys.modules[module], name) for name in wanted}
        before = {name: getattr(*place) for name, place in places.items()}
        try:
            for name, place in places.items():
                setattr(*place, wanted[name])
            yield
        finally:
            for name, place in places.items():
                setattr(*place, before[name])

    return patch


def _place(module: Any, name: str) -> tuple[Any, str]:
    *parts, last = name.split(".")
    owner = functools.reduce(getattr, parts, module)
    if not hasattr(owner, last):
        raise AttributeError(f"{module.__name__}.{name} does not exist")
    return owner, last
