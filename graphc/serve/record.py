"""What is noted of one request while it is answered, and said of it at its end."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import Any

from graphc.serve.batcher import Timing

ACCESS = logging.getLogger("graphc.serve.access")
_KEY = "graphc.record"
_ID_LENGTH = 128


@dataclass
class Record:
    """One request. `id` is the client's X-Request-Id, or one of our own."""

    id: str
    began: float = field(default_factory=time.monotonic)
    timing: Timing | None = None
    model: str = ""
    error: str = ""

    @property
    def total(self) -> float:
        return time.monotonic() - self.began

    def server_timing(self) -> str:
        """The header of this name: milliseconds of each part."""
        parts = [f"total;dur={self.total * 1e3:.3f}"]
        if self.timing is not None:
            parts += [
                f"queue;dur={self.timing.queue * 1e3:.3f}",
                f"compute;dur={self.timing.compute * 1e3:.3f}",
                f'batch;desc="{self.timing.requests} requests, {self.timing.rows} rows"',
            ]
        return ", ".join(parts)

    def line(self, method: str, path: str, status: int) -> str:
        """One line of the log; what a client chose is quoted."""
        text = f"{self.id} {method[:16]!r} {path[:200]!r} {status} {self.total * 1e3:.2f} ms"
        if self.timing is not None:
            text += (
                f", {self.model}, queue {self.timing.queue * 1e3:.2f} ms, compute "
                f"{self.timing.compute * 1e3:.2f} ms, batch of {self.timing.requests} requests, "
                f"{self.timing.rows} rows"
            )
        return f"{text}: {self.error[:300]!r}" if self.error else text


def request_id(headers: list[tuple[bytes, bytes]], serial: int) -> str:
    """The client's id of a request, where it is plain text; else a number."""
    for name, value in headers:
        if name == b"x-request-id":
            text = value.decode("latin-1")
            if 0 < len(text) <= _ID_LENGTH and text.isascii() and text.isprintable() and (
                " " not in text
            ):
                return text
    return f"r{serial}"


def record_of(scope: Any) -> Record:
    """The record that the boundary has put there."""
    found: Record = scope[_KEY]
    return found


def put(scope: Any, record: Record) -> None:
    scope[_KEY] = record
