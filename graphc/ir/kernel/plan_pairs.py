"""A convolution whose words are pairs of values (see plan_convolution).

Read from a copy, they are pairs of channels, which lie in words there (an odd channel meets zeros);
the weights are copied then, too, as such words. Packed from the input, they are neighbours along
(channel, tap). Packed from a copy, they would gain nothing where the copy is not read in place.
"""

from __future__ import annotations

from ..machine import Tiling
from .blocking import Number, choose, clamp, equal, most, multiple, quotient_up

# Cycles per register, as in plan_convolution: of packing words from the input, by the step along a
# line; of the copy, by the step, where memory gives and takes it, and per line; of moving lines
# together, and of what the kernel's epilogue takes more then; of the copied weights.
PACK_COSTS = 9, 16, 60
COPY_COSTS, COPY_FAR_COST, COPY_LINE_COST = (8, 10, 120), 32, 20
LINES_COST = 12
WEIGHT_COST = 8
WORD_BYTES = 4
IN_CACHE = 2  # a copy has so much of a Tiling's in_place_bytes: one part in two


def images_together(images: Number, image_bytes: Number, tiling: Tiling) -> Number:
    """How many images one thread copies at a time: as many as stay in its caches till they are
    read, of which the last are what is left. Several threads copy all of them: each would wait for
    what others have read (Zen 4, 64 rows: one thread took 0.955 of the time, two 1.1)."""
    room = clamp(tiling.in_place_bytes // IN_CACHE // most(image_bytes, 1), 1, most(images, 1))
    return quotient_up(images, quotient_up(images, room))


def pair_steps(channels: Number, taps: Number) -> Number:
    """Of k, where words are pairs of channels."""
    return quotient_up(channels, 2) * taps


def pair_costs(
    m: Number, channels: Number, padded: Number, plane: tuple[Number, Number], taps: Number,
    out: tuple[Number, Number], step: Number, images: Number, planes: Number, tiling: Tiling,
) -> tuple[Number, Number]:
    """Of windows of a copy, and of packing them from the input, for one of so many images of
    `planes` pairs of channels in all: see convolution_costs.costs_of."""
    (lines, elements), (height, width), k = plane, out, pair_steps(channels, taps)
    lanes = tiling.lanes(WORD_BYTES)
    far = planes * elements * WORD_BYTES > tiling.in_place_bytes
    copy = _by_step(step, COPY_COSTS) + choose(far, COPY_FAR_COST, 0)
    copying = elements * copy + lines * (COPY_LINE_COST * lanes)
    weights = m * quotient_up(taps, lanes) * (WEIGHT_COST * lanes) // images
    copies = (copying + weights) * quotient_up(channels, 2)
    pack = height * multiple(width, lanes) * _by_step(step, PACK_COSTS)
    return (
        m * padded * (k + LINES_COST) + copies,
        (m * height * width + pack) * quotient_up(channels * taps, 2),
    )


def _by_step(step: Number, costs: tuple[int, int, int]) -> Number:
    """By the step along a line: of neighbours, of every second element, of further ones."""
    return choose(equal(step, 1), costs[0], choose(equal(step, 2), *costs[1:]))
