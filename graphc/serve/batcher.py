"""A queue and a thread for each model: requests wait, are computed together where rows are
independent, and are given back to the event loop that they came from."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphc.ir.op import LinAlgError
from graphc.serve.errors import Closing, Refused, unavailable
from graphc.serve.metrics import ModelMetrics
from graphc.serve.model import Arguments, Model
from graphc.serve.settings import Settings

LOGGER = logging.getLogger("graphc.serve")
# what a program raises for values that it cannot take: the request is to blame
_OF_VALUES = (ValueError, IndexError, ArithmeticError, LinAlgError)


@dataclass
class Timing:
    """Where the time of a request went, in seconds, and what it was computed with."""

    queue: float = 0.0
    compute: float = 0.0
    rows: int = 0
    requests: int = 0


@dataclass(eq=False)
class Item:
    """One request in a queue."""

    arguments: Arguments
    kind: Any  # requests of one kind may be one batch
    done: asyncio.Future[tuple[np.ndarray, ...]]
    came: float
    timing: Timing = field(default_factory=Timing)


class Batcher:
    """The queue of a model. `submit` is called on the event loop; the rest is the thread's."""

    def __init__(self, model: Model, settings: Settings, metrics: ModelMetrics) -> None:
        self.model, self.settings, self.metrics = model, settings, metrics
        self.together = model.together and not settings.exact and settings.max_batch > 1
        self._queue: deque[Item] = deque()
        metrics.waits(self._queue)
        self._wake = threading.Condition()
        self._closing = False
        self._usual = 0.0  # seconds that a call takes, a running mean
        self._thread = threading.Thread(
            target=self._work, name=f"graphc serve {model.name}@{model.version}", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def submit(self, arguments: Arguments) -> Item:
        """Queue a request; `done` of what is given back has its results. Raises Refused where the
        queue is full or closed."""
        loop = asyncio.get_running_loop()
        kind = None
        if self.together:
            kind = tuple([array.shape[1:] for array in arguments.arrays])
        item = Item(arguments, kind, loop.create_future(), time.monotonic())
        with self._wake:
            if self._closing:
                raise Closing(self.model.name)
            if len(self._queue) >= self.settings.max_queue:
                self.metrics.full.inc()
                raise unavailable(
                    f"{len(self._queue)} requests wait for model {self.model.name!r} already",
                    min(60.0, self._usual * len(self._queue)),
                )
            self._queue.append(item)
            self._wake.notify()
        return item

    def close(self) -> None:
        """Take no more; the thread ends when all that was taken is done."""
        with self._wake:
            self._closing = True
            self._wake.notify_all()

    def join(self, seconds: float) -> bool:
        """Wait for the thread's end; whether it has come."""
        if self._thread.ident is not None:
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def abandon(self) -> None:
        """Refuse all that still waits."""
        with self._wake:
            self._closing = True
            waiting = list(self._queue)
            self._queue.clear()
            self._wake.notify_all()
        _give_back([(item, unavailable("the server stops, and its time is up"))
                    for item in waiting])

    # --- the thread ----------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            batch = self._next()
            if batch is None:
                return
            try:
                if batch:
                    self._run(batch)
            except Exception as error:  # the thread is to outlive whatever it was
                _give_back([(item, self._refusal(error)) for item in batch])

    def _next(self) -> list[Item] | None:
        """The next batch, waited for; None: no more will come."""
        with self._wake:
            while not self._queue:
                if self._closing:
                    return None
                self._wake.wait()
            if self.together and self.settings.max_delay:
                self._wait_for_more()
            late = self._take_late()
            batch = self._take()
        if late:
            _give_back([(item, unavailable("the request waited too long")) for item in late])
        return batch

    def _wait_for_more(self) -> None:
        """Let others join the first in the queue, for as long as it may wait."""
        end = self._queue[0].came + self.settings.max_delay
        while self._queue and not self._closing:
            left = end - time.monotonic()
            kind = self._queue[0].kind
            rows = sum(item.arguments.rows for item in self._queue if item.kind == kind)
            if left <= 0 or rows >= self.settings.max_batch:
                return
            self._wake.wait(left)

    def _take_late(self) -> list[Item]:
        oldest = time.monotonic() - self.settings.wait_seconds
        late: list[Item] = []
        while self._queue and self._queue[0].came < oldest:
            late.append(self._queue.popleft())
        return late

    def _take(self) -> list[Item]:
        """The first in the queue, and those behind it that may be computed with it."""
        while self._queue and self._queue[0].done.cancelled():
            self._queue.popleft()
        if not self._queue:
            return []
        first = self._queue.popleft()
        batch, rows = [first], first.arguments.rows
        if not self.together:
            return batch
        left: list[Item] = []
        while self._queue and rows < self.settings.max_batch:
            item = self._queue.popleft()
            more = rows + item.arguments.rows
            if (item.kind == first.kind and more <= self.settings.max_batch
                    and self.model.holds(first.arguments.dims, more)):
                batch.append(item)
                rows = more
            else:
                left.append(item)
        self._queue.extendleft(reversed(left))
        return batch

    def _run(self, batch: Sequence[Item]) -> None:
        """Compute a batch. Where it fails, each by itself: only the guilty one is to fail."""
        began = time.monotonic()
        try:
            results = self.model.run([item.arguments for item in batch])
        except Exception as error:
            if len(batch) == 1:
                self._note(batch, began)
                _give_back([(batch[0], self._refusal(error))])
                return
            self.metrics.failed_batches.inc()
            for item in batch:
                self._run([item])
            return
        self._note(batch, began)
        _give_back(list(zip(batch, results, strict=True)))

    def _note(self, batch: Sequence[Item], began: float) -> None:
        now = time.monotonic()
        rows = sum(item.arguments.rows for item in batch)
        self._usual += 0.2 * (now - began - self._usual)
        self.metrics.computed(rows, now - began)
        for item in batch:
            item.timing = Timing(began - item.came, now - began, rows, len(batch))

    def _refusal(self, error: Exception) -> Refused:
        text = " ".join(str(error).split())
        if isinstance(error, _OF_VALUES):
            return Refused(400, f"model {self.model.name!r} cannot take these values: {text}")
        if isinstance(error, MemoryError):
            return unavailable(f"model {self.model.name!r} had no memory for this request")
        LOGGER.error("model %s@%s failed", self.model.name, self.model.version, exc_info=error)
        return Refused(500, f"model {self.model.name!r} failed; the server's log says how")


def _give_back(found: Sequence[tuple[Item, Any]]) -> None:
    """Hand results, or what was raised, to the event loops of their requests."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[Item, Any]]] = {}
    for item, result in found:
        by_loop.setdefault(item.done.get_loop(), []).append((item, result))
    for loop, some in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_settle, some)


def _settle(found: Sequence[tuple[Item, Any]]) -> None:
    for item, result in found:
        if item.done.done():
            continue
        if isinstance(result, Exception):
            item.done.set_exception(result)
        else:
            item.done.set_result(result)
