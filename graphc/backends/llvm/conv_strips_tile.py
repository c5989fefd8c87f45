"""The register tiles of convolutions that go strip by strip: neighbours in a line by channels.

    @graphc_strip_<rows>x<vectors>_<cuts>_<acc>(shape, x, lines, runs, w, to, more, ahead, step)

A tile goes along runs of the taps of a line whose rows that meet a pixel are the same: which rows
these are is known (`cuts`), how many taps such a run has is not, so that windows share tiles.
Where `more` is not 0 the sums are added to what is there. In one that asks each step asks memory
for what lies at `ahead`, which `step` bytes are then added to (conv_ask.py).
"""

from __future__ import annotations

import enum
import functools

from graphc.backends.llvm.conv_ask import ask
from graphc.backends.llvm.conv_geometry import Words
from graphc.backends.llvm.conv_steps import step_loop, steps_of
from graphc.backends.llvm.microkernel import Tile
from graphc.backends.llvm.text import Function, Module, Value
from graphc.ir.kernel.plan_spans import Span

Cuts = tuple[tuple[int, int], ...]  # the rows of each run, from and to
TYPES = "ptr, ptr, i64, ptr, ptr, ptr, i64, ptr, i64"


class Shape(enum.IntEnum):
    """What a kernel says of its convolution, in words. Distances are in elements of words."""

    SPANS = 0
    SPAN_WORDS = enum.auto()
    CHUNKS = enum.auto()
    WEIGHT_CHUNKS = enum.auto()  # a panel each
    GROUPS = enum.auto()
    CHANNELS = enum.auto()  # of a group
    OUTPUTS = enum.auto()  # of a group
    DEPTH = enum.auto()  # words of a tap
    TAPS = enum.auto()
    WEIGHT_ROW = enum.auto()  # how far apart weights are from output to output,
    WEIGHT_CHANNEL = enum.auto()  # and from channel to channel
    WEIGHT_STEPS = enum.auto()  # of an output that are neighbours: of all channels, or of a tap's
    TURNED = enum.auto()  # 1: the last tap of the weights comes first
    PANELS = enum.auto()  # of a group
    PANEL = enum.auto()  # elements of one,
    VECTORS = enum.auto()  # and registers of one step
    HEIGHT = enum.auto()
    WIDTH = enum.auto()
    OUT_HEIGHT = enum.auto()
    OUT_WIDTH = enum.auto()
    WINDOW = enum.auto()  # its lines
    WINDOW_WIDTH = enum.auto()
    STEP = enum.auto()
    STEP_WIDTH = enum.auto()
    LOW = enum.auto()
    LOW_WIDTH = enum.auto()
    DILATION = enum.auto()
    LINES = enum.auto()  # of the output in a strip
    STRIPS = enum.auto()  # of an image
    WEIGHT_BYTES = enum.auto()
    SCRATCH = enum.auto()  # bytes of a chunk's,
    COPIED = enum.auto()  # of its copy,
    SUMS = enum.auto()  # of a panel's sums
    SLOTS = enum.auto()
    PIXEL = enum.auto()
    PITCH = enum.auto()  # of turned sums
    NEXT_ROW = enum.auto()  # between what neighbours see,
    NEXT_TAP = enum.auto()  # what a tap and the next one see,
    NEXT_LINE = enum.auto()  # and what lines of taps see
    BLOCK = enum.auto()  # lines of taps that are gone along at a time
    TOGETHER = enum.auto()  # 1: a chunk goes through all panels
    TURNS = enum.auto()  # 1: all panels meet a chunk's lines, then others
    FIRST_SPAN = enum.auto()  # the first of the words of spans


class Tiles(enum.IntEnum):
    """The words of a span of tiles; those of its runs follow, two each: the first tap, how many."""

    COUNT = 0
    FIRST = enum.auto()
    ROWS = enum.auto()
    RUNS = enum.auto()


def runs_of(span: Span) -> tuple[Cuts, tuple[tuple[int, int], ...]]:
    """The cuts of the tile that a span has, and for each of them its first tap, and how many.
    Most have those of tiles that meet the padding with one row on either side."""
    rows, runs = span.rows, list[tuple[tuple[int, int], list[int]]]()
    for tap, (low, high) in enumerate(span.taps):
        if low == high:
            continue
        if runs and runs[-1][0] == (low, high) and sum(runs[-1][1]) == tap:
            runs[-1][1][1] += 1
        else:
            runs.append(((low, high), [tap, 1]))
    usual = ((1, rows), (0, rows), (0, rows - 1)) if rows > 1 else ((0, 1),)
    cuts = tuple(cut for cut, _ in runs)
    if cuts == tuple(cut for cut in usual if cut in cuts):
        found = {cut: (first, count) for cut, (first, count) in runs}
        return usual, tuple(found.get(cut, (0, 0)) for cut in usual)
    return cuts, tuple((first, count) for _, (first, count) in runs)


def tile_kind(rows: int, vectors: int, cuts: Cuts, asks: bool) -> str:
    """The kind of the library that has such a tile."""
    sizes = ".".join(map(str, (rows, vectors, *(x for cut in cuts for x in cut))))
    return f"strip_tile{'_asking' * asks}.{sizes}"


def tile_symbol(tile: Tile, rows: int, vectors: int, cuts: Cuts, asks: bool) -> str:
    """The tile."""
    each = "_".join(f"{low}to{high}" for low, high in cuts)
    return f"@graphc_strip{'_asking' * asks}_{rows}x{vectors}_{each}_{tile.name}"


