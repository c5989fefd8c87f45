"""A device's memory, kept from use to use. What is freed on a stream serves that stream again at
once, as whatever reads it was begun before; another stream gets it behind an event.

Pieces of the driver's memory are segments, cut into chunks, which are joined again when both
neighbours are free. Small requests share segments of their own. (The rules are those that PyTorch
documents: pytorch.org/docs/stable/notes/cuda.html, "Memory management".)
"""

from __future__ import annotations

import sys
import threading
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress

from graphc.backends.cuda.driver import Driver, Event, Stream
from graphc.backends.cuda.errors import CudaOutOfMemory
from graphc.backends.cuda.statistics import Statistics, in_words
from graphc.ir.memory import OutOfMemoryError

GRAIN = 512  # bytes; every chunk is a multiple, so that addresses are aligned as the driver's are
SMALL = 1 << 20  # requests up to here share segments of
SMALL_SEGMENT = 2 << 20
MIDDLE = 10 << 20  # requests below here are cut from segments of
MIDDLE_SEGMENT = 20 << 20
LARGE_GRAIN = 2 << 20  # of segments for one larger request


class Block:
    """Memory that was handed out, until `free` or its own end."""

    __slots__ = ("__weakref__", "_allocator", "_chunk", "address", "size")

    def __init__(
        self, allocator: Allocator, chunk: Chunk | None, address: int, size: int
    ) -> None:
        self._allocator, self._chunk = allocator, chunk
        self.address, self.size = address, size

    @property
    def chunk(self) -> Chunk | None:
        """What it was cut from; None: it has no bytes, or was freed."""
        return self._chunk

    def taken(self) -> Chunk | None:
        """Its chunk, once."""
        chunk, self._chunk = self._chunk, None
        return chunk

    def __del__(self, ends: Callable[[], bool] = sys.is_finalizing) -> None:
        if not ends():  # modules lose their names then, and the driver its context anyway
            self._allocator.free(self)


class Chunk:
    """A part of a segment: `size` bytes that belong to a stream, of which `asked` are used."""

    __slots__ = ("address", "asked", "free", "next", "previous", "size", "small", "stream", "users")

    def __init__(self, address: int, size: int, stream: Stream, small: bool) -> None:
        self.address, self.size, self.stream, self.small = address, size, stream, small
        self.asked = 0
        self.free = False
        self.previous: Chunk | None = None
        self.next: Chunk | None = None
        self.users: set[Stream] | None = None  # other streams whose work reads or writes it

    @property
    def is_segment(self) -> bool:
        """Whether nothing was cut off."""
        return self.previous is None and self.next is None


class Pool:
    """Free chunks of one stream, of small or large segments, by size and then address."""

    def __init__(self) -> None:
        self._order: list[tuple[int, int]] = []
        self._chunks: dict[int, Chunk] = {}

    def add(self, chunk: Chunk) -> None:
        """One more."""
        chunk.free = True
        insort(self._order, (chunk.size, chunk.address))
        self._chunks[chunk.address] = chunk

    def remove(self, chunk: Chunk) -> None:
        """It is free no more."""
        chunk.free = False
        del self._order[bisect_left(self._order, (chunk.size, chunk.address))]
        del self._chunks[chunk.address]

    def least(self, size: int, whole: bool = False) -> Chunk | None:
        """The smallest that has so many bytes; `whole`: of those that are segments."""
        for at in range(bisect_left(self._order, (size, 0)), len(self._order)):
            chunk = self._chunks[self._order[at][1]]
            if chunk.is_segment or not whole:
                return chunk
        return None

    def segments(self) -> list[Chunk]:
        """Those from which nothing was cut."""
        return [chunk for chunk in self._chunks.values() if chunk.is_segment]

    def __iter__(self) -> Iterator[Chunk]:
        return iter(self._chunks.values())


