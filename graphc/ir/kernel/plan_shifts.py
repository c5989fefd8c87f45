"""How much of a convolution's input is copied at a time where it is copied once for each tap along
a line.

A copy has the lines that are seen, as long as those of the output: what a tap of that column meets
at each position. So positions of any lines are neighbours, no step along the line is left, and the
taps of a column are whole lines apart. A chunk copies the channels of a block of k for its columns;
tiles read there. Where there is a step from line to line, a copy has a phase for each remainder.
"""

from __future__ import annotations

from typing import NamedTuple

from ..machine import Tiling
from .blocking import ALIGN, Blocking, Number, least, most, multiple, quotient_up

# Cycles that a copy takes per register, by the step along a line: of neighbours, of every second
# element, of further ones; and where memory gives the input (Zen 4). Steps of tiles take no more
# than those of packed panels: half of the registers and more are aligned.
SHIFT_COSTS, SHIFT_FAR_COSTS = (8, 11, 44), (16, 12, 44)
MASK_BYTES = 8  # of the two masks of a register of a line


class Shifts(NamedTuple):
    """`channels` of a block, whose steps are all of their taps; at most so many columns at a time;
    `copies` of a channel (a phase each) of `phase` elements; bytes of the masks, and of scratch;
    `halo`: lines that columns of an image see besides their own."""

    channels: Number
    columns: Number
    copies: Number
    phase: Number
    masks: Number
    scratch: Number
    halo: Number

    def copying(
        self, plan: Blocking, channels: int, out: tuple[int, int], step: int, far: bool, lanes: int
    ) -> int:
        """Cycles by `lanes` that an image's copies take; `step`: along a line, `far`: from
        memory."""
        (height, width), costs = out, SHIFT_FAR_COSTS if far else SHIFT_COSTS
        parts = quotient_up(height * width, min(plan.block_n, plan.chunk_n))
        lines = (height + parts * (self.halo + 1)) * plan.split_m
        elements = lines * multiple(width, lanes) * self.copies * channels
        return int(elements * costs[min(step, 3) - 1])


def shifts_of(
    k: Number, taps: Number, window: tuple[Number, Number], step: Number, dilation: Number,
    out: tuple[Number, Number], images: Number, tiling: Tiling, itemsize: int,
) -> Shifts:
    """`k` = (channel, tap); the step and dilation are those from line to line."""
    (height, width), lanes, (lines, length) = window, tiling.lanes(itemsize), out
    parts = most(quotient_up(k, tiling.block_k), 1)
    channels = most(quotient_up(quotient_up(k, parts), taps), 1)
    span = (height - 1) * dilation
    copies, halo = least(step, span + 1) * width, span // step
    beside = (halo + 2) * length  # an image's first and last line may be there in part
    padded, columns = multiple(lines * length, lanes), tiling.columns(itemsize)
    room = tiling.pack_bytes // itemsize // most(channels * copies, 1)
    some = most(room - beside * 2, 0) * padded // most(padded + beside, 1) // columns
    some = least(most(some, 1), most(quotient_up(images * padded, columns), 1)) * columns
    parts = some // most(padded, 1) + 2  # images that columns are of
    copied = (some // most(length, 1) + parts * (halo + 2)) * length
    phase = multiple(copied + lanes, 2 * lanes) + lanes  # no power of two
    masks = multiple(width * quotient_up(length, lanes) * MASK_BYTES, ALIGN)
    elements = channels * copies * phase + 2 * lanes
    scratch = multiple(masks + elements * itemsize, ALIGN)
    return Shifts(channels, some, copies, phase, masks, scratch, halo)