def emit_strip_tile(
    module: Module, tile: Tile, asks: bool, rows: int, vectors: int, *places: int
) -> None:
    """Defines it: `places` are those of its cuts."""
    cuts = tuple(zip(places[::2], places[1::2], strict=True))
    f = module.function(
        f"void {tile_symbol(tile, rows, vectors, cuts, asks)}(ptr noalias readonly %shape, "
        "ptr noalias readonly %x, i64 %lines, ptr noalias readonly %runs, "
        "ptr noalias readonly %w, ptr noalias %to, i64 %more, ptr %ahead, i64 %ahead_step)"
    )
    r, columns = Words(f, "%shape"), vectors * tile.lanes
    depth, window, next_row, next_tap, next_line = (
        r.read(field) for field in (
            Shape.DEPTH, Shape.WINDOW_WIDTH, Shape.NEXT_ROW, Shape.NEXT_TAP, Shape.NEXT_LINE
        )
    )
    of_tap = f.mul(depth, columns)
    # how much further a row is than the first: so often an odd number of rows, in a register
    odd = [f.opaque(f.mul(next_row, n * tile.bytes)) for n in range(1, rows, 2)]
    apart: list[tuple[int, Value]] = [(1, 0)]
    apart += [(n & -n, odd[n // (n & -n) // 2]) for n in range(1, rows)]
    goals = [f.gep("%to", at * tile.lanes, tile.element) for at in range(rows * vectors)]
    asked = [("ptr", "%ahead")] * asks
    lines = f.carry_loop(0, "%lines", 1, [*asked, *_begun(f, tile, goals)])
    ahead, sums = lines.values[:asks], lines.values[asks:]
    line = f.let(f"getelementptr {tile.element}, ptr %x, i64 {f.mul(lines.index, next_line)}")
    of_line = f.gep("%w", f.mul(f.mul(lines.index, window), of_tap), tile.element)
    for number, (low, high) in enumerate(cuts):
        first, count = (
            f.load(f.gep("%runs", 2 * number + at, "i64"), "i64", 8) for at in range(2)
        )
        some = slice(low * vectors, high * vectors)
        taps = f.carry_loop(
            0, count, 1,
            [*(("ptr", at) for at in ahead), *((tile.vector, s) for s in sums[some])],
        )
        tap = f.add(first, taps.index)
        shift = f.add(f.mul(tap, next_tap), f.mul(low, next_row))
        place = f.frozen(f.let(f"getelementptr {tile.element}, ptr {line}, i64 {shift}"))
        weights = f.frozen(f.gep(of_line, f.mul(tap, of_tap), tile.element))
        begun = [
            ("ptr", place), ("ptr", weights), *(("ptr", at) for at in taps.values[:asks]),
            *((tile.vector, s) for s in taps.values[asks:]),
        ]
        step = functools.partial(_step, f, tile, (vectors, asks), apart[: high - low])
        onward = functools.partial(_onward, f, tile, columns)
        # few tiles are at an end of a line
        several = steps_of(tile, rows * vectors) if (low, high) == (0, rows) else 1
        after = step_loop(f, several, depth, begun, step, onward)
        found = taps.close(after[2:])
        ahead, sums[some] = found[:asks], found[asks:]
    for goal, total in zip(goals, lines.close([*ahead, *sums])[asks:], strict=True):
        f.store(total, tile.vector, goal, tile.bytes)
    f.ret()


def _step(
    f: Function, tile: Tile, shape: tuple[int, bool], apart: list[tuple[int, Value]],
    values: list[str], _: Value, number: int, asked: int,
) -> list[str]:
    """A word of every row times its weights. `values`: where these are, what is asked for, if
    something is, and the sums."""
    vectors, asks = shape
    x, w, *totals = values
    ahead = [ask(f, at, asked) for at in totals[:asks]]
    totals, pixel = totals[asks:], x if number else f.frozen(x)
    loaded = [
        f.load(
            f.gep(w, (number * vectors + v) * tile.lanes, tile.element), tile.vector, tile.bytes
        )
        for v in range(vectors)
    ]
    new = []
    for row, (times, further) in enumerate(apart):
        at = f.gep(f.gep(pixel, further, f"[{times} x i8]"), number, tile.element)
        value = f.load(at, tile.element, tile.value_bytes)
        scalar = tile.splat(f, value)
        new += [
            tile.multiply_add(f, scalar, column, totals[row * vectors + v])
            for v, column in enumerate(loaded)
        ]
    return [pixel, w, *ahead, *new]


def _onward(f: Function, tile: Tile, columns: int, values: list[str], count: int) -> list[str]:
    x, w, *others = values
    return [f.gep(x, count, tile.element), f.gep(w, count * columns, tile.element), *others]


def _begun(f: Function, tile: Tile, goals: list[str]) -> list[tuple[str, str]]:
    """What sums begin with: zeros, or what is there."""
    before, there, begun = f.current, f.label("there"), f.label("begun")
    f.cond_br(f.cmp("ne", "%more", 0), there, begun)
    f.block(there)
    found = [f.load(goal, tile.vector, tile.bytes) for goal in goals]
    f.br(begun)
    f.block(begun)
    return [
        (tile.vector, f.phi(tile.vector, ((tile.zero(), before), (value, there))))
        for value in found
    ]
