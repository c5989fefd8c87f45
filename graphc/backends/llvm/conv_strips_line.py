"""What convolutions share whose tiles are neighbours in a line (`conv_strips_tile.py`): a request,
a shape in words, and the tiles of a line.

    @<name>(request, x, lines, w, to, more, ahead, apart)   what `lines` of the window add to a
                                                             line's sums
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence

from graphc.backends.llvm.conv_geometry import Words
from graphc.backends.llvm.conv_strips_tile import (
    TYPES,
    Shape,
    Tiles,
    runs_of,
    tile_kind,
    tile_symbol,
)
from graphc.backends.llvm.gemm_plan import ceil_div, clamp
from graphc.backends.llvm.microkernel import Tile, emit_table
from graphc.backends.llvm.text import Function, Module, Value
from graphc.ir.kernel.plan_spans import Span


class Strips(enum.IntEnum):
    """A request. By strips the left operand is the weights, and the right one images; by lines of
    what has its channels last it is the other way round."""

    LEFT = 0
    RIGHT = enum.auto()
    ARGUMENTS = enum.auto()  # of the epilogue
    EPILOGUE = enum.auto()
    MEMORY = enum.auto()  # scratch: the panels of weights, and that of chunks
    WORKERS = enum.auto()
    SHAPE = enum.auto()
    KERNELS = enum.auto()  # a tile for each span
    SLOTS = enum.auto()  # the driver's: a descriptor, of which take_slot asks what is filled in
    # of what has its channels last
    UNITS = enum.auto()  # lines of all images,
    CHUNK = enum.auto()  # and of a chunk
    CHUNKS = enum.auto()  # of a panel


def tile_kinds(spans: Sequence[Span], vectors: int, asks: bool = False) -> list[str]:
    """Kinds of the libraries of a line's tiles."""
    kinds = (tile_kind(span.rows, vectors, runs_of(span)[0], asks) for span in spans)
    return list(dict.fromkeys(kinds))


def emit_shape(
    module: Module, tile: Tile, symbol: str, fields: Mapping[Shape, int], spans: Sequence[Span],
    asks: bool = False,
) -> tuple[str, str]:
    """The words of a shape (those that are not given are 0), and a tile for each of its spans."""
    runs = [runs_of(span) for span in spans]
    most = max(len(found) for _, found in runs)
    words: list[int] = []
    for span, (_, found) in zip(spans, runs, strict=True):
        padded = (*found, *[(0, 0)] * (most - len(found)))
        words += [span.count, span.first, span.rows, *(x for run in padded for x in run)]
    shape = {
        **fields, Shape.SPANS: len(spans), Shape.SPAN_WORDS: len(words) // len(spans),
    }
    words = [*(shape.get(field, 0) for field in Shape if field < Shape.FIRST_SPAN), *words]
    name = f"@{symbol}.shape"
    text = ", ".join(f"i64 {word}" for word in words)
    module.globals.append(f"{name} = internal constant [{len(words)} x i64] [{text}]")
    kernels = [
        tile_symbol(tile, span.rows, fields[Shape.VECTORS], cuts, asks)
        for span, (cuts, _) in zip(spans, runs, strict=True)
    ]
    for kernel in kernels:
        module.declare(f"declare void {kernel}({TYPES})")
    emit_table(module, f"@{symbol}.tiles", kernels, "internal")
    return name, f"@{symbol}.tiles"


def emit_line(module: Module, tile: Tile, symbol: str) -> None:
    """A line's tiles, span by span. Each asks for the bytes at `ahead` that are its positions', of
    which there are `apart` for each."""
    f = module.function(
        f"void {symbol}(ptr noalias readonly %request, ptr %x, i64 %lines, ptr %w, ptr %to, "
        "i64 %more, ptr %ahead, i64 %apart)", "internal", "nounwind",
    )
    r = Words(f, "%request")
    s = Words(f, r.read_pointer(Strips.SHAPE))
    kernels = r.read_pointer(Strips.KERNELS)
    step, low, pixel, size = (
        s.read(field) for field in (
            Shape.STEP_WIDTH, Shape.LOW_WIDTH, Shape.PIXEL, Shape.SPAN_WORDS
        )
    )
    columns = f.mul(s.read(Shape.VECTORS), tile.lanes)
    steps = f.mul(f.mul("%lines", s.read(Shape.WINDOW_WIDTH)), s.read(Shape.DEPTH))
    # the first tiles are the highest
    highest = Words(f, s.place(Shape.FIRST_SPAN)).read(Tiles.ROWS)
    ahead_step = ceil_div(f, f.mul(highest, "%apart"), f.smax(steps, 1))
    with f.loop(0, s.read(Shape.SPANS)) as index:
        span = Words(f, f.gep(s.place(Shape.FIRST_SPAN), f.mul(index, size), "i64"))
        kernel = f.load(f.gep(kernels, index, "ptr"), "ptr", 8)
        runs = span.place(Tiles.RUNS)
        rows, first = span.read(Tiles.ROWS), span.read(Tiles.FIRST)
        with f.loop(0, span.read(Tiles.COUNT)) as number:
            position = f.add(f.mul(number, rows), first)
            at = f.mul(f.sub(f.mul(position, step), low), pixel)
            # not inbounds: the first taps may be beside the image
            x = f.let(f"getelementptr {tile.element}, ptr %x, i64 {at}")
            to = f.gep("%to", f.mul(position, columns), tile.element)
            ahead = f.let(f"getelementptr i8, ptr %ahead, i64 {f.mul(position, '%apart')}")
            f.call(
                "void", kernel, f"ptr {s.pointer}", f"ptr {x}", "i64 %lines", f"ptr {runs}",
                "ptr %w", f"ptr {to}", "i64 %more", f"ptr {ahead}", f"i64 {ahead_step}",
            )
    f.ret()


def seen_lines(
    f: Function, y: Value, height: Value, dilation: Value, taps: tuple[Value, Value]
) -> tuple[Value, Value]:
    """Those of some lines of the window that are in the image, where the first one is at y."""
    low = clamp(f, ceil_div(f, f.sub(0, y), dilation), *taps)
    return low, clamp(f, ceil_div(f, f.sub(height, y), dilation), low, taps[1])
