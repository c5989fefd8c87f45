"""Functions that torch.compiler has marked, under a recording (engine/marks.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...frontend.tensor import Tensor
from ...frontend.tree import flatten
from ..marks import Mark, Marked
from . import items
from .kinds import Kind, content_of, is_plain, kind_of
from .observer import Observer
from .rule import Call, answer


def call(
    observer: Observer, marked: Marked, function: Any, args: tuple[Any, ...], kwargs: Any
) -> Call:
    """What to call in place of a marked function. (A substitute is called as itself.)"""
    if marked.mark is Mark.DISABLED:
        observer.open(disabled(function, marked.detail), DISABLED_CURE)
    elif marked.mark is Mark.CONSTANT:
        given = tuple([items.plain_key(observer, value) for value in args])
        named = {k: items.plain_key(observer, v) for k, v in (kwargs or {}).items()}
        if any(_is_computed(observer, leaf) for leaf in flatten((given, named))[0]):
            observer.open(f"{_name(function)}(), a constant of each version, of a tensor")
        else:
            return answer(_constant(observer, function, given, named))
    else:
        for value in (*args, *(kwargs or {}).values()):
            if kind_of(type(value)) in _CONTAINERS or content_of(type(value)) is not None:
                observer.whole(value, deep=False)
        return _unseen(observer, function), args, kwargs
    return function, args, kwargs


class Constants:
    """What functions marked as constant have given while one version was made: where it is
    recorded again, they are not called again."""

    def __init__(self) -> None:
        self._found: list[tuple[Any, Any]] = []  # function, result, in the order of the calls
        self._next = 0

    def again(self) -> Constants:
        """The same, from the first one on."""
        self._next = 0
        return self

    def get(self, function: Any, call: Callable[[], Any]) -> Any:
        """What the next of these calls gives."""
        known = self._found[self._next : self._next + 1]
        if not known or known[0][0] is not function:
            self._found[self._next :] = [(function, call())]
        self._next += 1
        return self._found[self._next - 1][1]


def _constant(
    observer: Observer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """A function's result, computed for real, as something that was there before the call."""
    def call() -> Any:
        with observer.unobserved(), observer.trace.suspended():
            return function(*args, **kwargs)

    value = observer.constants.get(function, call)
    return value if is_plain(value) else observer.know(value, f"{_name(function)}()")


def _unseen(observer: Observer, function: Any) -> Callable[..., Any]:
    """A function whose operations are recorded, and nothing else that it does."""
    def run(*args: Any, **kwargs: Any) -> Any:
        with observer.unobserved():
            return function(*args, **kwargs)

    return run


def disabled(function: Any, reason: str | None) -> str:
    """A call of a disabled function, in words."""
    return f"{_name(function)}(), which torch.compiler.disable() keeps out of graphs" + (
        f" ({reason})" if reason else ""
    )


DISABLED_CURE = "leave out disable(), or call the function before and after the compiled one"
_CONTAINERS = frozenset((Kind.LIST, Kind.TUPLE, Kind.DICT, Kind.SET, Kind.QUEUE))


def _is_computed(observer: Observer, leaf: Any) -> bool:
    """Whether something among a function's arguments has another value at each call."""
    return isinstance(leaf, Tensor) and (
        leaf._graphc_trace is not None or observer.trace.argument_index(leaf) >= 0
        or id(leaf) in observer.trace.shadows
    )


def _name(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))
