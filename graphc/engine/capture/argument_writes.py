"""Writes of a traced function to the containers among its arguments.

A trace gets copies of the lists, dicts and dataclasses that arguments are nested in. A function
that changes one runs in segments; what the trial trace has changed is copied to the originals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ...frontend.tree import children


class ArgumentWrites:
    """The containers of a call's arguments, beside the copies that the trace got."""

    def __init__(self, originals: Any, copies: Any) -> None:
        self._pairs: list[tuple[Any, Any, list[tuple[Any, Any]]]] = []
        self.originals: dict[int, Any] = {}  # by the id of the copy
        self._copies = copies
        stack = [(originals, copies)]
        while stack:
            original, copy = stack.pop()
            inside = children(copy)
            if inside is None:
                continue
            self.originals[id(copy)] = original
            if not isinstance(copy, tuple):
                self._pairs.append((original, copy, _items(copy)))
            stack += zip(children(original) or (), inside, strict=True)

    def written(self) -> Iterator[tuple[Any, Any]]:
        """(original, copy) of every container that was changed."""
        for original, copy, before in self._pairs:
            now = _items(copy)
            if len(now) != len(before) or any(
                a is not c or b is not d for (a, b), (c, d) in zip(now, before, strict=True)
            ):
                yield original, copy

    def copy_back(
        self, resolved: Callable[[Any], Any], dead: Callable[[Any], bool] | None = None
    ) -> None:
        """Give the originals the items of their copies; `resolved` says what each leaf is now.
        A container that holds `dead` values stays as it was."""
        real = {id(copy): original for original, copy, _ in self._pairs}
        for original, copy in list(self.written()):
            items = [(key, real.get(id(v), v)) for key, v in _items(copy)]
            items = [(key, resolved(v)) for key, v in items]
            if dead is not None and any(dead(v) for _, v in items):
                continue
            if isinstance(original, list):
                original[:] = [value for _, value in items]
            elif isinstance(original, dict):
                original.clear()
                original.update(items)
            else:
                for key, value in items:
                    object.__setattr__(original, key, value)


def _items(container: Any) -> list[tuple[Any, Any]]:
    if isinstance(container, list):
        return [(None, value) for value in container]
    if isinstance(container, dict):
        return list(container.items())
    return list(vars(container).items()) if hasattr(container, "__dict__") else [
        (name, getattr(container, name)) for name in container.__dataclass_fields__
    ]
