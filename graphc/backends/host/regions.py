"""Large memory, kept from use to use: regions of the system's, cut into chunks.

What is freed joins its free neighbours, so that many small requests are served where a large one
was, and the other way round: activations of a forward and a backward pass, gradients and what an
optimizer makes on its way take turns in the same bytes, whatever their sizes.
"""

from __future__ import annotations

import contextlib
import mmap
import threading
from bisect import bisect_left, insort
from collections import deque

PAGE = 1 << 12  # sizes are multiples, and so is where a chunk begins
SHARED = 1 << 26  # bytes of a region that many requests share: the system gives what is touched
IDLE = 256  # requests since a region was last used: a step of a program has fewer
APART = -1  # the number of a region that is no part of the others
_WAITING = 4  # chunks that may be freed and not yet joined to their neighbours


class Chunk:
    """A stretch of a region: `start` and `size` in bytes; `owner`: the region's memory; `clean`:
    nobody has written there yet, so that it is all 0."""

    __slots__ = ("clean", "free", "next", "owner", "previous", "region", "size", "start")

    def __init__(self, region: Region, start: int, size: int) -> None:
        self.region, self.start, self.size = region, start, size
        self.owner = region.memory
        self.free = self.clean = False
        self.previous: Chunk | None = None
        self.next: Chunk | None = None


class Region:
    """Memory of the system. What lies behind `top` was never handed out, and is not there yet."""

    __slots__ = ("last", "memory", "number", "size", "top", "used")

    def __init__(self, number: int, size: int) -> None:
        self.number, self.size = number, size
        self.memory = own_pages(size)
        self.top = 0
        self.last: Chunk | None = None  # the chunk that ends at `top`
        self.used = 0  # when something of it was last taken or freed, in requests

    @property
    def idle(self) -> bool:
        """Whether nobody has anything of it."""
        return self.last is None or (self.last.free and self.last.previous is None)


