"""Pinned memory of the host, kept from use to use: devices copy from it and to it while the host
goes on. A piece that was freed is handed out again once the copies that read or write it have
happened."""

from __future__ import annotations

import threading
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable
from contextlib import suppress

import numpy as np

from graphc.backends.cuda.driver import Driver, Event, Stream
from graphc.ir.memory import Array

LEAST = 512  # bytes


class Piece:
    """`size` bytes at `address`, until `free` or its own end."""

    __slots__ = ("__weakref__", "_memory", "address", "capacity", "size")

    def __init__(self, memory: PinnedMemory, address: int, size: int, capacity: int) -> None:
        self._memory = memory
        self.address, self.size, self.capacity = address, size, capacity

    @property
    def __array_interface__(self) -> dict[str, object]:
        """NumPy's arrays over it keep it."""
        where = (self.address, False)
        return {"version": 3, "typestr": "|u1", "shape": (self.size,), "data": where}

    def __del__(self) -> None:
        self._memory.ended(self.address, self.capacity)


class PinnedMemory:
    """Of one process, for all devices of a driver. `activate` makes some context current."""

    def __init__(self, driver: Driver, activate: Callable[[], None]) -> None:
        self._driver, self._activate = driver, activate
        self._lock = threading.Lock()
        self._starts: list[int] = []  # of all pieces of the driver's, sorted
        self._capacities: dict[int, int] = {}
        self._free: dict[int, list[int]] = {}  # addresses by capacity
        self._ended: deque[tuple[int, int]] = deque()  # as the allocator's: see there
        self._waiting: deque[tuple[int, int, list[Event]]] = deque()
        self._copies: dict[int, list[Event]] = {}  # that have begun, of pieces in use

    def allocate(self, size: int) -> Piece:
        """So many bytes, with anything in them. Raises OutOfMemoryError."""
        capacity = max(LEAST, 1 << (size - 1).bit_length()) if size else LEAST
        with self._lock:
            self._activate()
            self._settle()
            cached = self._free.get(capacity)
            address = cached.pop() if cached else self._new(capacity)
        return Piece(self, address, size, capacity)

    def array(self, array: Array) -> Array:
        """A row-major copy in pinned memory."""
        made = np.asarray(self.allocate(array.nbytes)).view(array.dtype).reshape(array.shape)
        made[...] = array
        return made

    def holds(self, address: int) -> bool:
        """Whether memory of the host is pinned, and here."""
        return self._start(address) is not None

    def begun(self, address: int, stream: Stream) -> None:
        """A copy to or from pinned memory was begun on a stream, last of all."""
        start = self._start(address)
        if start is None:
            return
        event = self._driver.create_event()
        self._driver.record(event, stream)
        with self._lock:
            copies = self._copies.setdefault(start, [])
            copies[:] = [each for each in copies if not self._happened(each)]
            copies.append(event)

    def ended(self, address: int, capacity: int) -> None:
        """A piece is used no more."""
        self._ended.append((address, capacity))
        if self._lock.acquire(blocking=False):
            try:
                with suppress(RuntimeError):
                    self._settle()
            finally:
                self._lock.release()

    def empty_cache(self) -> None:
        """Give back what nobody uses."""
        with self._lock:
            self._activate()
            self._settle()
            for addresses in self._free.values():
                for address in addresses:
                    self._starts.remove(address)
                    del self._capacities[address]
                    self._driver.free_host(address)
                addresses.clear()

    def _new(self, capacity: int) -> int:
        address = self._driver.allocate_host(capacity)
        insort(self._starts, address)
        self._capacities[address] = capacity
        return address

    def _start(self, address: int) -> int | None:
        at = bisect_right(self._starts, address) - 1
        if at < 0 or address >= self._starts[at] + self._capacities[self._starts[at]]:
            return None
        return self._starts[at]

    def _settle(self) -> None:
        while self._ended:
            address, capacity = self._ended.popleft()
            self._waiting.append((address, capacity, self._copies.pop(address, [])))
        if self._waiting:
            self._activate()
        for _ in range(len(self._waiting)):
            address, capacity, events = self._waiting.popleft()
            left = [event for event in events if not self._happened(event)]
            if left:
                self._waiting.append((address, capacity, left))
            else:
                self._free.setdefault(capacity, []).append(address)

    def _happened(self, event: Event) -> bool:
        if not self._driver.event_done(event):
            return False
        self._driver.destroy_event(event)
        return True
