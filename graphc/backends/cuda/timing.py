"""How long launches take on a device, by events around each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from graphc.backends.cuda.driver import Driver, Event, Stream
from graphc.ir.kernel import Launch


class Timed(NamedTuple):
    """One launch, or a library's call: milliseconds after the timer began, and those it took; what
    of a program it is a part of, and the values of that program's dims."""

    name: str
    start: float
    taken: float
    of: tuple[Launch, ...]
    dims: Mapping[str, int]


class Timer:
    """Of one device, whose context is current where it is made."""

    def __init__(self, driver: Driver, stream: Stream) -> None:
        self._driver = driver
        self._begun = self._mark(stream)
        self._marks: list[tuple[str, tuple[Launch, ...], Mapping[str, int], Event, Event]] = []

    def _mark(self, stream: Stream) -> Event:
        event = self._driver.create_event(timing=True)
        self._driver.record(event, stream)
        return event

    @contextmanager
    def timing(
        self, name: str, of: tuple[Launch, ...], dims: Mapping[str, int], stream: Stream
    ) -> Iterator[None]:
        """What is begun on a stream meanwhile."""
        start = self._mark(stream)
        yield
        self._marks.append((name, of, dict(dims), start, self._mark(stream)))

    def results(self) -> list[Timed]:
        """All, in their order. Everything has to have happened; nothing is timed after that."""
        elapsed = self._driver.elapsed
        found = [
            Timed(name, elapsed(self._begun, start), elapsed(start, end), of, dims)
            for name, of, dims, start, end in self._marks
        ]
        for event in (self._begun, *(event for mark in self._marks for event in mark[3:])):
            self._driver.destroy_event(event)
        self._marks.clear()
        return found
