"""How long a piece of work takes on a device, beside other ways to do the same.

Before each run the second cache is overwritten: a step of training finds little of its operands
there; and while that goes on the host begins the work, so that it is not timed itself.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

from graphc.backends.cuda.device import Device
from graphc.backends.cuda.driver import Attribute

_WARM = 1  # runs in front: what is loaded late is loaded then
_RUNS = 7
_TOO_SLOW = 1.5  # times the best, after the first run: that is enough
_BETWEEN = 1 << 28  # bytes that are written before a run, at least four of the second cache
_SHARE = 8  # ... of the free memory at most


class Trial:
    """Runs on one device's current stream; `close` gives back what that takes."""

    def __init__(self, device: Device) -> None:
        self._device, self._driver = device, device.driver
        self._stream = device.current_stream()
        self._marks = [self._driver.create_event(timing=True) for _ in range(2)]
        wanted = max(_BETWEEN, 4 * device.attribute(Attribute.L2_CACHE_SIZE))
        size = min(wanted, self._driver.memory().free // _SHARE)
        self._between = device.allocate(size, self._stream)

    def milliseconds(self, begin: Callable[[], None], best: float) -> float:
        """The median of some runs; 0.0 on a device without a clock. What is far behind the best so
        far has one run."""
        for _ in range(_WARM):
            begin()
        times = [self._run(begin)]
        if 0.0 < times[0] < _TOO_SLOW * best:
            times += [self._run(begin) for _ in range(_RUNS - 1)]
        return statistics.median(times)

    def _run(self, begin: Callable[[], None]) -> float:
        first, last = self._marks
        between = self._between
        self._driver.fill(between.address, 0, 1, between.size, self._stream)
        self._driver.record(first, self._stream)
        begin()
        self._driver.record(last, self._stream)
        self._driver.wait_for_event(last)
        return self._driver.elapsed(first, last)

    def close(self) -> None:
        """Nothing may be timed after that."""
        for mark in self._marks:
            self._driver.destroy_event(mark)
        self._device.free(self._between)