class Allocator:
    """Memory of one device. `activate` makes its context current in the calling thread; `index`
    is its number, for errors. `limit`: bytes that segments may have in all; None: the device's."""

    def __init__(self, driver: Driver, activate: Callable[[], None], index: int = 0) -> None:
        self._driver, self._activate, self._index = driver, activate, index
        self._pools: dict[tuple[Stream, bool], Pool] = {}
        self._segments: dict[int, int] = {}  # address: bytes
        self._statistics = Statistics()
        self.limit: int | None = None
        # Blocks end wherever Python collects them: in the middle of a call here, too. So `free`
        # only notes it, and whoever has the lock carries it out.
        self._lock = threading.Lock()
        self._freed: deque[Chunk] = deque()
        self._waiting: deque[tuple[Chunk, list[Event]]] = deque()  # until other streams are done

    def allocate(self, size: int, stream: Stream) -> Block:
        """So many bytes for the work of a stream, aligned to GRAIN, with anything in them. Raises
        OutOfMemoryError; what there is stays as it is, and what was cached was given back."""
        if size <= 0:
            return Block(self, None, 0, 0)
        rounded = -(-size // GRAIN) * GRAIN
        small = rounded <= SMALL
        with self._lock:
            self._settle()
            pool = self._pool(stream, small)
            chunk = pool.least(rounded)
            if chunk is None:
                chunk = self._fetched(rounded, stream, small, size)
            else:
                pool.remove(chunk)
            self._cut(chunk, rounded)
            chunk.asked = size
            self._statistics.allocated(chunk.size, size, small)
            return Block(self, chunk, chunk.address, size)

    def free(self, block: Block) -> None:
        """Its stream may use the memory from now on. Nothing happens the second time."""
        chunk = block.taken()
        if chunk is None:
            return
        self._freed.append(chunk)
        if self._lock.acquire(blocking=False):
            try:
                with suppress(RuntimeError):  # a lost context, a fork: said where one allocates
                    self._settle()
            finally:
                self._lock.release()

    def record_stream(self, block: Block, stream: Stream) -> None:
        """Work of another stream uses a block: once freed, it waits for that."""
        chunk = block.chunk
        if chunk is not None and chunk.stream != stream:
            chunk.users = (chunk.users or set()) | {stream}

    def empty_cache(self) -> None:
        """Give segments of which nothing is used back to the driver."""
        with self._lock:
            self._settle()
            self._give_back()

    @property
    def statistics(self) -> Statistics:
        """The counters, of all that has happened."""
        with self._lock:
            self._settle()
            return self._statistics

    def segments(self) -> list[tuple[int, int]]:
        """(address, bytes) of what the driver has given."""
        with self._lock:
            return sorted(self._segments.items())

    # --- with the lock ------------------------------------------------------------------------

    def _pool(self, stream: Stream, small: bool) -> Pool:
        found = self._pools.get((stream, small))
        if found is None:
            found = self._pools[stream, small] = Pool()
        return found

    def _settle(self) -> None:
        """What was freed goes to its pool, or waits for the streams that use it."""
        while self._freed:
            chunk = self._freed.popleft()
            self._statistics.freed(chunk.size, chunk.asked, chunk.small)
            if chunk.users:
                self._waiting.append((chunk, self._events(chunk.users)))
            else:
                self._release(chunk)
        if self._waiting:
            self._activate()
        for _ in range(len(self._waiting)):
            chunk, events = self._waiting.popleft()
            if all(map(self._driver.event_done, events)):
                self._returned(chunk, events)
            else:
                self._waiting.append((chunk, events))

    def _events(self, streams: set[Stream]) -> list[Event]:
        self._activate()
        events = []
        for stream in sorted(streams):
            events.append(self._driver.create_event())
            self._driver.record(events[-1], stream)
        return events

    def _returned(self, chunk: Chunk, events: list[Event]) -> None:
        for event in events:
            self._driver.destroy_event(event)
        self._release(chunk)

    def _release(self, chunk: Chunk) -> None:
        chunk.users = None
        self._statistics.released(chunk.size, chunk.small)
        pool = self._pool(chunk.stream, chunk.small)
        before, after = chunk.previous, chunk.next
        if before is not None and before.free:
            pool.remove(before)
            chunk = _joined(before, chunk)
        if after is not None and after.free:
            pool.remove(after)
            chunk = _joined(chunk, after)
        pool.add(chunk)

    def _cut(self, chunk: Chunk, size: int) -> None:
        """Leaves a chunk `size` bytes; the rest, if it is worth having, is a free one."""
        rest = chunk.size - size
        if rest < (GRAIN if chunk.small else SMALL + GRAIN):
            return
        tail = Chunk(chunk.address + size, rest, chunk.stream, chunk.small)
        tail.previous, tail.next = chunk, chunk.next
        if tail.next is not None:
            tail.next.previous = tail
        chunk.next, chunk.size = tail, size
        self._pool(chunk.stream, chunk.small).add(tail)

    # --- from the driver ----------------------------------------------------------------------

    def _fetched(self, size: int, stream: Stream, small: bool, asked: int) -> Chunk:
        """A segment for so many bytes: new, or another stream's, or one that a cache gives way
        for."""
        self._activate()
        wanted = _segment_size(size)
        try:
            return self._new(wanted, stream, small)
        except CudaOutOfMemory:
            pass
        self._statistics.retries += 1
        taken = self._taken_over(size, stream, small)
        if taken is not None:
            return taken
        self._give_back()
        try:
            return self._new(wanted if small else _rounded(size), stream, small)
        except CudaOutOfMemory as refused:
            self._statistics.refusals += 1
            raise OutOfMemoryError(self._said(asked)) from refused

    def _new(self, size: int, stream: Stream, small: bool) -> Chunk:
        reserved = sum(self._segments.values())
        if self.limit is not None and reserved + size > self.limit:
            raise CudaOutOfMemory(
                "set_per_process_memory_fraction", "CUDA_ERROR_OUT_OF_MEMORY", "the limit",
                f"{size:,} bytes were asked for, {reserved:,} of {self.limit:,} are in use",
            )
        address = self._driver.allocate(size)
        self._segments[address] = size
        self._statistics.reserved(size, small)
        return Chunk(address, size, stream, small)

    def _taken_over(self, size: int, stream: Stream, small: bool) -> Chunk | None:
        """A free segment of another stream, which this one waits for."""
        for (owner, kind), pool in self._pools.items():
            if owner == stream or kind != small:
                continue
            chunk = pool.least(size, whole=True)
            if chunk is not None:
                pool.remove(chunk)
                (event,) = self._events({owner})
                self._driver.order(stream, event)
                self._driver.destroy_event(event)
                chunk.stream = stream
                return chunk
        return None

    def _give_back(self) -> None:
        self._activate()
        while self._waiting:
            chunk, events = self._waiting.popleft()
            for event in events:
                self._driver.wait_for_event(event)
            self._returned(chunk, events)
        for pool in self._pools.values():
            for chunk in pool.segments():
                pool.remove(chunk)
                del self._segments[chunk.address]
                self._statistics.given_back(chunk.size, chunk.small)
                self._driver.free(chunk.address)

    def _said(self, asked: int) -> str:
        """torch's words for it."""
        free, total = self._driver.memory()
        used = self._statistics.allocated_bytes.current
        reserved = self._statistics.reserved_bytes.current
        allowed = "" if self.limit is None else f" {in_words(self.limit)} allowed;"
        return (
            f"CUDA out of memory. Tried to allocate {in_words(asked)}. GPU {self._index} has a "
            f"total capacity of {in_words(total)} of which {in_words(free)} is free.{allowed} Of "
            f"the allocated memory {in_words(used)} is allocated by graphc, and "
            f"{in_words(reserved - used)} is reserved by graphc but unallocated. Cure: a smaller "
            "batch, fewer tensors alive, or another device"
        )


def _segment_size(size: int) -> int:
    if size <= SMALL:
        return SMALL_SEGMENT
    return MIDDLE_SEGMENT if size < MIDDLE else _rounded(size)


def _rounded(size: int) -> int:
    return -(-size // LARGE_GRAIN) * LARGE_GRAIN


def _joined(first: Chunk, second: Chunk) -> Chunk:
    """Neighbours as one."""
    first.size += second.size
    first.next = second.next
    if first.next is not None:
        first.next.previous = first
    return first
