"""Large arenas, which all programs of a process share: a call has one while it runs.

What lies in an arena is of no use once the call is over. A program whose arena is small keeps it,
for the sake of calls that take microseconds; large ones take turns in the same memory, so that a
forward, its backward and other versions hold the largest of their arenas together, not the sum.
"""

from __future__ import annotations

import os
import weakref
from collections import Counter

from graphc.backends.host.allocator import alone
from graphc.ir import forks
from graphc.ir.memory import Array

SHARED = 1 << 20  # bytes; a call that fills so much takes 100 microseconds


class Arenas:
    """Free arenas, smallest first. One is kept for as long as some program wants one so large."""

    def __init__(self) -> None:
        self._free: list[Array] = []
        self._wanted: Counter[int] = Counter()  # how many living programs want such a size
        # re-entrant: a collection inside the lock may end a program
        self._lock = forks.rlock()

    def take(self, size: int) -> Array:
        """At least so many bytes, of anything."""
        with self._lock:
            for i, arena in enumerate(self._free):
                if arena.size >= size:
                    return self._free.pop(i)
            if self._free:  # a larger one takes its place
                self._free.pop()
        return alone(size)

    def give_back(self, arena: Array) -> None:
        """A call is over."""
        with self._lock:
            if arena.size <= max(self._wanted, default=0):
                self._free.append(arena)
                self._free.sort(key=len)

    def change(self, size: int, wanted: int) -> None:
        """A program that wanted `size` bytes (0: none yet) wants others (0: it is gone)."""
        with self._lock:
            self._wanted[size] -= 1
            self._wanted[wanted] += 1
            for known in (size, wanted):
                if known == 0 or not self._wanted[known]:
                    del self._wanted[known]
            most = max(self._wanted, default=0)
            self._free = [arena for arena in self._free if arena.size <= most]

    @property
    def kept(self) -> int:
        """Bytes that no call uses now."""
        return sum(map(len, self._free))

    def after_fork(self) -> None:
        """In a child: whoever had the lock is not in this process."""
        self._lock = forks.rlock()


ARENAS = Arenas()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=ARENAS.after_fork)


class Share:
    """What one program takes of the arenas."""

    def __init__(self, arenas: Arenas = ARENAS) -> None:
        self._arenas = arenas
        self._most = [0]  # the largest that was asked for
        weakref.finalize(self, _gone, arenas, self._most).atexit = False

    def take(self, size: int) -> Array:
        """At least so many bytes, for one call."""
        most = self._most[0]
        if size > most:
            self._most[0] = size
            self._arenas.change(most, size)
        return self._arenas.take(size)

    def give_back(self, arena: Array) -> None:
        """The call is over."""
        self._arenas.give_back(arena)


def _gone(arenas: Arenas, most: list[int]) -> None:
    if most[0]:
        arenas.change(most[0], 0)
