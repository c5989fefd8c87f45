"""For how many Modules among its arguments a function keeps versions.

Versions die with the Module that their key names by id. But a Module that refers to itself (a
callback that holds it, a child that knows its parent) is kept alive by its own version, whose
guards read its containers. So the oldest go once there are many; a Module that is alive and comes
back then (a function that is called for each of a hundred layers) doubles the limit.
"""

from __future__ import annotations

import weakref
from typing import Any

from ...nn.modules.module import Module

_LIMIT = 32
References = list["weakref.ref[Module]"]


class ModuleLimit:
    """The kinds of arguments with Modules that a function has versions for, the oldest first."""

    def __init__(self) -> None:
        self.limit = _LIMIT
        self._kept: dict[Any, References] = {}
        self._gone: dict[Any, References] = {}

    def enter(self, kind: Any, modules: list[Module]) -> list[Any]:
        """There is a version for a kind of arguments; gives the kinds that are to be forgotten."""
        if not modules or kind in self._kept:
            return []
        before = self._gone.pop(kind, None)
        if before is not None and all(r() is m for r, m in zip(before, modules, strict=True)):
            self.limit *= 2
        self._kept[kind] = [weakref.ref(module) for module in modules]
        if len(self._kept) <= self.limit:
            return []
        oldest = next(iter(self._kept))
        self._gone[oldest] = self._kept.pop(oldest)
        return [oldest]

    def forget(self, number: int) -> None:
        """The object with this id has died."""
        for table in (self._kept, self._gone):
            for kind in [kind for kind in table if number in kind]:
                del table[kind]
