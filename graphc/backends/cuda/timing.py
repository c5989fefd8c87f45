"""How long launches take on a device, by events around each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from graphc.backends.cuda.driver import Driver, Event, Stream


class Timed(NamedTuple):
    """One launch, or a library's call: milliseconds after the timer began, and those it took."""

    name: str
    start: float
    taken: float


class Timer:
    """Of one device, whose context is current where it is made."""

    def __init__(self, driver: Driver, stream: Stream) -> None:
        self._driver = driver
        self._begun = self._mark(stream)
        self._marks: list[tuple[str, Event, Event]] = []

    def _mark(self, stream: Stream) -> Event:
        event = self._driver.create_event(timing=True)
        self._driver.record(event, stream)
        return event

    @contextmanager
    def timing(self, name: str, stream: Stream) -> Iterator[None]:
        """What is begun on a stream meanwhile."""
        start = self._mark(stream)
        yield
        self._marks.append((name, start, self._mark(stream)))

    def results(self) -> list[Timed]:
        """All, in their order. Everything has to have happened; nothing is timed after that."""
        found = [
            Timed(name, self._driver.elapsed(self._begun, start), self._driver.elapsed(start, end))
            for name, start, end in self._marks
        ]
        for event in (self._begun, *(event for mark in self._marks for event in mark[1:])):
            self._driver.destroy_event(event)
        self._marks.clear()
        return found
