"""Tiles of positions that are neighbours in a line of a convolution's output: how a line is cut."""

from __future__ import annotations

from ..machine import Tiling
from ..record import record
from .blocking import quotient_up
from .window import Window

KERNELS = 8  # for one convolution, at most
# Registers of sums of a tile: fewer wait for each other, being latency times units (4 x 2).
LEAST_SUMS = 8
MOST_ROWS = 12


@record
class Span:
    """Tiles beside each other that see as much: how many, where the first begins, the positions of
    each, and for each tap of a line the rows (from, to) that meet a pixel there."""

    count: int
    first: int
    rows: int
    taps: tuple[tuple[int, int], ...]


def spans_of_line(w: Window, vectors: int, tiling: Tiling) -> tuple[Span, ...]:
    """A line's tiles, as equal as can be."""
    most = min(tiling.rows * tiling.vectors // vectors, MOST_ROWS)
    tiles = quotient_up(w.out[2], most)
    rows = quotient_up(w.out[2], tiles)
    larger, first = w.out[2] - tiles * (rows - 1), 0
    spans: list[Span] = []
    for tile in range(tiles):
        height = rows if tile < larger else rows - 1
        taps = tuple(_rows(w, first, height, tap) for tap in range(w.size[2]))
        last = spans[-1] if spans else None
        if last is not None and (last.rows, last.taps) == (height, taps):
            spans[-1] = Span(last.count + 1, last.first, height, taps)
        else:
            spans.append(Span(1, first, height, taps))
        first += height
    return tuple(spans)


def _rows(w: Window, first: int, height: int, tap: int) -> tuple[int, int]:
    step, at = w.step[2], first * w.step[2] - w.low[2] + tap * w.dilation[2]
    low, high = max(0, -(at // step)), min(height, -((at - w.input[2]) // step))
    return (low, high) if low < high else (0, 0)


def seen_by(w: Window, dim: int) -> int:
    """Taps that all coordinates along a dimension see."""
    return sum(
        0 <= at * w.step[dim] - w.low[dim] + tap * w.dilation[dim] < w.input[dim]
        for at in range(w.out[dim]) for tap in range(w.size[dim])
    )
