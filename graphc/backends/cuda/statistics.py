"""What an allocator counts, by torch's names for it (torch.cuda.memory_stats)."""

from __future__ import annotations

from collections import OrderedDict

_POOLS = ("all", "large_pool", "small_pool")


class Counter:
    """A quantity: now, at most, and all that was added and taken away; of all requests, of large
    and of small ones."""

    __slots__ = ("now", "peak", "taken", "total")

    def __init__(self) -> None:
        self.now, self.peak = [0, 0, 0], [0, 0, 0]
        self.total, self.taken = [0, 0, 0], [0, 0, 0]

    @property
    def current(self) -> int:
        """Of all requests."""
        return self.now[0]

    def add(self, amount: int, small: bool) -> None:
        """So much more."""
        for at in (0, 2 if small else 1):
            self.total[at] += amount
            self.now[at] += amount
            if self.now[at] > self.peak[at]:
                self.peak[at] = self.now[at]

    def take(self, amount: int, small: bool) -> None:
        """So much less."""
        for at in (0, 2 if small else 1):
            self.taken[at] += amount
            self.now[at] -= amount


class Statistics:
    """Counters of one device's memory. What other streams still use is active, though freed."""

    def __init__(self) -> None:
        self.allocation, self.allocated_bytes, self.requested_bytes = (
            Counter(), Counter(), Counter()
        )
        self.active, self.active_bytes = Counter(), Counter()
        self.segment, self.reserved_bytes = Counter(), Counter()
        self.retries = self.refusals = 0

    def allocated(self, size: int, asked: int, small: bool) -> None:
        """A chunk was handed out."""
        for counter in (self.allocation, self.active):
            counter.add(1, small)
        for counter in (self.allocated_bytes, self.active_bytes):
            counter.add(size, small)
        self.requested_bytes.add(asked, small)

    def freed(self, size: int, asked: int, small: bool) -> None:
        """A chunk came back."""
        self.allocation.take(1, small)
        self.allocated_bytes.take(size, small)
        self.requested_bytes.take(asked, small)

    def released(self, size: int, small: bool) -> None:
        """No stream uses it any more."""
        self.active.take(1, small)
        self.active_bytes.take(size, small)

    def reserved(self, size: int, small: bool) -> None:
        """The driver gave a segment."""
        self.segment.add(1, small)
        self.reserved_bytes.add(size, small)

    def given_back(self, size: int, small: bool) -> None:
        """The driver has it again."""
        self.segment.take(1, small)
        self.reserved_bytes.take(size, small)

    def _counters(self) -> dict[str, Counter]:
        return {name: found for name, found in vars(self).items() if isinstance(found, Counter)}

    def reset_peaks(self) -> None:
        """Peaks are counted from what there is now."""
        for counter in self._counters().values():
            counter.peak[:] = counter.now

    def reset_totals(self) -> None:
        """What was added and taken away so far is forgotten."""
        for counter in self._counters().values():
            counter.total[:] = counter.taken[:] = [0, 0, 0]
        self.retries = self.refusals = 0

    def named(self) -> OrderedDict[str, int]:
        """torch.cuda.memory_stats(): "allocated_bytes.all.peak" and the like, in their order."""
        found = {
            f"{name}.{pool}.{kind}": values[at]
            for name, counter in self._counters().items()
            for at, pool in enumerate(_POOLS)
            for kind, values in (
                ("current", counter.now), ("peak", counter.peak),
                ("allocated", counter.total), ("freed", counter.taken),
            )
        }
        found["num_alloc_retries"], found["num_ooms"] = self.retries, self.refusals
        return OrderedDict(sorted(found.items()))


def in_words(size: int) -> str:
    """As torch says sizes: "20.00 MiB"."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.2f} {name}"
    return f"{size} bytes"
