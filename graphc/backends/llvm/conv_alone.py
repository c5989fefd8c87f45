"""Convolutions of each channel by itself, line by line: the rule is in `ir/kernel/plan_alone.py`.

    @<kernel>.lines(request, chunk)    some lines of the output
    @graphc_line_<shape>_<acc>         the sums of a tile: neighbours in a line, by channels

Lines of the window that are in the image have an entry in a table: the address of the image's
line, and how far into a panel the weights of its taps are.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence

from graphc.backends.llvm.conv_geometry import Words
from graphc.backends.llvm.gemm_arguments import Arguments
from graphc.backends.llvm.gemm_descriptor import ENTRY
from graphc.backends.llvm.gemm_plan import Number, value_of
from graphc.backends.llvm.gemm_stages import run_symbol
from graphc.backends.llvm.gemm_store import epilogue_pointers
from graphc.backends.llvm.microkernel import Tile
from graphc.backends.llvm.text import Function, Module, Value
from graphc.ir.dim import Size
from graphc.ir.kernel import Convolution, Kernel
from graphc.ir.kernel.plan_alone import Span, lines_of, spans_of
from graphc.ir.kernel.templates.operand import panels_of_weights

PARAMETERS = (
    "ptr noalias readonly %table, i64 %entries, i64 %shift, i64 %apart, "
    "ptr noalias readonly %w, ptr noalias %to"
)
TYPES = "ptr, i64, i64, i64, ptr, ptr"


class _Lines(enum.IntEnum):
    """The request."""

    LEFT = 0
    RIGHT = enum.auto()
    ARGUMENTS = enum.auto()  # of the epilogue
    UNITS = enum.auto()  # lines of all images
    CHUNK = enum.auto()


def line_kernels(c: Convolution, tile: Tile) -> tuple[tuple[int, ...], ...]:
    """The tiles that a convolution is linked with, the arguments of `emit_line` each; none where it
    does not go by lines."""
    return tuple(dict.fromkeys(_shape(c, tile, span) for span in spans_of(c, tile.machine)))


def _shape(c: Convolution, tile: Tile, span: Span) -> tuple[int, ...]:
    g, columns = c.geometry, panels_of_weights(c.right.index)[0]
    return (
        span.rows, columns // tile.lanes, g.window[-1], g.stride[-1], g.dilation[-1],
        span.low, span.high,
    )


def _symbol(tile: Tile, shape: tuple[int, ...]) -> str:
    return f"@graphc_line_{'_'.join(map(str, shape))}_{tile.name}"


def emit_line(module: Module, tile: Tile, *shape: int) -> None:
    """Defines void (table, entries, shift, apart, w, to): the sums of so many rows, registers of
    channels each, side by side. `shift`: bytes from an image's line to the first column, also
    where it is before the line; `apart`: from column to column."""
    rows, vectors, taps, step, dilation, low, high = shape
    f = module.function(f"void {_symbol(tile, shape)}({PARAMETERS})")
    reach = (rows - 1) * step + (taps - 1) * dilation + 1
    meets: dict[int, list[tuple[int, int]]] = {}
    for row in range(rows):
        for tap in range(taps):
            column = row * step + tap * dilation
            if low <= column < reach - high:
                meets.setdefault(column, []).append((row, tap))
    offsets = {column: f.add("%shift", f.mul("%apart", column)) for column in sorted(meets)}
    zeros = [(tile.vector, tile.zero())] * (rows * vectors)
    lines = f.carry_loop(0, "%entries", 1, zeros)
    entry = f.gep("%table", f.mul(lines.index, 2), "i64")
    line = f.load(entry, "ptr", 8)
    weights = f.gep("%w", f.load(f.gep(entry, 1, "i64"), "i64", 8), "i8")
    sums = list(lines.values)
    for v in range(vectors):
        of_taps = [
            f.load(f.gep(weights, (tap * vectors + v) * tile.lanes, tile.element), tile.vector,
                   tile.bytes)
            for tap in range(taps)
        ]
        for column, offset in offsets.items():
            at = f.gep(f.gep(line, offset, "i8"), v * tile.lanes, tile.element)
            value = f.load(at, tile.vector, tile.bytes)
            for row, tap in meets[column]:
                place = row * vectors + v
                sums[place] = tile.multiply_add(f, value, of_taps[tap], sums[place])
    for index, total in enumerate(lines.close(sums)):
        f.store(total, tile.vector, f.gep("%to", index * tile.lanes, tile.element), tile.bytes)
    f.ret()


def emit_lines_kernel(
    module: Module, kernel: Kernel, c: Convolution, tile: Tile, symbol: str
) -> None:
    """Defines void @symbol(ptr %args, ptr %status)."""
    g = c.geometry
    f = module.function(f"void @{symbol}(ptr %args, ptr %status)", "", ENTRY)
    arguments = Arguments(f, kernel)
    request = Words(f, f.alloca("i64", len(_Lines)))
    epilogue, epilogue_arguments = epilogue_pointers(f, kernel, tile, symbol, arguments)
    request.write_pointer(_Lines.LEFT, arguments.buffer(c.left.buffer))
    request.write_pointer(_Lines.RIGHT, arguments.buffer(c.right.buffer))
    request.write_pointer(_Lines.ARGUMENTS, epilogue_arguments)
    plan = lines_of(c, Number(f, arguments.size(g.batch)), tile.machine)
    request.write(_Lines.UNITS, value_of(plan.units))
    request.write(_Lines.CHUNK, value_of(plan.chunk))
    _emit_chunk(module, c, tile, symbol, epilogue)
    f.call(
        "void", run_symbol(module), f"ptr @{symbol}.lines", f"ptr {request.pointer}",
        f"i64 {value_of(plan.chunks)}",
    )
    f.ret()


def _three(sizes: Sequence[Size], missing: int) -> list[int]:
    return [*(missing,) * (3 - len(sizes)), *(size for size in sizes if isinstance(size, int))]


def _emit_chunk(module: Module, c: Convolution, tile: Tile, symbol: str, epilogue: str) -> None:
    g, columns = c.geometry, panels_of_weights(c.right.index)[0]
    sizes, out, window, steps = (
        _three(each, 1) for each in (g.input, g.output, g.window, g.stride)
    )
    pads, pixel_bytes = _three(g.pad_low, 0), g.in_channels * tile.bytes
    f = module.function(f"void @{symbol}.lines(ptr %request, i64 %chunk)", "internal")
    r = Words(f, "%request")
    left, right, given = (
        r.read_pointer(x) for x in (_Lines.LEFT, _Lines.RIGHT, _Lines.ARGUMENTS)
    )
    spans = spans_of(c, tile.machine)
    sums = f.alloca(tile.vector, max(span.rows for span in spans) * (columns // tile.lanes))
    table = f.alloca("i64", 2 * window[0] * window[1])
    chunk = r.read(_Lines.CHUNK)
    first = f.mul("%chunk", chunk)
    with f.loop(first, f.smin(f.add(first, chunk), r.read(_Lines.UNITS))) as unit:
        image, line = f.sdiv(unit, out[0] * out[1]), f.srem(unit, out[0] * out[1])
        base = f.gep(left, f.mul(image, math.prod(sizes) * pixel_bytes), "i8")
        at = f.sdiv(line, out[1]), f.srem(line, out[1])
        begins = [f.sub(f.mul(x, step), pad) for x, step, pad in zip(at, steps, pads, strict=False)]
        count = _emit_table(f, table, base, begins, c, columns * tile.bytes, pixel_bytes)
        m = f.mul(line, out[2])
        for span in spans:
            kernel = _symbol(tile, _shape(c, tile, span))
            module.declare(f"declare void {kernel}({TYPES})")
            with f.loop(0, span.count) as number, f.loop(0, g.out_channels, columns) as n:
                position = f.add(f.mul(number, span.rows), span.first)
                column = f.sub(f.mul(position, steps[2]), pads[2])
                shift = f.add(f.mul(column, pixel_bytes), f.mul(n, tile.bytes))
                weights = f.gep(right, f.mul(n, math.prod(window)), tile.element)
                f.call(
                    "void", kernel, f"ptr {table}", f"i64 {count}", f"i64 {shift}",
                    f"i64 {pixel_bytes}", f"ptr {weights}", f"ptr {sums}",
                )
                values = (image, f.add(m, position), span.rows, n, columns)
                f.call(
                    "void", epilogue, f"ptr {given}", *(f"i64 {v}" for v in values),
                    f"ptr {sums}", f"i64 {columns}",
                )
    f.ret()


def _emit_table(
    f: Function, table: str, base: str, begins: list[Value], c: Convolution, tap_bytes: int,
    pixel_bytes: int,
) -> str:
    """Fills the table, and says how many entries it has. `begins`: the plane and the line that the
    window begins at."""
    g = c.geometry
    sizes, window, dilations = (_three(x, 1) for x in (g.input, g.window, g.dilation))
    entries = f.alloca("i64")
    f.store(0, "i64", entries, 8)
    with f.loop(0, window[0]) as kd, f.loop(0, window[1]) as kh:
        plane, line = (
            f.add(begin, f.mul(k, dilation))
            for begin, k, dilation in zip(begins, (kd, kh), dilations, strict=False)
        )
        found = f.load(entries, "i64", 8)
        entry = f.gep(table, f.mul(found, 2), "i64")
        start = f.mul(f.add(f.mul(plane, sizes[1]), line), sizes[2] * pixel_bytes)
        # not inbounds: a line beside the image has an address, too
        f.store(f.let(f"getelementptr i8, ptr {base}, i64 {start}"), "ptr", entry, 8)
        tap = f.mul(f.add(f.mul(kd, window[1]), kh), window[2])
        f.store(f.mul(tap, tap_bytes), "i64", f.gep(entry, 1, "i64"), 8)
        inside = f.let(
            f"and i1 {f.cmp('ult', plane, str(sizes[0]))}, {f.cmp('ult', line, str(sizes[1]))}"
        )
        f.store(f.add(found, f.let(f"zext i1 {inside} to i64")), "i64", entries, 8)
    return f.load(entries, "i64", 8)
