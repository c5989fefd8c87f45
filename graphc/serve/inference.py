"""What the protocols share: a request's arrays to a model's results, large work aside."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import numpy as np
from starlette.requests import Request

from graphc.serve.bodies import INLINE
from graphc.serve.errors import Closing
from graphc.serve.model import Arguments
from graphc.serve.record import record_of
from graphc.serve.registry import Served
from graphc.serve.state import state_of
from graphc.serve.threads import in_thread

T = TypeVar("T")


async def aside(size: int, work: Callable[[], T]) -> T:
    """Do something whose work grows with `size` bytes: on the event loop where that is little."""
    return work() if size <= INLINE else await in_thread(work)


async def infer(request: Request, served: Served, arguments: Arguments) -> tuple[np.ndarray, ...]:
    """The model's results for one request, in the order of its outputs. Raises Refused."""
    try:
        item = served.batcher.submit(arguments)
    except Closing:  # while the body was read: whoever has its name now may take the request
        before, served = served.model, _successor(request, served)
        if (served.model.inputs, served.model.outputs) != (before.inputs, before.outputs):
            raise
        item = served.batcher.submit(arguments)
    record = record_of(request.scope)
    record.model = f"{served.model.name}@{served.model.version}"
    try:
        return await item.done
    finally:
        record.timing = item.timing


def _successor(request: Request, served: Served) -> Served:
    return state_of(request).registry.ready(served.model.name, served.model.version)


def text_size(arrays: Iterable[np.ndarray]) -> int:
    """About how many bytes arrays are as JSON."""
    return sum(16 * array.size for array in arrays)
