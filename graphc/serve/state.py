"""What the endpoints of one server share."""

from __future__ import annotations

import asyncio
import hmac
import importlib.metadata
from collections.abc import Callable
from typing import TypeVar

from starlette.requests import Request

from graphc.serve.bodies import Memory
from graphc.serve.errors import Refused
from graphc.serve.metrics import Metrics
from graphc.serve.registry import Registry
from graphc.serve.settings import Settings
from graphc.serve.threads import in_thread

T = TypeVar("T")


class State:
    """One server: its models, its limits, and whether it is about to stop."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.registry = Registry(settings, self.metrics)
        self.memory = Memory(settings.max_memory)
        self.stopping = False
        self.version = _version()
        self._changing = asyncio.Lock()  # of models: one change at a time

    @property
    def ready(self) -> bool:
        return not self.stopping and self.registry.all_ready

    async def off_loop(self, work: Callable[[], T]) -> T:
        """Change the models in a thread."""
        async with self._changing:
            return await in_thread(work)


def _version() -> str:
    try:
        return importlib.metadata.version("graphc-compiler")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def state_of(request: Request) -> State:
    """The state of the server that a request came to."""
    found: State = request.scope["app"].state
    return found


def authorised(request: Request, state: State) -> None:
    """Raise Refused unless the request may change what models there are."""
    if not state.settings.token or state.settings.folder is None:
        raise Refused(403, "models are not loaded or unloaded by request. Cure: start the server "
                           "with --models FOLDER and --token-file FILE")
    given = request.headers.get("authorization", "")
    wanted = f"Bearer {state.settings.token}"
    if not hmac.compare_digest(given.encode(), wanted.encode()):
        raise Refused(401, "the token is missing or wrong. Cure: send Authorization: Bearer TOKEN",
                      {"WWW-Authenticate": "Bearer"})
