"""What a server is told: where it listens, what it refuses, how it batches."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class Settings:
    """The numbers of one server. Sizes are bytes, times are seconds."""

    host: str = "127.0.0.1"
    port: int = 8000

    max_body: int = 64 * MEBIBYTE  # of one request, as sent and unpacked
    max_json: int = 16 * MEBIBYTE  # of that, as JSON
    max_depth: int = 64  # brackets in brackets of JSON
    max_memory: int = 1024 * MEBIBYTE  # of all bodies that are there at a time
    max_concurrency: int = 1024  # requests that are there at a time
    max_queue: int = 256  # requests that wait for one model
    header_seconds: float = 10.0  # for a request's line and headers to arrive
    read_seconds: float = 60.0  # for its body to arrive
    wait_seconds: float = 60.0  # in a model's queue

    max_batch: int = 32  # rows of requests that are computed as one
    max_delay: float = 0.0  # how long a request waits for others to join it
    exact: bool = False  # each request by itself, always

    linger: float = 0.5  # from SIGTERM (not ready) to the last new connection
    drain: float = 30.0  # from there to the end of what was accepted

    folder: Path | None = None  # where models may be loaded from by name
    token: str = ""  # who has it may load and unload models; "": nobody may
    log_requests: bool = True
