"""Fewer garbage collections while much is made that stays: modules, recordings, graphs, code; and
how long the modules take."""

from __future__ import annotations

import gc
import sys
import threading
import time
from types import TracebackType

# Objects between two collections; Python's own default is some hundreds. Where the user's code runs
# no more than these: what is recorded may go on in segments to the end of a long function, whose
# own garbage waits as well.
APART = 10_000
FAR_APART = 200_000

# Python 3.12 itself begins with some hundreds of frozen objects; a user's gc.freeze() freezes all.
_STARTS_WITH = 1000

_LOCK = threading.Lock()
_inside: list[int] = []  # what is asked for by those inside, of all threads
_before = (0, 0, 0)  # what the user has set
_ours: tuple[int, int, int] | None = None  # what was set in its place


class Fewer:
    """A context manager for all threads together: collections are far apart until the last one
    leaves. What the user has set comes back then, unless it was set anew meanwhile; a collector
    that is off stays off."""

    def __init__(self, apart: int) -> None:
        self._apart = apart

    def __enter__(self) -> None:
        global _before, _ours
        with _LOCK:
            if not _inside:
                _before, _ours = gc.get_threshold(), None
            _inside.append(self._apart)
            _set()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with _LOCK:
            _inside.remove(self._apart)
            _set()


def _set() -> None:
    """Thresholds for those inside; the user's own where there is none, or where they are higher."""
    global _ours
    if gc.get_threshold() != (_ours or _before):
        return  # set anew meanwhile
    first, *rest = _before
    wanted = max([first, *_inside]) if first > 0 else first
    _ours = (wanted, rest[0], rest[1])
    if gc.get_threshold() != _ours:
        gc.set_threshold(*_ours)


class _Importing(Fewer):
    """The same around imports of graphc's modules. `seconds`: how long they have taken; `runs`:
    where those of each import lie in sys.modules, which is in order."""

    def __init__(self, apart: int) -> None:
        super().__init__(apart)
        self.seconds = 0.0
        self.runs: list[tuple[int, int]] = []
        self._first = 0
        self._inside = 0
        self._began = 0.0
        self._moves = True  # until the user is seen to have frozen something

    def __enter__(self) -> None:
        super().__enter__()
        if not self._inside:
            self._began, self._first = time.perf_counter(), len(sys.modules)
        self._inside += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)
        self._inside -= 1
        if not self._inside:
            if len(sys.modules) > self._first:
                self.runs.append((self._first, len(sys.modules)))
            self._settle()
            self.seconds += time.perf_counter() - self._began

    def _settle(self) -> None:
        """What was made joins what is old without being looked at, once as young and once as older:
        modules stay. (Other garbage of this moment waits for the next full collection with them.)
        What the user has frozen stays so, and then nothing is moved; that is asked until it is
        found, for it takes a look at each frozen object."""
        if gc.isenabled() and self._moves:
            self._moves = gc.get_freeze_count() < _STARTS_WITH
            if self._moves:
                gc.freeze()
                gc.unfreeze()


FEWER = Fewer(APART)  # the user's code runs
FEWEST = Fewer(FAR_APART)  # it does not
IMPORTING = _Importing(FAR_APART)
