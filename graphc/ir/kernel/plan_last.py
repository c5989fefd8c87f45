"""`plan_last(template, machine, dims)`: a convolution whose channels are last in memory.

Its rows are positions, each of which reads a run of channels for each tap, through a pointer; its
columns are channels, whose weights lie in panels. So nothing is copied but a line of zeros, which
stands for what is beside the image. Taps at which a whole tile is beside it are left out.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..dim import evaluate, is_static, product
from ..machine import Machine, Tiling
from ..record import record, replaced
from .blocking import (
    ALIGN,
    MOST_SLOTS,
    POINTER_BYTES,
    Blocking,
    Condition,
    Number,
    least,
    most,
    multiple,
    quotient_up,
)
from .plan_alone import lines_of, spans_of
from .plan_spans import LEAST_SUMS
from .templates import Convolution
from .templates.operand import panels_of_weights

ANY = 1 << 40  # positions, tiles or lines: all
_SLACK = 0.35  # of a register, where a tile is at its highest: what a step costs besides


def widest_of(tiling: Tiling) -> int:
    """Registers of the widest panel: one more than a product's tile has, where that has few. Its
    sums, the weights of a step and an element still fill the registers."""
    return max(tiling.vectors, 3)


def rows_of(tiling: Tiling, vectors: int) -> int:
    """Positions of a tile whose panel has so many registers. Of one more, the sums would leave no
    register to an element: seven divide the usual planes, but then every step stores and loads sums
    (Zen 5 does 90% of the multiply-adds that it can, and 97% with six)."""
    return min(tiling.rows, tiling.rows * tiling.vectors // max(vectors, 1))


def panel_vectors(registers: int, tiling: Tiling) -> int:
    """Registers of the panels that so many registers of channels are cut into: the fewest steps,
    of which each costs something besides its multiplications."""

    def cost(width: int) -> float:
        """Of one step of all panels, for each position."""
        rows = rows_of(tiling, width)
        step = max(width, LEAST_SUMS / rows) + _SLACK * tiling.rows / rows
        return round(-(-registers // width) * step, 6)

    return min(range(1, widest_of(tiling) + 1), key=cost)


@record
class Positions:
    """How positions are cut. `table` (of pointers) in bytes, for each chunk at work."""

    tiles: Number  # of all images
    in_image: Number
    chunk: Number  # tiles of a chunk
    chunks: Number  # of a panel; of all panels, where one chunk does them all
    table: Number


def positions_of(
    images: Number, positions: Number, taps: Number, work: Number, panels: Number, rows: int,
    most_tiles: Number, machine: Machine,
) -> Positions:
    """`work`: floating-point operations of a position in one panel; `panels`: that chunks are
    multiplied by; `rows`: positions of a tile; `most_tiles`: of a chunk."""
    in_image = quotient_up(positions, rows)
    tiles = images * in_image
    enough = quotient_up(machine.template_flops, most(work * rows, 1))
    shared = quotient_up(tiles * panels, machine.template_chunks)
    chunk = least(least(most(enough, most(shared, 1)), most_tiles), most(tiles, 1))
    table = multiple(taps * ((rows + 1) * POINTER_BYTES), ALIGN)
    return Positions(tiles, in_image, chunk, quotient_up(tiles, chunk), table)


def by_channel(groups: Number, channels: Number) -> Condition:
    """Whether each channel is convolved by itself, so that channels are lanes."""
    single = channels == 1 if isinstance(channels, int) else channels.equals(1)
    return single & (groups > 1)


@record
class Runs:
    """A convolution as sums over runs of memory: `depth` words from each of `taps`, whose windows
    and pads are these."""

    window: tuple[int, ...]
    depth: int
    together: bool  # a chunk goes through all panels: their weights stay in a cache
    plain: bool  # a position reads its own pixel


def runs_of(c: Convolution, machine: Machine) -> Runs:
    """Taps beside each other are one run where no line of the window leaves the image."""
    g, tiling = c.geometry, machine.tiling
    assert tiling is not None
    columns, group = panels_of_weights(c.right.index)
    depth, window = g.in_channels // g.groups // group, g.window
    alone = by_channel(g.groups, g.in_channels // g.groups)
    width, out = g.input[-1], g.output[-1]
    if (
        not alone and g.pad_low[-1] == 0 and g.dilation[-1] == 1 and window[-1] > 1
        and isinstance(width, int) and isinstance(out, int)
        and (out - 1) * g.stride[-1] + window[-1] <= width
    ):
        depth, window = depth * window[-1], (*window[:-1], 1)
    taps = evaluate(product(window), {})
    size = taps * depth * multiple(g.out_channels, columns or 1)
    plain = (
        taps == 1 and set(g.stride) == {1} and set(g.pad_low) == {0}
        and depth * group == g.in_channels
    )
    together = bool(alone or size * c.acc_dtype.itemsize <= tiling.in_place_bytes // 4)
    return Runs(window, depth, together, plain and g.input == g.output)


def near_of(c: Convolution, machine: Machine, positions_each: int) -> int:
    """Tiles, or lines, of so many positions each that all panels meet one after the other, before
    others come: what those read stays in the second cache. ANY where a panel had better meet all.
    What is asked is how many bytes of an image and its weights come from behind that cache."""
    g, tiling = c.geometry, machine.tiling
    assert tiling is not None
    columns, runs = panels_of_weights(c.right.index)[0], runs_of(c, machine)
    if not tiling.channels.in_turn or not is_static((*g.input, *g.output)) or runs.together:
        return ANY
    itemsize, positions = c.acc_dtype.itemsize, evaluate(product(g.output), {})
    pixel = runs.depth * itemsize
    near = most(tiling.pack_bytes // 2 // pixel, 1)
    panels = quotient_up(g.out_channels, columns or 1)
    weights = evaluate(product(runs.window), {}) * pixel * panels * columns
    by_parts, by_panels = quotient_up(positions, near) * weights, panels * positions * pixel
    if positions * pixel <= tiling.pack_bytes or 2 * by_parts > by_panels:
        return ANY
    return int(most(near // positions_each, 1))


def zeros_of(channels: Number, depth: Number) -> Number:
    """Words of zeros that stand for a run beside the image: of a pixel at least, or of as many as
    it goes along."""
    return most(channels, depth)


def plan_last(c: Convolution, machine: Machine, dims: Mapping[str, int]) -> Blocking:
    """How one is tiled; all its sizes are known."""
    g, itemsize = c.geometry, c.acc_dtype.itemsize
    images = evaluate(g.batch, dims)
    nothing = Blocking(*(0 for _ in Blocking.__match_args__))
    if spans_of(c, machine):
        lines = lines_of(c, images, machine)
        return replaced(
            nothing, chunks=lines.chunks, chunk_m=lines.chunk,
            chunk_n=panels_of_weights(c.right.index)[0],
        )
    positions = evaluate(product(g.output), dims)
    runs = runs_of(c, machine)
    taps = evaluate(product(runs.window), {})
    columns, group = panels_of_weights(c.right.index)
    panels = quotient_up(g.out_channels, columns or 1)
    work = 2 * taps * runs.depth * (g.out_channels if runs.together else columns)
    assert machine.tiling is not None
    rows = rows_of(machine.tiling, columns // machine.tiling.lanes(itemsize))
    shared = 1 if runs.together else panels
    near = near_of(c, machine, rows)
    plan = positions_of(images, positions, taps, work, shared, rows, near, machine)
    zeros = zeros_of(g.in_channels // group, runs.depth) * itemsize
    chunks = plan.chunks * shared
    return replaced(
        nothing, chunks=chunks, chunk_m=plan.chunk, chunk_n=columns,
        chunks_at=multiple(zeros, ALIGN), chunk_scratch=plan.table,
        slots=min(chunks, MOST_SLOTS),
    )
