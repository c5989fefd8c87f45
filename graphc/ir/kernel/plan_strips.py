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
from .plan_spans import KERNELS, LEAST_SUMS, Span, seen_by, spans_of_line
from .window import Window

# Cycles per register: of turning what is copied, and sums; where memory gives it; of weights.
TURN_COST, FAR_COST, SUMS_COST, WEIGHT_COST = 8, 8, 12, 12
AGAIN_COST = 2  # of sums that are loaded and stored again
TILE_COST = 40  # of a tile besides its steps, and each line of the window that it sees


@record
class Strips:
    """`vectors` of a panel's columns, of which there are `panels`; the tiles of a line; lines of
    the window that are gone along at a time, so that their weights stay in a cache; `lines` of the
    output in a strip, `strips` of an image; lines of the image that one sees, at most; elements of
    a pixel; columns of turned sums; bytes of the weights, and of a chunk's scratch."""

    vectors: int
    panels: int
    spans: tuple[Span, ...]
    block: int
    lines: int
    strips: int
    seen: int
    pixel: int
    pitch: int
    weights: int
    copied: int  # bytes of the copy
    sums: int  # bytes of a panel's sums, as they are or turned around
    asks: bool  # whether tiles ask for the weights that are multiplied next
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
    spans = spans_of_line(w, vectors, tiling)
    if len(spans) > KERNELS or min(w.dilation[1:]) < 1:
        return None
    pixel, panels = multiple(channels, lanes), quotient_up(registers, vectors)
    columns = vectors * lanes
    panel = w.taps * channels * columns * itemsize
    weights = multiple(groups * panels * panel, ALIGN)
    steps = sum(span.count * max(span.rows * vectors, LEAST_SUMS) * (b > a)
                for span in spans for a, b in span.taps)
    tiles = sum(span.count for span in spans) * w.out[1] * panels * lanes
    padded = panels * columns
    far = images * groups * channels * w.input[1] * w.input[2] * itemsize > tiling.in_place_bytes
    turn = w.input[2] * pixel * (TURN_COST + (FAR_COST if far else 0))
    fixed = seen_by(w, 1) * channels * steps * panels * lanes
    fixed += quotient_up(padded * channels * w.taps * WEIGHT_COST, images)
    # weights that come from a far cache for each strip: strips are few, and ask for them
    cache = tiling.far if weights > room_of(tiling) else None
    stream = padded * channels * w.taps * cache.weight_cost if cache else 0
    pieces = machine.parallelism if cache else machine.template_chunks
    found: list[Strips] = []
    for block in sorted({quotient_up(w.size[1], n) for n in range(1, w.size[1] + 1)}):
        room = room_of(tiling) - panel * block // w.size[1]
        most = quotient_up(pieces, images * groups)
        lines = _most_lines(w, most, room, pixel, columns, lanes, itemsize)
        if not lines:
            continue
        strips = quotient_up(w.out[1], lines)
        lines = quotient_up(w.out[1], strips)
        seen, pitch, copied, sums = _of_lines(w, lines, pixel, columns, lanes, itemsize)
        again = quotient_up(w.size[1], block) - 1
        cost = (
            fixed + tiles * TILE_COST * (w.size[1] + 1 + again) + strips * (seen * turn + stream)
            + padded * w.positions * (SUMS_COST + AGAIN_COST * again)
        )
        found.append(Strips(
            vectors, panels, spans, block, lines, strips, seen, pixel, pitch, weights, copied,
            sums, cache is not None, cost,
        ))
    return min(found, key=lambda plan: plan.cost, default=None)


def room_of(tiling: Tiling) -> int:
    """Bytes of the second cache that weights, a copy and sums may fill."""
    return 2 * tiling.pack_bytes * 7 // 8


def _most_lines(
    w: Window, strips: int, room: int, pixel: int, columns: int, lanes: int, itemsize: int
) -> int:
    """Of a strip, where there are so many of an image or more, for whose copy and sums there is
    room; 0: there is none for those of a line."""
    lines: int = quotient_up(w.out[1], min(strips, w.out[1]))
    while lines:
        _, _, copied, sums = _of_lines(w, lines, pixel, columns, lanes, itemsize)
        if copied + 2 * sums <= room:
            break
        lines -= 1
    return lines


def _of_lines(
    w: Window, lines: int, pixel: int, columns: int, lanes: int, itemsize: int
) -> tuple[int, int, int, int]:
    """(lines of the image that so many see, columns of turned sums, bytes of a copy, of sums)."""
    seen = min((lines - 1) * w.step[1] + (w.size[1] - 1) * w.dilation[1] + 1, w.input[1])
    positions = multiple(lines * w.out[2], lanes)
    pitch = positions + lanes * (positions * itemsize % 512 == 0)  # no power of two
    copied = multiple(multiple(seen * w.input[2], lanes) * pixel * itemsize, ALIGN)
    return seen, pitch, copied, multiple(pitch * columns * itemsize, ALIGN)
