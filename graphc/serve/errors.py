"""What a server says no with: a status, what is wrong and where, and the cure."""

from __future__ import annotations

from collections.abc import Mapping


class Refused(Exception):
    """A request that is answered with an error. `close`: the connection cannot go on after it,
    because its body has not been read."""

    def __init__(
        self, status: int, message: str, headers: Mapping[str, str] | None = None,
        *, close: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = dict(headers or {})
        if close:
            self.headers["Connection"] = "close"


def malformed(message: str) -> Refused:
    """400: what was sent is not what the protocol or the model takes."""
    return Refused(400, message)


def too_large(message: str, *, close: bool = False) -> Refused:
    """413."""
    return Refused(413, message, close=close)


def unavailable(message: str, seconds: float = 1.0, *, close: bool = False) -> Refused:
    """503: not now; `seconds` until it may be tried again."""
    return Refused(503, message, {"Retry-After": str(max(1, round(seconds)))}, close=close)


class Closing(Refused):
    """503: the model takes no more, because it is unloaded, or another is loaded in its place."""

    def __init__(self, name: str) -> None:
        super().__init__(503, f"model {name!r} is being unloaded", {"Retry-After": "1"})


def shown(value: object, most: int = 60) -> str:
    """A value from a request as a message quotes it: on one line, and not for ever."""
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}..."
