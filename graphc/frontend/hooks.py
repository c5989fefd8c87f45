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
    """Removes its hook by `remove()`, or at the end of a `with` block.

    `id` is a fresh key, under which the maker puts the hook into `hooks_dict`, and what belongs
    to it into `extra_dict` (a dictionary or a list of them).
    """

    def __init__(self, hooks_dict: Any, *, extra_dict: Any = None) -> None:
        self.id = next(_identifiers)
        extra = extra_dict if isinstance(extra_dict, list) else [extra_dict]
        self._tables = [_reference(d) for d in (hooks_dict, *extra) if d is not None]

    def remove(self) -> None:
        """Forget the hook; a second call does nothing."""
        for table in self._tables:
            hooks = table()
            if hooks is not None:
                hooks.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def _reference(hooks: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(hooks)
    except TypeError:  # a plain dict
        return lambda: hooks


def new_hooks() -> Hooks:
    """An empty table of hooks that handles refer to weakly."""
    return _HookDict()


def captured(hooks: Hooks, existed: Callable[[Any], Any] | None) -> Hooks:
    """A trace's copy of a table; `existed` is told of the hooks, which were there before."""
    if existed is not None:
        for hook in hooks.values():
            existed(hook)
    return dict(hooks)


def add_hook(hooks: Hooks, hook: Callable[..., Any], first: bool = False) -> RemovableHandle:
    """Add a hook, last or first, and give its handle. Raises TypeError for a non-callable."""
    if not callable(hook):
        raise TypeError(f"a hook must be callable, got {type(hook).__name__}")
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    if first and len(hooks) > 1:
        rest = [(k, v) for k, v in hooks.items() if k != handle.id]
        for k, _ in rest:
            del hooks[k]
        hooks.update(rest)
    return handle
