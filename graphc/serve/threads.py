"""Work beside the event loop, in threads that may hold the GIL for as long as Python lets them."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_OFTEN = 0.0005  # seconds after which such a thread lets the event loop go on
_lock = threading.Lock()
_count = 0
_usual = 0.0


async def in_thread(work: Callable[[], T]) -> T:
    """Do something in a thread. While anybody does, who waits for the GIL asks for it often.

    Not at other times: each batch that begins or ends would interrupt the event loop, which lets
    go of the GIL by itself whenever it waits.
    """
    _begin()
    try:
        return await asyncio.to_thread(work)
    finally:
        _end()


def _begin() -> None:
    global _count, _usual
    with _lock:
        if not _count:
            _usual = sys.getswitchinterval()
            sys.setswitchinterval(min(_OFTEN, _usual))
        _count += 1


def _end() -> None:
    global _count
    with _lock:
        _count -= 1
        if not _count:
            sys.setswitchinterval(_usual)
