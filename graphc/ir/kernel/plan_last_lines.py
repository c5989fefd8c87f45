"""`lines_of_last(template, machine)`: a convolution whose channels are last, line by line.

A tile's positions are neighbours in one line of the output, so that what they read is equally far
apart: nothing is looked up, and taps beside the image are left out for each position. Of weights
that do not stay in a cache, some lines of the window at a time meet all that a chunk has, whose
sums wait in its scratch.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..dim import Size, evaluate, is_static
from ..machine import Machine, Tiling
from ..record import record, replaced
from .blocking import ALIGN, MOST_SLOTS, Blocking, Number, least, most, multiple, quotient_up
from .plan_last import ANY, near_of, rows_of, runs_of, widest_of
from .plan_spans import KERNELS, Span, seen_by, spans_of_line
from .templates import Convolution
from .templates.operand import panels_of_weights
from .window import Triple, Window

WEIGHT_COST = 36  # of a register, in tenths of a multiplication
FEW_POSITIONS = 400  # of more, few tiles are in two lines


@record
class LastLines:
    """The window, whose `depth` words of each tap are a run; the tiles of a line; how many `panels`
    there are of so many `vectors`, and whether a chunk goes through all; lines of the window that
    are gone along at a time; of the output that all panels meet before others come, or ANY."""

    window: Window
    depth: int
    spans: tuple[Span, ...]
    panels: int
    vectors: int
    together: bool
    block: int
    near: int

    @property
    def taps(self) -> int:
        """Of the window, in runs."""
        return self.window.taps

    @property
    def waits(self) -> bool:
        """Whether sums wait for more lines of the window."""
        return self.block < self.window.size[1]


@record
class Chunks:
    """How lines are cut: those of all images, and of a chunk; chunks of a panel, or of all panels
    where one goes through them; bytes of sums that each has."""

    units: Number
    lines: Number
    chunks: Number
    sums: Number


def window_of(
    input: tuple[Size, ...], window: tuple[int, ...], output: tuple[Size, ...],
    stride: tuple[int, ...], pad_low: tuple[int, ...], dilation: tuple[int, ...],
) -> Window:
    """In three dims, of sizes that are known."""

    def triple(sizes: tuple[Size, ...], missing: int) -> Triple:
        numbers = (evaluate(size, {}) for size in sizes)
        depth, height, width = (*(missing,) * (3 - len(sizes)), *numbers)
        return depth, height, width

    return Window(
        triple(input, 1), triple(window, 1), triple(output, 1), triple(stride, 1),
        triple(pad_low, 0), triple(dilation, 1),
    )


def lines_of_last(c: Convolution, machine: Machine) -> LastLines | None:
    """How a convolution goes line by line; None where it does not: where tiles in order of
    positions, wherever lines end, take fewer steps."""
    g, tiling = c.geometry, machine.tiling
    if tiling is None or g.groups > 1 or len(g.window) > 2 or not is_static((*g.input, *g.output)):
        return None
    runs, (columns, _) = runs_of(c, machine), panels_of_weights(c.right.index)
    if runs.plain or not columns:
        return None
    itemsize = c.acc_dtype.itemsize

    w = window_of(g.input, runs.window, g.output, g.stride, g.pad_low, g.dilation)
    vectors = columns // tiling.lanes(itemsize)
    if min(*w.input, *w.out, *w.dilation) < 1:
        return None
    spans = spans_of_line(w, vectors, tiling)
    if len(spans) > KERNELS or _by_lines(w, vectors, tiling) > _by_tables(w, vectors, tiling):
        return None
    line = w.size[2] * runs.depth * columns * itemsize
    blocks = quotient_up(w.size[1], min(max(tiling.pack_bytes // line, 1), w.size[1]))
    block = quotient_up(w.size[1], blocks)
    near = ANY if block < w.size[1] else near_of(c, machine, w.out[2])
    return LastLines(
        w, runs.depth, spans, quotient_up(g.out_channels, columns), vectors, runs.together, block,
        near,
    )


def vectors_of(w: Window, registers: int, tiling: Tiling) -> int:
    """Registers of the panels that so many registers of channels are cut into."""

    def cost(vectors: int) -> int:
        ways = _by_lines(w, vectors, tiling), _by_tables(w, vectors, tiling)
        panels: int = quotient_up(registers, vectors)
        return min(ways) * panels

    widths = range(1, min(widest_of(tiling), max(registers, 1)) + 1)
    return min(widths, key=lambda vectors: (cost(vectors), -vectors))


def _by_lines(w: Window, vectors: int, tiling: Tiling) -> int:
    """Time that the steps of one channel take, of a panel and an image, line by line."""
    return seen_by(w, 1) * sum(
        span.count * _step(span.rows, vectors, tiling) for span in spans_of_line(w, vectors, tiling)
        for low, high in span.taps if high > low
    )


def _by_tables(w: Window, vectors: int, tiling: Tiling) -> int:
    """The same by tiles in order of positions (plan_last.py), which leave out lines of the window
    that none of their positions sees."""
    rows, (_, height, width) = rows_of(tiling, vectors), w.out
    if height * width > FEW_POSITIONS:
        seen: int = quotient_up(seen_by(w, 1) * width, rows)
        return seen * w.size[2] * _step(rows, vectors, tiling)
    seen = 0
    for first in range(0, height * width, rows):
        lines = range(first // width, (min(first + rows, height * width) - 1) // width + 1)
        seen += sum(
            any(0 <= y * w.step[1] - w.low[1] + tap * w.dilation[1] < w.input[1] for y in lines)
            for tap in range(w.size[1])
        )
    return seen * w.size[2] * _step(rows, vectors, tiling)


def _step(rows: int, vectors: int, tiling: Tiling) -> int:
    """Of a tile, in tenths of a register's multiplication: of its own, or as long as these wait for
    sums of before, or weights from the second cache."""
    weights = 0 if tiling.split else WEIGHT_COST * vectors * tiling.vector_bytes // 64
    return max(10 * rows * vectors, 10 * tiling.channels.sums, weights)


def chunks_of(
    plan: LastLines, images: Number, outputs: int, machine: Machine, itemsize: int
) -> Chunks:
    """`outputs`: all channels. Where sums wait, chunks are few, and as large as a cache has room
    for their sums: each reads the weights once."""
    assert machine.tiling is not None
    w, columns = plan.window, plan.vectors * machine.tiling.lanes(itemsize)
    work = 2 * plan.taps * plan.depth * w.out[2] * (outputs if plan.together else columns)
    units, panels = images * w.out[1], 1 if plan.together else plan.panels
    line = w.out[2] * columns * itemsize
    pieces = machine.parallelism if plan.waits else machine.template_chunks
    lines = most(quotient_up(units * panels, pieces), quotient_up(machine.template_flops, work))
    if plan.waits:
        lines = least(lines, max(machine.tiling.in_place_bytes // 4 // line, 1))
    lines = least(least(lines, plan.near), most(units, 1))
    sums = multiple(lines * line if plan.waits else line, ALIGN)
    return Chunks(units, lines, quotient_up(units, lines), sums)


def plan_last_lines(
    plan: LastLines, c: Convolution, machine: Machine, dims: Mapping[str, int]
) -> Blocking:
    """The chunks of one."""
    itemsize = c.acc_dtype.itemsize
    images = evaluate(c.geometry.batch, dims)
    found = chunks_of(plan, images, c.geometry.out_channels, machine, itemsize)
    chunks = found.chunks * (1 if plan.together else plan.panels)
    assert machine.tiling is not None
    nothing = Blocking(*(0 for _ in Blocking.__match_args__))
    return replaced(
        nothing, chunks=chunks, chunk_m=found.lines,
        chunk_n=plan.vectors * machine.tiling.lanes(itemsize), chunk_scratch=found.sums,
        slots=least(chunks, MOST_SLOTS),
    )
