"""The server as an ASGI application: its boundary, through which every request goes once, and the
protocols behind it."""

from __future__ import annotations

import asyncio
import itertools
import logging

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Router

from graphc.serve import oip, torchserve
from graphc.serve.batcher import LOGGER
from graphc.serve.endpoints import Message, Receive, Send, route
from graphc.serve.errors import Refused, unavailable
from graphc.serve.record import ACCESS, Record, put, record_of, request_id
from graphc.serve.state import State, state_of

# answered however much there is to do
_ALWAYS = ("/v2/health/live", "/v2/health/ready", "/ping", "/metrics")
_TORCHSERVE = ("/ping", "/predictions", "/models")
_SEND_SECONDS = 60.0  # for a client to take a piece of an answer
_PIECE = 1 << 20


def application(state: State) -> Boundary:
    """The application of a server."""
    # it would redirect to the Host that a client made up
    return Boundary(Router([*oip.ROUTES, *torchserve.ROUTES, route("/metrics", _metrics)],
                           redirect_slashes=False), state)


class Boundary:
    """Counts requests, names them, times them, logs them; refuses them where there are too many,
    and says what went wrong with them."""

    def __init__(self, inner: Router, state: State) -> None:
        self.inner, self.state = inner, state
        self.in_flight = 0
        self.accepted = self.answered = 0
        self._serial = itertools.count(1)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)

    async def _http(self, scope: Message, receive: Receive, send: Send) -> None:
        record = Record(request_id(scope["headers"], next(self._serial)))
        put(scope, record)
        scope["app"] = self  # with it, Starlette's router raises what it does not know
        self.accepted += 1
        self.in_flight += 1
        answer = _Answer(send, record, self.state)
        try:
            await self._answered(scope, receive, answer)
        except Exception as error:  # it can no more be answered
            LOGGER.error("%s %r failed", record.id, scope["path"][:200], exc_info=error)
        finally:
            self.in_flight -= 1
            self.answered += answer.complete
            self._note(scope, record, answer.status)

    async def _answered(self, scope: Message, receive: Receive, answer: _Answer) -> None:
        try:
            full = self.in_flight > self.state.settings.max_concurrency
            if full and scope["path"] not in _ALWAYS:
                raise unavailable(f"{self.in_flight} requests are there already", close=True)
            await self.inner(scope, receive, answer.send)
        except Exception as error:
            if answer.status:
                raise
            refused = _refusal(scope, error)
            answer.record.error = refused.message
            await _said(scope, refused)(scope, receive, answer.send)

    def _note(self, scope: Message, record: Record, status: int) -> None:
        label = getattr(scope.get("endpoint"), "label", "none")
        self.state.metrics.answered(label, status, record.total)
        if self.state.settings.log_requests and ACCESS.isEnabledFor(logging.INFO):
            ACCESS.info(record.line(scope["method"], scope["path"], status))


class _Answer:
    """An answer on its way: with the headers that each has, and in pieces, each of which the
    client must take in time."""

    def __init__(self, send: Send, record: Record, state: State) -> None:
        self._send, self.record, self._state = send, record, state
        self.status = 0
        self.complete = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [*message.get("headers", ()),
                       (b"x-request-id", self.record.id.encode()),
                       (b"server-timing", self.record.server_timing().encode())]
            if self._state.stopping:
                headers.append((b"connection", b"close"))
            await self._send({**message, "headers": headers})
            return
        body = message.get("body", b"")
        more, start = message.get("more_body", False), 0
        while len(body) - start > _PIECE:
            await self._piece(body[start : start + _PIECE], True, start > 0)
            start += _PIECE
        await self._piece(body[start:] if start else body, more, start > 0)
        self.complete = not more

    async def _piece(self, body: bytes, more: bool, timed: bool) -> None:
        """One piece; what was sent before it must be on its way in time."""
        message = {"type": "http.response.body", "body": body, "more_body": more}
        if not timed:
            await self._send(message)
            return
        async with asyncio.timeout(_SEND_SECONDS):
            await self._send(message)


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


# --- what is said ------------------------------------------------------------------------------


def _refusal(scope: Message, error: Exception) -> Refused:
    """What is answered for what was raised."""
    if isinstance(error, Refused):
        return error
    path = scope["path"][:200]
    if isinstance(error, HTTPException):
        message = {
            404: f"there is nothing at {path!r}",
            405: f"{scope['method'][:16]} is nothing that {path!r} takes",
        }.get(error.status_code, str(error.detail))
        return Refused(error.status_code, message, dict(error.headers or {}))
    LOGGER.error("%s %r failed", record_of(scope).id, path, exc_info=error)
    return Refused(500, "the server failed; its log says how")


def _said(scope: Message, error: Refused) -> Response:
    """An error in the words of the protocol that was spoken."""
    if scope["path"].startswith(_TORCHSERVE):
        kinds = {404: "ModelNotFoundException", 503: "ServiceUnavailableException",
                 500: "InternalServerException"}
        said = {"code": error.status, "type": kinds.get(error.status, "BadRequestException"),
                "message": error.message}
    else:
        said = {"error": error.message}
    return JSONResponse(said, error.status, error.headers)


async def _metrics(request: Request) -> Response:
    state = state_of(request)
    state.metrics.ready.set(state.ready)
    state.metrics.in_flight.set(request.scope["app"].in_flight)
    state.metrics.body_bytes.set(state.memory.taken)
    return Response(state.metrics.text(), media_type=None,
                    headers={"Content-Type": state.metrics.content_type})
