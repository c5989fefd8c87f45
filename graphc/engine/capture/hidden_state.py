"""What roots hold that no attribute or item shows: sets, queues, NumPy arrays, iterators, and
random streams, Python's and NumPy's own among them.

A trace that changes one of these, or reads from an iterator, cannot be a graph: the function runs
in segments, where its Python runs at every call.
"""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Callable, Iterator
from copy import deepcopy
from types import ModuleType
from typing import Any

import numpy as np

_COMPARED = 1 << 20  # bytes of an array that are compared at every call; larger ones by identity


class HiddenState:
    """Such objects, as they were when they were met."""

    def __init__(self) -> None:
        self._known: list[tuple[Any, Any, Any, str]] = []  # (it, to compare, to put back, path)
        self.arrays: list[tuple[np.ndarray, bytes, str]] = []
        self.iterators: list[str] = []

    def note_streams(self) -> None:
        """Remember the streams that the functions of Python's and NumPy's random modules share."""
        self.note(getattr(random.random, "__self__", None), "Python's random module")
        module = sys.modules.get("numpy.random")
        if module is not None:
            self.note(getattr(module.random, "__self__", None), "numpy.random")

    def note(self, value: Any, path: str) -> bool:
        """Remember a value if it is of these kinds; says whether it is."""
        if isinstance(value, np.ndarray):
            if value.nbytes <= _COMPARED and value.dtype != object:
                self.arrays.append((value, value.tobytes(), path))
        elif _state(value) is not None:
            self._known.append((value, _state(value), _copy(value), path))
        elif isinstance(value, Iterator):
            self.iterators.append(path)
        else:
            return False
        return True

    def changed(self) -> str:
        """What changed, or was read and is changed by that; "" if nothing."""
        for value, was, _, path in self._known:
            if _state(value) == was:
                continue
            if isinstance(value, (set, deque, bytearray)):
                return f"changes {path}, a {type(value).__name__}"
            return f"draws from {path} (torch.rand and torch.randint draw in the graph)"
        broken = self.broken()
        if broken:
            return f"changes {broken}, a NumPy array"
        return f"reads {self.iterators[0]}, an iterator" if self.iterators else ""

    def broken(self) -> str:
        """The first array with other values than it had; "" if there is none."""
        for value, was, path in self.arrays:
            if value.tobytes() != was:
                return path
        return ""

    def restore(self, only: Callable[[Any], bool] | None = None) -> None:
        """Put everything back but iterators; `only` what holds values that it names."""
        for value, was, copied, _ in self._known:
            if _state(value) == was or (only is not None and not only(value)):
                continue
            if isinstance(value, set):
                value.clear()
                value.update(copied)
            elif isinstance(value, (deque, bytearray)):
                value.clear()
                value.extend(copied)
            elif isinstance(value, random.Random):
                value.setstate(copied)
            elif hasattr(value, "set_state"):
                value.set_state(copied)
            else:
                value.bit_generator.state = copied
        for array, was_bytes, _ in self.arrays:
            if only is None and array.tobytes() != was_bytes:
                array[...] = np.frombuffer(was_bytes, array.dtype).reshape(array.shape)


def _state(value: Any) -> Any:
    """A copy that can be compared; None for other kinds."""
    if isinstance(value, (set, bytearray)):
        return frozenset(value) if isinstance(value, set) else bytes(value)
    if isinstance(value, deque):
        return _Same(value)
    if isinstance(value, random.Random):
        # the system's source has none
        return None if isinstance(value, random.SystemRandom) else value.getstate()
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None and isinstance(value, _generators(numpy_random)):
        return repr(_numpy_state(value))
    return None


def _copy(value: Any) -> Any:
    """What restore() puts back."""
    if isinstance(value, (set, deque, bytearray)):
        return list(value)
    return value.getstate() if isinstance(value, random.Random) else deepcopy(_numpy_state(value))


class _Same(list[Any]):
    """Items that are compared by identity: `==` of Tensors is elementwise."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and len(self) == len(other) and all(
            a is b for a, b in zip(self, other, strict=True)
        )

    __hash__ = None


def _generators(module: ModuleType) -> tuple[type, ...]:
    return module.Generator, module.RandomState


def _numpy_state(value: Any) -> Any:
    """A RandomState's, with the normal number that it holds back; or a Generator's."""
    if hasattr(value, "get_state"):
        return value.get_state(legacy=False)
    return value.bit_generator.state
