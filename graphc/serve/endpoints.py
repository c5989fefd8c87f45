"""What answers at an address: a function of a request, without the layers of middleware that a
Starlette application puts around each, and its boundary's errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, TypeAlias

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Answer: TypeAlias = Callable[[Request], Awaitable[Response]]


class Endpoint:
    """A function as an ASGI application. What it raises is its caller's to answer."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        # as metrics name it: "oip_infer"
        self.label = answer.__module__.rpartition(".")[2] + answer.__qualname__

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        response = await self._answer(Request(scope, receive))
        await response(scope, receive, send)


def route(path: str, answer: Answer, methods: Sequence[str] = ("GET",)) -> Route:
    """An address; GET also answers HEAD."""
    return Route(path, Endpoint(answer), methods=methods)
