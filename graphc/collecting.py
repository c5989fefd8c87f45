"""Fewer garbage collections while much is made that stays: modules, recordings, graphs, code; and
how long the modules take."""

from __future__ import annotations

import gc
import threading
import time
from types import TracebackType

# objects between two collections; Python's own default is some hundreds. No more: what is recorded
# may go on in segments to the end of a long function, whose own garbage waits as well.
APART = 10_000


class _Fewer:
    """A context manager for all threads together: collections are far apart until the last one
    leaves. What the user has set comes back then, unless it was set anew meanwhile; a collector
    that is off stays off."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._before = (0, 0, 0)

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside > 1:
                return
            self._before = first, *rest = gc.get_threshold()
            if 0 < first < APART:
                gc.set_threshold(APART, *rest)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside and gc.get_threshold() == (APART, *self._before[1:]):
                gc.set_threshold(*self._before)


class _Importing(_Fewer):
    """The same around imports of graphc's modules. `seconds`: how long they have taken."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        self._began = 0.0

    def __enter__(self) -> None:
        if not self._inside:
            self._began = time.perf_counter()
        super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)
        if not self._inside:
            self.seconds += time.perf_counter() - self._began


FEWER = _Fewer()
IMPORTING = _Importing()
