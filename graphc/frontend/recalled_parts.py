"""Several views of one tensor that eager mode has made before: unbind, split and chunk (see
recalled.py)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from .context import local
from .near import is_near
from .recalled import Recalled, noted
from .tensor import Tensor

F = TypeVar("F", bound=Callable[..., Any])
_LIMIT = 10_000

# each view, and which of them it is (Tensor._graphc_several)
_Parts = tuple[tuple[Recalled, str | None], ...]
_known: dict[Any, _Parts] = {}


def recalled_parts(function: F) -> F:
    """A function of a tensor and integers that gives views of it, recalled in eager mode."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        key = _key(function, args, kwargs)
        if key is None:
            return function(*args, **kwargs)
        source = args[0]
        known = _known.get(key)
        if known is not None:
            views = []
            for part, which in known:
                view = part.of(source)
                if view is None:
                    break
                view._graphc_several = which
                views.append(view)
            else:
                return tuple(views)
        result = function(*args, **kwargs)
        _note(key, known, source, result)
        return result

    return cast(F, wrapper)


def _key(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What tells which views a call gives; None where that is not known."""
    if local.trace is not None or local.counted is not None or not args:
        return None
    source, *rest = args
    if type(source) is not Tensor and not isinstance(source, Tensor):
        return None
    try:
        parts: list[Any] = [function, source._graphc_array.shape]
    except AttributeError:  # it has no dense memory
        return None
    if not is_near(source):
        return None
    for value in rest:
        kind = type(value)
        if kind is int:
            parts.append(value)
        elif (kind is list or kind is tuple) and set(map(type, value)) <= _INTEGERS:
            parts.append(tuple(value))
        else:
            return None
    for name, value in kwargs.items():
        if type(value) is not int:
            return None
        parts += (name, value)
    return tuple(parts)


_INTEGERS = frozenset({int})


def _note(key: Any, known: _Parts | None, source: Tensor, result: tuple[Tensor, ...]) -> None:
    before = [part for part, _ in known] if known else [None] * len(result)
    found = []
    for part, piece in zip(before, result, strict=True):
        made = noted(part, source, piece)
        if made is None:
            return
        found.append((made, piece._graphc_several))
    if len(_known) >= _LIMIT:
        _known.clear()
    _known[key] = tuple(found)
