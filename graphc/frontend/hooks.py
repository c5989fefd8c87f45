"""Hooks that can be removed: ordered dictionaries from an identifier to a function."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any, TypeAlias

Hooks: TypeAlias = dict[int, Callable[..., Any]]

_identifiers = itertools.count()


class _HookDict(dict[int, Callable[..., Any]]):
    """A plain dict cannot be referenced weakly."""

    __slots__ = ("__weakref__",)


class RemovableHandle:
    """Removes its hook by `remove()`, or at the end of a `with` block."""

    __slots__ = ("_hooks", "id")

    def __init__(self, hooks: Hooks, identifier: int) -> None:
        self.id = identifier
        try:
            self._hooks: Callable[[], Hooks | None] = weakref.ref(hooks)
        except TypeError:
            self._hooks = lambda: hooks

    def remove(self) -> None:
        """Forget the hook; a second call does nothing."""
        hooks = self._hooks()
        if hooks is not None:
            hooks.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def new_hooks() -> Hooks:
    """An empty table of hooks that handles refer to weakly."""
    return _HookDict()


def add_hook(hooks: Hooks, hook: Callable[..., Any], first: bool = False) -> RemovableHandle:
    """Add a hook, last or first, and give its handle. Raises TypeError for a non-callable."""
    if not callable(hook):
        raise TypeError(f"a hook must be callable, got {type(hook).__name__}")
    identifier = next(_identifiers)
    hooks[identifier] = hook
    if first and len(hooks) > 1:
        rest = [(k, v) for k, v in hooks.items() if k != identifier]
        for k, _ in rest:
            del hooks[k]
        hooks.update(rest)
    return RemovableHandle(hooks, identifier)
