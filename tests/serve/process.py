"""A server with a socket: in a thread of this process, or in a process of its own."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from graphc.serve.server import Server
from graphc.serve.settings import Settings
from graphc.serve.state import State

ROOT = Path(__file__).parents[2]


@contextmanager
def in_thread(settings: Settings, models: Mapping[str, Path]) -> Iterator[Server]:
    """A server on a free port, until it has stopped."""
    state = State(settings)
    loaded = [state.registry.add(path, name, "1") for name, path in models.items()]
    server = Server(settings, state, loaded)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    try:
        wait_for(lambda: server.started and state.ready)
        yield server
    finally:
        server.stop()
        thread.join(30)
        assert not thread.is_alive()


@contextmanager
def in_process(*arguments: Any) -> Iterator[tuple[subprocess.Popen[str], int, list[str]]]:
    """`python -m graphc serve` on a free port: the process, its port and the lines of its log."""
    command = [sys.executable, "-m", "graphc", "serve", "--port", "0", *map(str, arguments)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    lines: list[str] = []

    def collect() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            lines.append(line)

    thread = threading.Thread(target=collect)
    thread.start()
    try:
        wait_for(lambda: any("listens on" in line for line in list(lines)), 60)
        line = next(line for line in lines if "listens on" in line)
        port = int(line.rsplit(":", 1)[1])
        wait_for(lambda: ask(port, "GET", "/v2/health/ready")[0] == 200, 60)
        yield process, port, lines
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        thread.join(5)
        assert process.stderr is not None
        process.stderr.close()


def ask(
    port: int, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
) -> tuple[int, Any]:
    """(status, JSON) of one request on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        connection.request(method, path, body, dict(headers or {}))
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read() or b"null")
    finally:
        connection.close()


def wait_for(condition: Any, seconds: float = 20.0) -> None:
    """Until it holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)
