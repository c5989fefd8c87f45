"""`spans_of(template, machine)`: a convolution of each channel by itself, line by line.

A tile's positions are neighbours in one line of the output, so that windows beside each other share
what they read: each column of the image is read once per line of the window, and multiplied by the
weights of all taps that meet it. Taps beside the image are left out of the code.
"""

from __future__ import annotations

from ..dim import evaluate, product
from ..machine import Machine
from ..record import record
from .blocking import Number, least, most, quotient_up
from .templates import Convolution
from .templates.operand import panels_of_weights

KERNELS = 6  # for one convolution, at most: more edges are read through tables of addresses


@record
class Span:
    """Tiles of a line that are alike, beside each other: how many, where the first begins, the
    positions of each, and how many of the columns that it reads are before and behind the image."""

    count: int
    first: int
    rows: int
    low: int
    high: int


@record
class Lines:
    """How lines are cut into chunks."""

    units: Number  # lines of all images
    chunk: Number
    chunks: Number


def spans_of(c: Convolution, machine: Machine) -> tuple[Span, ...]:
    """A line's tiles; none where the convolution does not go by lines. Tiles of a line are as equal
    as can be: their sums, the weights of a line's taps and a column fill the registers."""
    g, tiling = c.geometry, machine.tiling
    if tiling is None or g.groups == 1 or g.groups != g.in_channels != g.out_channels:
        return ()
    width, out, taps = g.input[-1], g.output[-1], g.window[-1]
    if not all(isinstance(size, int) for size in (*g.input, *g.output)) or taps == 1:
        return ()
    assert isinstance(width, int) and isinstance(out, int)
    vectors = (panels_of_weights(c.right.index)[0] or 1) // tiling.lanes(c.acc_dtype.itemsize)
    registers = (tiling.rows + 1) * tiling.vectors - taps
    limit = min(registers // max(vectors, 1), 2 * tiling.rows)
    if limit < 2:
        return ()
    tiles = -(-out // limit)
    rows = -(-out // tiles)
    larger = out - tiles * (rows - 1)  # tiles of so many rows; the others have one less
    spans: list[Span] = []
    first = 0
    for tile in range(tiles):
        height = rows if tile < larger else rows - 1
        column = first * g.stride[-1] - g.pad_low[-1]
        reach = (height - 1) * g.stride[-1] + (taps - 1) * g.dilation[-1] + 1
        low, high = min(max(0, -column), reach), min(max(0, column + reach - width), reach)
        last = spans[-1] if spans else None
        if last is not None and (last.rows, last.low, last.high) == (height, low, high):
            spans[-1] = Span(last.count + 1, last.first, height, low, high)
        else:
            spans.append(Span(1, first, height, low, high))
        first += height
    return tuple(spans) if len({(s.rows, s.low, s.high) for s in spans}) <= KERNELS else ()


def lines_of(c: Convolution, images: Number, machine: Machine) -> Lines:
    """Of a convolution that goes by lines."""
    g = c.geometry
    lines, line = (evaluate(product(sizes), {}) for sizes in (g.output[:-1], g.output[-1:]))
    work = 2 * line * evaluate(product(g.window), {}) * g.out_channels
    units = images * lines
    enough, shared = -(-machine.template_flops // work), quotient_up(units, machine.template_chunks)
    chunk = least(most(shared, enough), most(units, 1))
    return Lines(units, chunk, quotient_up(units, chunk))
