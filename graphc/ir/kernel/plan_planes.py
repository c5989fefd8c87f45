"""Convolutions whose groups have one channel each (depthwise ones), done plane by plane.

A tile of a product would have one row, and a call for each 64 positions would cost more than
their sums. So a strip of lines of one channel's plane is copied with its padding, a part for each
remainder of a coordinate by the stride; then each tap reads all of the strip's positions from one
part, side by side. A line of the strip is as long as one of the copy: the sums of its last columns
are computed in vain and left out of what the epilogue gets.
"""

from __future__ import annotations

from ..record import record
from .blocking import (
    ALIGN,
    POINTER_BYTES,
    Condition,
    Number,
    clamp,
    most,
    multiple,
    quotient_up,
)

STRIP_ELEMENTS = 4096  # of the sums of a strip: with the copy they stay in the first caches
CHUNK_ELEMENTS = 1 << 15  # positions of a chunk
VECTORS = 4  # registers of positions at a time
ROWS = 4  # lines of positions at a time, where they are summed in registers
MOST_OUTPUTS = 5  # of a group; more fill the rows of a tile


@record
class Strips:
    """How planes are cut. Sizes in elements, `scratch` (of a chunk) and offsets in bytes."""

    pitch: Number  # positions of a line, those in vain included
    rows: Number  # lines of a strip
    strips: Number  # of a plane
    lines: Number  # of each part of the copy
    part: Number  # elements of a part
    units: Number  # strips of all planes
    chunk: Number  # strips of a chunk
    chunks: Number
    zeros_at: Number  # where in a chunk's scratch what a line reads is all 0,
    sums_at: Number  # the sums begin,
    dense_at: Number  # and the sums without those in vain
    scratch: Number


Pair = tuple[Number, Number]  # height, width


def by_planes(channels: Number, outputs: Number) -> Condition:
    """Whether a group's convolution is done so, from its channels and outputs."""
    one = channels == 1 if isinstance(channels, int) else channels.equals(1)
    return one & (outputs < MOST_OUTPUTS + 1)


def strips(
    planes: Number, out: Pair, window: Pair, step: Pair, dilation: Pair, lanes: int, itemsize: int
) -> Strips:
    """How so many planes are cut; no size is 0."""
    spans = [(size - 1) * d // s for size, d, s in zip(window, dilation, step, strict=True)]
    pitch = out[1] + spans[1]
    rows = clamp(STRIP_ELEMENTS // most(pitch * ROWS, 1) * ROWS, ROWS, out[0])
    in_plane = quotient_up(out[0], most(rows, 1))
    lines = rows + spans[0]
    part = lines * pitch + lanes  # whole registers are written: the last line's excess
    units = planes * in_plane
    chunk = clamp(CHUNK_ELEMENTS // most(rows * pitch, 1), 1, most(units, 1))
    # Whole registers are read, too: some elements behind the last belong to nobody.
    block = VECTORS * lanes
    copied = step[0] * step[1] * part + 2 * block
    zeros_at = multiple(copied * itemsize, ALIGN)
    sums_at = zeros_at + multiple(((pitch + 1) * step[1] + 2 * lanes) * itemsize, ALIGN)
    sums = multiple(rows * pitch, block)
    dense_at = sums_at + multiple(sums * itemsize, ALIGN)
    dense = rows * out[1] + block
    scratch = dense_at + multiple(dense * itemsize, ALIGN)
    return Strips(
        pitch, rows, in_plane, lines, part, units, chunk, quotient_up(units, chunk), zeros_at,
        sums_at, dense_at, scratch,
    )


def offsets_bytes(taps: Number) -> Number:
    """Of the table of where taps begin in a copy, which lies in front of the chunks' scratch."""
    return multiple(taps * POINTER_BYTES, ALIGN)
