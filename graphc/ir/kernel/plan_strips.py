"""A convolution strip by strip: some lines of an image are copied with their channels last, and
multiplied by weights in panels.

Rows of a tile are neighbours in a line of the output, columns are output channels. So whatever a
line's length no position is computed in vain, and each position leaves out the taps that are beside
the image: no sum has a term there. A chunk copies the lines that its strip sees into scratch of its
own, where they stay in the second cache; its sums are turned around there, too.
"""

from __future__ import annotations

from ..machine import Machine, Tiling
from ..record import record
from .blocking import ALIGN, multiple, quotient_up
from .plan_last import panel_vectors
from .window import Window

KERNELS = 8  # for one convolution, at most
LEAST_SUMS = 12  # registers of sums of a tile: fewer wait for each other
MOST_ROWS = 12
# Cycles per register: of turning what is copied, and sums; where memory gives it; of weights.
TURN_COST, FAR_COST, SUMS_COST, WEIGHT_COST = 8, 8, 12, 12
TILE_COST = 40  # of a tile besides its steps, and each line of the window that it sees


@record
class Span:
    """Tiles beside each other that see as much: how many, where the first begins, the positions of
    each, and for each tap of a line the rows (from, to) that meet a pixel there."""

    count: int
    first: int
    rows: int
    taps: tuple[tuple[int, int], ...]


@record
class Strips:
    """`vectors` of a panel's columns, of which there are `panels`; the tiles of a line; `lines` of
    the output in a strip, `strips` of an image; lines of the image that one sees, at most; elements
    of a pixel; columns of turned sums; bytes of the weights, and of a chunk's scratch."""

    vectors: int
    panels: int
    spans: tuple[Span, ...]
    lines: int
    strips: int
    seen: int
    pixel: int
    pitch: int
    weights: int
    copied: int  # bytes of the copy
    sums: int  # bytes of a panel's sums, as they are or turned around
    cost: int  # of an image, as in plan_convolution

    @property
    def scratch(self) -> int:
        """Bytes of a chunk's."""
        return self.copied + 2 * self.sums


def strips_of(
    w: Window, channels: int, outputs: int, groups: int, images: int, machine: Machine,
    itemsize: int,
) -> Strips | None:
    """Channels and outputs of a group; None where there is no such plan."""
    tiling = machine.tiling
    if tiling is None or min(*w.out[1:], *w.input[1:], channels, outputs) < 1 or not w.is_plain:
        return None
    lanes = tiling.lanes(itemsize)
    registers = quotient_up(outputs, lanes)
    vectors = panel_vectors(registers, tiling)
    spans = _spans(w, vectors, tiling)
    if len(spans) > KERNELS or min(w.dilation[1:]) < 1:
        return None
    panels = quotient_up(registers, vectors)
    panel = w.taps * channels * vectors * lanes * itemsize
    room = tiling.in_place_bytes * 7 // 8 - panel
    pixel = multiple(channels, lanes)
    enough = quotient_up(machine.template_chunks, images * groups)
    lines = quotient_up(w.out[1], min(enough, w.out[1]))
    while True:
        found = _of_lines(w, lines, pixel, vectors * lanes, lanes, itemsize)
        seen, pitch, copied, sums = found
        if copied + 2 * sums <= room:
            break
        if lines == 1:
            return None
        lines -= 1
    strips = quotient_up(w.out[1], lines)
    lines = quotient_up(w.out[1], strips)
    seen, pitch, copied, sums = _of_lines(w, lines, pixel, vectors * lanes, lanes, itemsize)
    terms = _seen_by(w, 1) * channels
    steps = sum(span.count * max(span.rows * vectors, LEAST_SUMS * 2 // 3) * (b > a)
                for span in spans for a, b in span.taps)
    far = images * groups * channels * w.input[1] * w.input[2] * itemsize > tiling.in_place_bytes
    turning = strips * seen * w.input[2] * pixel * (TURN_COST + (FAR_COST if far else 0))
    tiles = sum(span.count for span in spans) * w.out[1] * panels * lanes
    padded = panels * vectors * lanes
    cost = (
        terms * steps * panels * lanes + tiles * TILE_COST * (w.size[1] + 1) + turning
        + padded * w.positions * SUMS_COST
        + quotient_up(padded * channels * w.taps * WEIGHT_COST, images)
    )
    weights = multiple(groups * panels * panel, ALIGN)
    return Strips(
        vectors, panels, spans, lines, strips, seen, pixel, pitch, weights, copied, sums, cost
    )


def _of_lines(
    w: Window, lines: int, pixel: int, columns: int, lanes: int, itemsize: int
) -> tuple[int, int, int, int]:
    """(lines of the image that so many see, columns of turned sums, bytes of a copy, of sums)."""
    seen = min((lines - 1) * w.step[1] + (w.size[1] - 1) * w.dilation[1] + 1, w.input[1])
    positions = multiple(lines * w.out[2], lanes)
    pitch = positions + lanes * (positions * itemsize % 512 == 0)  # no power of two
    copied = multiple(multiple(seen * w.input[2], lanes) * pixel * itemsize, ALIGN)
    return seen, pitch, copied, multiple(pitch * columns * itemsize, ALIGN)


def _seen_by(w: Window, dim: int) -> int:
    """Taps that all coordinates along a dimension see."""
    return sum(
        0 <= at * w.step[dim] - w.low[dim] + tap * w.dilation[dim] < w.input[dim]
        for at in range(w.out[dim]) for tap in range(w.size[dim])
    )


def _spans(w: Window, vectors: int, tiling: Tiling) -> tuple[Span, ...]:
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
    inside = [
        row for row in range(height)
        if 0 <= (first + row) * w.step[2] - w.low[2] + tap * w.dilation[2] < w.input[2]
    ]
    return (inside[0], inside[-1] + 1) if inside else (0, 0)