class Regions:
    """Hands out chunks; keeps whole regions that nobody uses up to `limit` bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.regions: list[Region] = []
        # (size, region's number, start) of free chunks, in order: the smallest that is large enough
        self._free: list[tuple[int, int, int]] = []
        self._chunks: dict[tuple[int, int, int], Chunk] = {}
        self._clock = 0  # requests so far
        self.lock = threading.RLock()
        # Python collects anywhere, in the middle of a request, too: arrays end there, and what
        # collects them may make some. So `give_back` only notes it, and whoever has the lock
        # carries it out; a request inside another one is served apart.
        self._freed: deque[Chunk] = deque()
        self._busy = False

    def take(self, size: int) -> Chunk:
        """So many bytes at least, of anything. Raises OSError where the system has no more."""
        size = -(-size // PAGE) * PAGE
        with self.lock:
            if self._busy:
                return _first(Region(APART, size), 0, size)
            self._busy = True
            try:
                self._clock += 1
                chunk = self._latest(size)
                if chunk is None:
                    self._settle()
                    chunk = self._least(size) or self._fresh(size)
                chunk.region.used = self._clock
                return chunk
            finally:
                self._busy = False

    def give_back(self, chunk: Chunk) -> None:
        """Nobody sees its bytes any more."""
        if chunk.region.number == APART:
            return
        self._freed.append(chunk)
        if len(self._freed) <= _WAITING and chunk.size <= min(SHARED // 4, self.limit // 16):
            return  # the next request may well be for as much: what a loop frees, it asks for
        if self.lock.acquire(blocking=False):
            try:
                if not self._busy:
                    self._carry_out()
            finally:
                self.lock.release()

    def release(self) -> None:
        """Gives the regions that nobody uses back to the system."""
        with self.lock:
            if not self._busy:
                self._carry_out()
                self._drop_idle()

    @property
    def kept(self) -> int:
        """Bytes that were used and are free."""
        with self.lock:
            if not self._busy:
                self._carry_out()
            noted = sum(chunk.size for chunk in self._freed)
            return sum(size for size, _, _ in self._free) + noted

    # --- with the lock ------------------------------------------------------------------------

    def _carry_out(self) -> None:
        self._busy = True
        try:
            self._settle()
        finally:
            self._busy = False

    def _settle(self) -> None:
        while self._freed:
            chunk = self._freed.popleft()
            region = chunk.region
            before, after = chunk.previous, chunk.next
            if before is not None and before.free:
                self._remove(before)
                chunk = _joined(before, chunk)
            if after is not None and after.free:
                self._remove(after)
                chunk = _joined(chunk, after)
            self._add(chunk)
            region.used = self._clock
            if chunk is region.last and chunk.previous is None:
                self._bound()

    def _latest(self, size: int) -> Chunk | None:
        """What was freed last, if it has so many bytes: it is in the caches."""
        if not self._freed:
            return None
        chunk = self._freed.pop()
        if chunk.size != size:
            self._freed.append(chunk)
            return None
        chunk.clean = False
        return chunk

    def _least(self, size: int) -> Chunk | None:
        """The smallest free chunk that has so many bytes, cut to them."""
        at = bisect_left(self._free, (size, 0, 0))
        if at == len(self._free):
            return None
        chunk = self._chunks[self._free[at]]
        self._remove(chunk)
        if chunk.size > size:
            rest = Chunk(chunk.region, chunk.start + size, chunk.size - size)
            rest.previous, rest.next = chunk, chunk.next
            if rest.next is not None:
                rest.next.previous = rest
            else:
                chunk.region.last = rest
            chunk.next, chunk.size = rest, size
            self._add(rest)
        return chunk

    def _fresh(self, size: int) -> Chunk:
        """A chunk that ends where nothing was handed out yet."""
        for region in self.regions:
            last = region.last
            start = last.start if last is not None and last.free else region.top
            if region.size - start >= size:
                break
        else:
            self._make_room(size)
            region, start = self._made(size), 0
            last = None
        region.top = start + size
        if last is not None and last.free:
            self._remove(last)
            last.size = size
            return last
        chunk = _first(region, start, size)
        chunk.previous, region.last = last, chunk
        if last is not None:
            last.next = chunk
        return chunk

    def _made(self, size: int) -> Region:
        number = self.regions[-1].number + 1 if self.regions else 0
        try:
            # a large request has a region by itself: what is idle can then be given back
            region = Region(number, size if size > SHARED // 4 else SHARED)
        except OSError:  # no more of the system's, or of what this process may have
            self._drop_idle()
            region = Region(number, size)
        self.regions.append(region)
        return region

    def _drop_idle(self) -> None:
        for region in self._oldest():
            self._drop(region)

    def _make_room(self, size: int) -> None:
        """Give regions back that nobody has used for long, until so many bytes are free: what
        sizes that vary leave behind would otherwise add up."""
        for region in self._oldest():
            if size <= 0 or self._clock - region.used <= IDLE:
                return
            size -= region.top
            self._drop(region)

    def _bound(self) -> None:
        """Keep no more than the limit."""
        if sum([region.top for region in self.regions]) <= self.limit:
            return
        idle = self._oldest()
        kept = sum(region.top for region in idle)
        for region in idle:
            if kept <= self.limit:
                return
            kept -= region.top
            self._drop(region)

    def _oldest(self) -> list[Region]:
        return sorted((each for each in self.regions if each.idle), key=lambda each: each.used)

    def _drop(self, region: Region) -> None:
        if region.last is not None:
            self._remove(region.last)
            region.last = None  # no cycle: the memory goes now, not when Python collects
        self.regions.remove(region)

    def _add(self, chunk: Chunk) -> None:
        chunk.free, chunk.clean = True, False
        place = (chunk.size, chunk.region.number, chunk.start)
        insort(self._free, place)
        self._chunks[place] = chunk

    def _remove(self, chunk: Chunk) -> None:
        chunk.free = False
        place = (chunk.size, chunk.region.number, chunk.start)
        del self._free[bisect_left(self._free, place)]
        del self._chunks[place]


def _first(region: Region, start: int, size: int) -> Chunk:
    """What is handed out for the first time."""
    chunk = Chunk(region, start, size)
    chunk.clean = True
    return chunk


def _joined(first: Chunk, second: Chunk) -> Chunk:
    """Neighbours as one."""
    first.size += second.size
    first.next = second.next
    if first.next is not None:
        first.next.previous = first
    else:
        first.region.last = first
    return first


def own_pages(size: int) -> mmap.mmap:
    """Memory of this process alone, in huge pages where there are any. Python's default is memory
    that children of fork share, which then see each other's writes, and which has no huge pages."""
    if not hasattr(mmap, "MAP_PRIVATE"):  # Windows
        return mmap.mmap(-1, size)
    mapped = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without huge pages
            mapped.madvise(mmap.MADV_HUGEPAGE)
    return mapped
