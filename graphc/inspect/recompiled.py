"""GRAPHC_DEBUG=1: why a function is compiled again, and which function."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from types import FunctionType
from typing import Any

from graphc.engine.capture.kinds import PACKAGE
from graphc.engine.capture.places import MISSING
from graphc.engine.capture.reached import unwrapped
from graphc.engine.version.guards import Entry, Guard
from graphc.engine.version.guards_of_calls import MODES
from graphc.frontend.tensor import Tensor
from graphc.frontend.tree import Structure
from graphc.inspect.report import short_path

_LETTERS = 60  # of a value that are shown


def report(
    name: str, function: Any, before: list[Any], now: Any, names: list[str],
    versions: Iterable[Any], reasons: list[str],
) -> None:
    """Print why a function is compiled. `before`, `now`: what the earlier versions and this one
    are found by (Versions.key); `versions`: those that were tried, for `reasons`."""
    why = [text for version in versions if (text := _changed_root(version))]
    why += [reason for reason in reasons if not any(w.startswith(reason) for w in why)]
    if before and not why:
        # against the version that is most like it
        alike = [each for each in before if each[0][0] == now[0][0]] or before
        why = min((list(differences(each, now, names)) for each in reversed(alike)), key=len)
    text = "; ".join(dict.fromkeys(why)) or "no version fits"
    print(
        f"graphc: {name}{_where(function)} is compiled again (version {len(before) + 1}): {text}",
        file=sys.stderr,
    )


def _where(function: Any) -> str:
    """The line of the user's function."""
    inner, _ = unwrapped(function, ())
    if not isinstance(inner, FunctionType) or inner.__code__.co_filename.startswith(PACKAGE):
        return ""
    code = inner.__code__
    return f" at {short_path(code.co_filename)}:{code.co_firstlineno}"


def _changed_root(version: Any) -> str:
    """The first guard of a version that does not hold, with the value then and now."""
    broken: Guard | None = version.guards.broken()
    if broken is None:
        return ""
    if not isinstance(broken, Entry):
        return f"{broken.path} changed"
    return f"{broken.path} changed: {_shown(broken.value)} -> {_shown(broken.place.get())}"


def differences(before: Any, now: Any, names: Sequence[str]) -> Iterator[str]:
    """What two calls were found by, where it differs."""
    (old_key, old_shapes), (key, shapes) = before, now
    count = len(MODES)
    for mode, was, value in zip(MODES, old_key[:count], key[:count], strict=True):
        if was != value:
            show = _call if isinstance(was, Structure) else _shown
            yield f"{mode}: {show(was)} -> {show(value)}"
    if len(old_key) != len(key):
        return
    old, new = iter(old_shapes), iter(shapes)
    for name, was, value in zip(names, old_key[count:], key[count:], strict=False):
        text_was, text_now = _argument(was, old), _argument(value, new)
        if text_was != text_now:
            yield f"{name}: {text_was} -> {text_now}"
        elif was != value:
            yield f"{name} is another object"


def arguments_said(found_by: Any, names: Sequence[str]) -> Iterator[str]:
    """What a version is found by of each argument: "x: float32[4, 3]"."""
    key, shapes = found_by
    parts, sizes = key[len(MODES) :], iter(shapes)
    for i, part in enumerate(parts):
        name = names[i] if i < len(names) else f"argument {i}"
        yield f"{name}: {_argument(part, sizes)}"


def _call(structure: Structure) -> str:
    """How a function is called: "2 positional, mask="."""
    positional, named = structure.children
    return ", ".join([f"{len(positional.children)} positional", *(f"{k}=" for k in named.keys)])


def _argument(part: Any, shapes: Iterator[Any]) -> str:
    """What a version is found by of one argument."""
    if not isinstance(part, tuple):
        return part.__name__ if isinstance(part, type) else "an object"
    if len(part) == 2:
        kind, value = part
        return _shown(float.fromhex(value) if kind is float else value)
    dtype, _, grad, leaf, *_ = part
    return f"{dtype}[{', '.join(map(str, next(shapes)))}]" + (
        (", requires_grad" if leaf else ", with a grad_fn") if grad else ""
    )


def _shown(value: Any) -> str:
    if value is MISSING:
        return "nothing"
    if isinstance(value, Tensor):
        return f"a {value.dtype} tensor {list(value.shape)}"
    text = repr(value) if type(value).__repr__ is not object.__repr__ else (
        f"a {type(value).__name__}"
    )
    text = " ".join(text.split())
    return text if len(text) <= _LETTERS else text[: _LETTERS - 1] + "…"
