"""Stretches of a sequence of labels that repeat with a period."""

from __future__ import annotations

import numpy as np

from ...record import record
from .order import Numbers

_WINDOW = 16  # labels that are compared at once, to guess periods
_GUESSES = 64


@record
class Stretch:
    """Places start..stop have the labels of the places `period` before them."""

    start: int
    stop: int
    period: int

    @property
    def steps(self) -> int:
        """How many whole steps there are."""
        return (self.stop - self.start) // self.period

    @property
    def repeated(self) -> int:
        """How many places are repetitions."""
        return self.stop - self.start - self.period


def stretches(labels: Numbers, least: int) -> list[Stretch]:
    """Stretches of at least `least` steps, those that repeat most first. They may overlap."""
    found = [
        Stretch(int(start), int(stop), period)
        for period in _periods(labels, least)
        for start, stop in _runs(labels, period) if stop - start >= least * period
    ]
    return sorted(found, key=lambda s: (-s.repeated, s.period, s.start))


def _periods(labels: Numbers, least: int) -> list[int]:
    """Distances at which the same labels are met again often."""
    if len(labels) < _WINDOW + least:
        return []
    windows = np.zeros(len(labels) - _WINDOW + 1, np.uint64)
    for i in range(_WINDOW):  # a collision only makes a bad guess
        windows = windows * np.uint64(0x9E3779B97F4A7C15) + labels[
            i : i + len(windows)
        ].astype(np.uint64) + np.uint64(1)
    order = np.argsort(windows, kind="stable")
    again = windows[order[1:]] == windows[order[:-1]]
    distances, votes = np.unique((order[1:] - order[:-1])[again], return_counts=True)
    likely = np.argsort(-votes, kind="stable")[:_GUESSES]
    return [int(distances[i]) for i in likely if votes[i] >= least - 1]


def _runs(labels: Numbers, period: int) -> list[tuple[int, int]]:
    """The longest stretches in which each label is that of `period` places before."""
    same = np.concatenate(([False], labels[:-period] == labels[period:], [False]))
    edges = np.flatnonzero(same[1:] != same[:-1])
    return [(start, stop + period) for start, stop in edges.reshape(-1, 2).tolist()]
