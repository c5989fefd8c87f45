"""torch.cuda.profiler: the part of a program that a profiler from outside (Nsight's) records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .cudart import check_error, cudart


def start() -> None:
    """It records from here on."""
    check_error(cudart().cudaProfilerStart())


def stop() -> None:
    """It records no more."""
    check_error(cudart().cudaProfilerStop())


@contextmanager
def profile() -> Iterator[None]:
    """It records what happens inside."""
    try:
        start()
        yield
    finally:
        stop()
