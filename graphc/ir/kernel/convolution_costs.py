"""What it costs a convolution to read positions from a copy, packed or as they lie, or packed from
the input: the rules of plan_convolution and of its driver (backends/llvm/conv_direct.py)."""

from __future__ import annotations

from typing import NamedTuple

from ..machine import Tiling
from .blocking import Condition, Number, choose, equal, least, multiple

# Cycles that packing costs per register of a line, against one per row of the left operand for the
# product, by the step along it (_by_step); packing from a copy, per register, and for each line
# that ends in it; moving lines together, per register of sums.
PACK_COSTS = 10, 14, 45
PIECE_COST, PIECE_END_COST = 5, 2
# A copy's, per register, by the step; where memory gives and takes it, besides; and per line.
COPY_COSTS, COPY_FAR_COST, COPY_LINE_COST = (6, 12, 100), 32, 20
TRANSPOSE_COST = 14
LINES_COST = 6


class Costs(NamedTuple):
    """Of a convolution's positions: read from a copy, in vain ones included (`windows`), packed
    from it (`pieces`), or packed from the input (`packed`)."""

    windows: Number
    pieces: Number
    packed: Number

    def copies(self) -> Condition:
        """Whether a copy is worth it."""
        return least(self.windows, self.pieces) < self.packed

    def reads(self) -> Condition:
        """Whether it is read where it lies then."""
        return self.windows < self.pieces


def costs_of(
    m: Number, k: Number, padded: Number, plane: tuple[Number, Number], taps: Number,
    out: tuple[Number, Number], step: Number, planes: Number, tiling: Tiling, itemsize: int,
) -> Costs:
    """`padded` positions of an image in a copy, those in vain included, against lines of them,
    `out` many and long, which are `step` apart; `plane`: lines and elements of a copied one, of
    which there are `planes` in all."""
    (lines, elements), (height, width), lanes = plane, out, tiling.lanes(itemsize)
    positions = height * width
    steps = k * (5 + tiling.across) // 5 if tiling.across else k
    far = planes * elements * itemsize > tiling.in_place_bytes
    copy = _by_step(step, COPY_COSTS) + choose(far, COPY_FAR_COST, 0)
    copying = (elements * copy + lines * (COPY_LINE_COST * lanes)) * (k // taps)
    piece = positions * PIECE_COST + height * (PIECE_END_COST * lanes)
    pack = height * multiple(width, lanes) * _by_step(step, PACK_COSTS)
    return Costs(
        m * padded * (steps + LINES_COST) + copying, (m * positions + piece) * k + copying,
        (m * positions + pack) * k,
    )


def _by_step(step: Number, costs: tuple[int, int, int]) -> Number:
    """By the step along a line: of neighbours, of every second element, of further ones."""
    return choose(equal(step, 1), costs[0], choose(equal(step, 2), *costs[1:]))


def reads_lines(
    m: Number, padded: Number, lines: Number, positions: Number, phases: Number, taps: Number
) -> Condition:
    """Whether lines of a copy, dotted with those of the left operand, cost less than packed taps;
    `padded` is the length of a line in whole registers, `phases` the elements of a plane that is
    copied in several, else 0."""
    direct = m * padded * lines * taps * 9 + phases * COPY_COSTS[1] * 8
    return direct < (m + TRANSPOSE_COST) * positions * taps * 8
