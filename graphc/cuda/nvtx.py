"""torch.cuda.nvtx: ranges for NVIDIA's profilers. Nothing is marked; ranges may be nested."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class _Depth(threading.local):
    ranges = 0


_depth = _Depth()


def range_push(msg: str) -> int:
    """A range begins; how many it lies in."""
    _depth.ranges += 1
    return _depth.ranges - 1


def range_pop() -> int:
    """The innermost range ends; how many are left, -1 if there was none."""
    if not _depth.ranges:
        return -1
    _depth.ranges -= 1
    return _depth.ranges


def range_start(msg: str) -> int:
    """A range that may end in another thread: its number."""
    return 0


def range_end(range_id: int) -> None:
    """It ends."""


def mark(msg: str) -> None:
    """A moment."""


@contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """A context, or a decorator, that is a range."""
    range_push(msg)
    try:
        yield
    finally:
        range_pop()
