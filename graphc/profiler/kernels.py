"""The kernels that GPUs run while somebody profiles."""

from __future__ import annotations

import time

from ..cuda.available import gpus


class Kernels:
    """Those of the current GPU, and of all that are in use, from here to `end`. A GPU that somebody
    else times is left out."""

    def __init__(self) -> None:
        current = gpus().current_index
        self._gpus = [
            found for found in gpus().devices
            if (found.begun or found.index == current) and found.timer is None
        ]
        self._began = []
        for found in self._gpus:
            found.synchronise()
            self._began.append(time.perf_counter())
            found.time()

    def end(self) -> list[tuple[str, float, float]]:
        """Of each: its name, when it began, and the seconds that it took."""
        return [
            (timed.name, began + timed.start * 1e-3, timed.taken * 1e-3)
            for found, began in zip(self._gpus, self._began, strict=True)
            for timed in found.times()
        ]
