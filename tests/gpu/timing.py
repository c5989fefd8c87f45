"""Times of compiled calls on the device, of graphc and of PyTorch, by events around each."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Any

import graphc

from .bed import Bed


def peers(bed: Bed) -> Mapping[str, Any]:
    """The packages that can run on the device, by name."""
    found = {"graphc": graphc}
    if bed.large:
        try:
            import torch
        except ImportError:
            return found
        if torch.cuda.is_available():
            found["torch.compile"] = torch
    return found


class Timed:
    """Medians of one package's calls, compiled by it; `repeat` of them, behind `warm` others."""

    def __init__(self, bed: Bed, package: str = "graphc") -> None:
        self.bed, self.package = bed, package
        self.repeat, self.warm = (30, 5) if bed.large else (2, 1)

    def of(self, package: str) -> Timed:
        """The same of another package."""
        return Timed(self.bed, package)

    def median(
        self, function: Callable[..., Any], inputs: tuple[Any, ...], mode: str | None = None,
        compiled: bool = True,
    ) -> float:
        """Milliseconds of a call on the device."""
        torch = peers(self.bed)[self.package]
        call = torch.compile(function, mode=mode) if compiled else function
        for _ in range(self.warm):
            call(*inputs)
        torch.cuda.synchronize()
        times = []
        for _ in range(self.repeat):
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            first.record()
            call(*inputs)
            last.record()
            last.synchronize()
            times.append(first.elapsed_time(last))
        return statistics.median(times)
