"""What a failed Check raises: the same exception on every backend."""

from __future__ import annotations

import builtins
from collections.abc import Sequence

from .op import OutOfRange


def check_error(message: str, locs: Sequence[str]) -> Exception:
    """The exception of a Check's message, its value filled in: "IndexError: text" raises that
    class, else RuntimeError. `locs`: the lines of the user's code that the step computes."""
    name, colon, rest = message.partition(": ")
    found = OutOfRange if name == "OutOfRange" else getattr(builtins, name, None)
    kind: type[Exception] = RuntimeError
    if colon and isinstance(found, type) and issubclass(found, Exception):
        kind, message = found, rest
    places = list(dict.fromkeys(loc for loc in locs if loc))
    if places:
        message += f"\n  in compiled code from {', '.join(places[:3])}"
    return kind(message)


def late(error: Exception) -> Exception:
    """The error of a Check, as one that was false some time before the host waited."""
    error.is_late = True  # type: ignore[attr-defined]
    return error


def is_late(error: BaseException) -> bool:
    """Whether an error is `late`: whoever meets it may have no part in it."""
    return getattr(error, "is_late", False)
