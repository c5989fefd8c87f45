"""A profile as chrome://tracing, Perfetto and TensorBoard read it."""

from __future__ import annotations

import gzip
import json
import os
import socket
from pathlib import Path
from typing import Any

from .events import Event, EventList


def write(path: str, events: EventList, metadata: dict[str, Any]) -> None:
    """JSON, times in microseconds; compressed where the path ends in .gz."""
    process = os.getpid()
    rows: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "ts": 0,
         "args": {"name": "python"}},
        *[_row(event, process) for event in events],
    ]
    text = json.dumps({
        "schemaVersion": 1, "displayTimeUnit": "ms", "deviceProperties": [],
        "host_name": socket.gethostname(), **metadata, "traceName": path, "traceEvents": rows,
    })
    if path.endswith(".gz"):
        with gzip.open(path, "wt") as file:
            file.write(text)
    else:
        Path(path).write_text(text)


def _row(event: Event, process: int) -> dict[str, Any]:
    on_gpu = bool(event.device_total)
    category = "user_annotation" if event.is_user_annotation else "cpu_op"
    begin, end = event.time_range
    return {
        "ph": "X", "name": event.key, "cat": "kernel" if on_gpu else category, "pid": process,
        "tid": "GPU" if on_gpu else event.thread, "ts": begin, "dur": round(end - begin, 3),
        "args": _arguments(event),
    }


def _arguments(event: Event) -> dict[str, Any]:
    """What a trace says of an event besides its time."""
    found: dict[str, Any] = {}
    if event.work is not None:
        found |= {
            "bytes": event.work.bytes, "flops": event.work.flops, "of": event.work.what
        }
    if event.input_shapes:
        found["Input Dims"] = event.input_shapes
    if event.stack:
        found["Call stack"] = ";".join(event.stack[::-1])
    if event.self_allocated:
        found["Bytes made"] = event.self_allocated
    return found
