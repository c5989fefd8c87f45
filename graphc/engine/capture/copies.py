"""Copies of containers, as they were before a recording wrote to them."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from ...frontend import state_version
from ...frontend.tensor import Tensor
from .kinds import Kind
from .places import MISSING, Place, own_methods


def dict_items(value: Any) -> list[Any]:
    """Keys and values in turn."""
    return [part for pair in own_methods(value).items(value) for part in pair]


def objects_of(value: np.ndarray) -> list[Any]:
    """What a NumPy array of objects holds, with its shape."""
    return [value.shape, *value.flat]


READERS: dict[Kind, Callable[[Any], list[Any]]] = {
    Kind.LIST: list, Kind.DICT: dict_items, Kind.SET: list, Kind.QUEUE: list,
    Kind.VIEW: list, Kind.ARRAY: objects_of, Kind.BUFFER: lambda value: [bytes(value)],
}


def copy_of(container: Any) -> Any:
    """A container's items."""
    if isinstance(container, type):
        return dict(vars(container))
    if isinstance(container, dict):
        return dict(own_methods(container).items(container))
    if isinstance(container, np.ndarray):
        return container.copy() if container.dtype == object else container.tobytes()
    return container[:] if isinstance(container, (bytearray, array)) else list(container)


def memory_of(container: Any) -> np.ndarray:
    """A NumPy array's memory, or that of a bytearray or an array.array."""
    if isinstance(container, np.ndarray):
        return container
    return np.frombuffer(container, np.uint8) if len(container) else np.zeros(0)


def items_of(container: Any) -> Any:
    """A container's items, in a plain container that can be made anew at each call."""
    if isinstance(container, dict):
        return dict(own_methods(container).items(container))
    if isinstance(container, np.ndarray):
        return list(container.flat) if container.dtype == object else container.copy()
    return container[:] if isinstance(container, (bytearray, array)) else list(container)


def put_back(container: Any, copy: Any) -> None:
    """Give a container the items of its copy."""
    if isinstance(container, type):
        for key, now in list(vars(container).items()):
            if now is not copy.get(key, MISSING):
                Place(container, key, "").put(copy.get(key, MISSING))
    elif isinstance(container, dict):
        if len(container) != len(copy) or any(
            a is not b or dict.get(container, a, MISSING) is not copy[a]
            for a, b in zip(copy, container, strict=True)
        ):
            methods = own_methods(container)
            methods.clear(container)
            for key, value in copy.items():
                methods.__setitem__(container, key, value)
            state_version.bump()
    elif isinstance(container, np.ndarray):
        if container.dtype == object:
            for place, item in zip(np.ndindex(container.shape), _flat(copy), strict=True):
                container[place] = item
        elif isinstance(copy, np.ndarray):
            container[...] = copy
        elif container.tobytes() != copy:
            container[...] = np.frombuffer(copy, container.dtype).reshape(container.shape)
    elif isinstance(container, (bytearray, array)):
        container[:] = copy
    elif len(container) != len(copy) or any(
        a is not b for a, b in zip(container, copy, strict=True)
    ):
        if isinstance(container, list):
            list.__setitem__(container, slice(None), copy)
        elif isinstance(container, set):
            _put_members(container, copy)
        else:
            deque.clear(container)
            deque.extend(container, copy)


def _flat(items: Any) -> list[Any]:
    return items if isinstance(items, list) else list(items.flat)


def _put_members(container: set[Any], members: list[Any]) -> None:
    """A set's order is that of its history: what stays in it is left alone."""
    wanted = set(members)
    for member in [member for member in container if member not in wanted]:
        set.discard(container, member)
    for member in members:
        set.add(container, member)


def key_text(key: Any) -> str:
    """A key in the path of an entry."""
    return "..." if isinstance(key, Tensor) else repr(key)


def entry_path(path: str, key: Any) -> str:
    """The path of an entry."""
    return f"{path}[{key_text(key)}]"
