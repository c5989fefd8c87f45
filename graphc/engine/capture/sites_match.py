"""Sites of match statements."""

from __future__ import annotations

from typing import Any

from .site import MISSING, Site

_MATCHES_ITSELF = 1 << 22  # Py_TPFLAGS_MATCH_SELF: `case int(x)` binds x to the subject


class MatchKeys(Site):
    """`case {"a": x}`: the values of the keys, or None"""

    __slots__ = ()

    def __getitem__(self, operand: tuple[Any, tuple[Any, ...]]) -> tuple[Any, ...] | None:
        subject, keys = operand
        seen: set[Any] = set()
        values = []
        for key in keys:
            if key in seen:
                raise ValueError(f"mapping pattern checks duplicate key ({key!r})")
            seen.add(key)
            value = subject.get(key, MISSING)
            if value is MISSING:
                return None
            values.append(value)
        return tuple(values)


class MatchClass(Site):
    """`case Point(x, y=0)`: the attributes, or None"""

    __slots__ = ()

    def __getitem__(self, operand: tuple[Any, Any, tuple[str, ...], int]) -> tuple | None:
        subject, owner, keywords, count = operand
        if not isinstance(owner, type):
            raise TypeError("called match pattern must be a type")
        if not isinstance(subject, owner):
            return None
        values: list[Any] = []
        names: list[str] = []
        if count:
            positional = getattr(owner, "__match_args__", None)
            itself = positional is None and bool(owner.__flags__ & _MATCHES_ITSELF)
            if positional is None:
                positional = ()
            if type(positional) is not tuple:
                kind = type(positional).__name__
                raise TypeError(f"{owner.__name__}.__match_args__ must be a tuple (got {kind})")
            allowed = 1 if itself else len(positional)
            if count > allowed:
                plural = "" if allowed == 1 else "s"
                raise TypeError(
                    f"{owner.__name__}() accepts {allowed} positional sub-pattern{plural}"
                    f" ({count} given)"
                )
            if itself:
                values.append(subject)
            else:
                names += positional[:count]
        names += keywords
        for index, name in enumerate(names):
            if not isinstance(name, str):
                kind = type(name).__name__
                raise TypeError(f"__match_args__ elements must be strings (got {kind})")
            if name in names[:index]:
                raise TypeError(
                    f"{owner.__name__}() got multiple sub-patterns for attribute {name!r}"
                )
            value = getattr(subject, name, MISSING)
            if value is MISSING:
                return None
            values.append(value)
        return tuple(values)
