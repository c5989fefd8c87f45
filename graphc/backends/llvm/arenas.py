"""Large arenas, which all programs of a process share: a call has one while it runs.

What lies in an arena is of no use once the call is over. A program whose arena is small keeps it,
for the sake of calls that take microseconds; large ones take turns in the same memory, so that a
forward, its backward and other versions hold the largest of their arenas together, not the sum.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections import Counter

from graphc.backends.host.allocator import alone
from graphc.backends.host.entry_turns import Shelf
from graphc.ir import forks
from graphc.ir.memory import Array

SHARED = 1 << 20  # bytes; a call that fills so much takes 100 microseconds


class Arenas:
    """Free arenas. One is kept for as long as some program wants one so large.

    Native code takes and gives back, too, without the lock (host/entry_turns.py): what is free
    goes in one step, by its identity.
    """

    def __init__(self) -> None:
        self.free: dict[int, Array] = {}
        self.most = ctypes.c_int64()  # the largest size that is wanted
        self._wanted: Counter[int] = Counter()  # how many living programs want such a size
        # re-entrant: a collection inside the lock may end a program
        self._lock = forks.rlock()

    def take(self, size: int) -> Array:
        """At least so many bytes, of anything."""
        with self._lock:
            free = sorted(self.free.values(), key=len)
            for arena in free:
                if arena.size >= size and self.free.pop(id(arena), None) is not None:
                    return arena
            if free:  # a larger one takes its place
                self.free.pop(id(free[-1]), None)
        return alone(size)

    def give_back(self, arena: Array) -> None:
        """A call is over."""
        with self._lock:
            if arena.size <= self.most.value:
                self.free[id(arena)] = arena

    def change(self, size: int, wanted: int) -> None:
        """A program that wanted `size` bytes (0: none yet) wants others (0: it is gone)."""
        with self._lock:
            self._wanted[size] -= 1
            self._wanted[wanted] += 1
            for known in (size, wanted):
                if known == 0 or not self._wanted[known]:
                    del self._wanted[known]
            self.most.value = most = max(self._wanted, default=0)
            for arena in list(self.free.values()):
                if arena.size > most:
                    self.free.pop(id(arena), None)

    @property
    def kept(self) -> int:
        """Bytes that no call uses now."""
        return sum(map(len, list(self.free.values())))

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

    def shelf(self) -> Shelf:
        """Where native code finds the arena that a call was last laid out for."""
        return Shelf(self._arenas.free, self._arenas.most)


def _gone(arenas: Arenas, most: list[int]) -> None:
    if most[0]:
        arenas.change(most[0], 0)
