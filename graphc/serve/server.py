"""The process: uvicorn with limits on headers, models compiled while it listens, and an end that
loses nothing that was accepted."""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import signal
import socket
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from graphc.export import ExportError
from graphc.serve.app import Boundary, application
from graphc.serve.batcher import LOGGER
from graphc.serve.registry import Served
from graphc.serve.settings import Settings
from graphc.serve.state import State
from graphc.serve.threads import in_thread

_MOST_HEADERS = 1 << 16  # bytes of a request's line and headers, and what came with them
_KEEP_ALIVE = 75  # seconds that an idle connection is kept


def main(settings: Settings, models: Iterable[tuple[Path, str, str]]) -> int:
    """Serve (file, name, version) of each model until SIGTERM or SIGINT. Returns an exit status."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    for name in ("uvicorn.error", "uvicorn.asgi"):
        logging.getLogger(name).setLevel(logging.WARNING)
    state = State(settings)
    try:
        wanted = [*models, *((path, name, version)
                             for name, version, path in state.registry.in_folder())]
        loaded = [state.registry.add(path, name, version) for path, name, version in wanted]
    except (ExportError, OSError, TypeError, ValueError) as error:
        print(f"graphc serve: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    server = Server(settings, state, loaded)
    if not _is_local(settings.host):
        LOGGER.warning("others than this machine reach %s: there is neither TLS nor a password for "
                       "requests. Cure: put a proxy before it", settings.host)
    server.run()
    for served in state.registry.all():  # not in the middle of a call, when Python ends
        served.batcher.join(5)
    return 0 if server.started else 1


def _is_local(host: str) -> bool:
    return host == "localhost" or host == "::1" or host.startswith("127.")


class Server(uvicorn.Server):
    """A server of one process. SIGTERM: readiness goes false, connections are taken for `linger`
    seconds more, and what was accepted is answered within `drain` seconds. A second one: at once.
    """

    def __init__(self, settings: Settings, state: State, loaded: Iterable[Served] = ()) -> None:
        self.settings, self.state, self.loaded = settings, state, list(loaded)
        self.application: Boundary = application(state)
        self._stop_at = math.inf
        self._compiling: asyncio.Task[None] | None = None
        super().__init__(uvicorn.Config(
            self.application, host=settings.host, port=settings.port, log_config=None,
            access_log=False, server_header=False, lifespan="on", ws="none", proxy_headers=False,
            http=guarded(settings), timeout_keep_alive=_KEEP_ALIVE,
            timeout_graceful_shutdown=math.ceil(settings.drain) + 2,
            limit_concurrency=2 * settings.max_concurrency + 64,
        ))

    @property
    def port(self) -> int:
        """The port that it listens on."""
        found: int = self.servers[0].sockets[0].getsockname()[1]
        return found

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then compile: it is live at once, and ready when all models are."""
        await super().startup(sockets)
        if self.started:
            LOGGER.info("graphc serve listens on http://%s:%d", self.settings.host, self.port)
            self._compiling = asyncio.create_task(self._compile())

    async def _compile(self) -> None:
        for served in self.loaded:
            await in_thread(functools.partial(self.state.registry.finish, served))

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal: begin to stop; the second: stop."""
        if self.state.stopping:
            self.should_exit = True
            if sig == signal.SIGINT:
                self.force_exit = True
            return
        self.stop()

    def stop(self) -> None:
        """Begin to stop."""
        self.state.stopping = True
        self._stop_at = time.monotonic() + self.settings.linger

    async def on_tick(self, counter: int) -> bool:
        """Whether it is time to take no more connections; asked ten times a second."""
        if time.monotonic() >= self._stop_at:
            self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more connections; answer what was accepted."""
        self.state.stopping = True
        registry = self.state.registry
        timer = asyncio.get_running_loop().call_later(self.settings.drain, registry.abandon)
        await super().shutdown(sockets)
        timer.cancel()
        registry.close()
        boundary = self.application
        LOGGER.info("graphc serve stopped: %d requests accepted, %d answered", boundary.accepted,
                    boundary.answered)


def guarded(settings: Settings) -> type[HttpToolsProtocol]:
    """uvicorn's protocol, which closes connections whose headers take too long, or are too long."""

    class Guarded(HttpToolsProtocol):
        _timer: asyncio.TimerHandle | None = None  # runs while headers are waited for
        _came = 0  # bytes since then

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._expect_headers()

        def on_message_begin(self) -> None:
            super().on_message_begin()
            if self._timer is None:
                self._expect_headers()

        def on_headers_complete(self) -> None:
            self._stop_expecting()
            super().on_headers_complete()

        def data_received(self, data: bytes) -> None:
            self._came += len(data)
            super().data_received(data)
            if self._timer is not None and self._came > _MOST_HEADERS:
                self._refuse()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_expecting()
            super().connection_lost(exc)

        def _expect_headers(self) -> None:
            self._came = 0
            self._timer = self.loop.call_later(settings.header_seconds, self._refuse)

        def _stop_expecting(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _refuse(self) -> None:
            self._stop_expecting()
            if not self.transport.is_closing():
                self.transport.close()

    return Guarded
