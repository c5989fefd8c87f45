"""Convolutions whose channels are last, line by line: the rule is `ir/kernel/plan_last_lines.py`.

    @graphc_conv_last_lines_<acc>(request)         all of it; a shape in words, as strips have it
    @graphc_last_lines_chunk_<acc>(request, chunk) some lines, of one panel or of all
    @graphc_last_lines_line_<acc>                  the tiles of a line (conv_strips_line.py)
"""

from __future__ import annotations

from graphc.backends.llvm.conv_ask import asks_ahead
from graphc.backends.llvm.conv_geometry import Words
from graphc.backends.llvm.conv_last import panel_and_part
from graphc.backends.llvm.conv_strips_line import (
    Strips,
    emit_line,
    emit_shape,
    seen_lines,
    tile_kinds,
)
from graphc.backends.llvm.conv_strips_tile import Shape
from graphc.backends.llvm.gemm_arguments import Arguments
from graphc.backends.llvm.gemm_descriptor import ENTRY, WORDS, Descriptor, Word
from graphc.backends.llvm.gemm_kernel import SCRATCH, WORKERS
from graphc.backends.llvm.gemm_plan import Number, ceil_div, choose, value_of
from graphc.backends.llvm.gemm_stages import give_slot, run_symbol, take_slot
from graphc.backends.llvm.gemm_store import epilogue_pointers
from graphc.backends.llvm.microkernel import Tile
from graphc.backends.llvm.text import Module, Value
from graphc.ir.kernel import Convolution, Kernel
from graphc.ir.kernel.blocking import MOST_SLOTS
from graphc.ir.kernel.plan_last import ANY
from graphc.ir.kernel.plan_last_lines import LastLines, chunks_of, lines_of_last
from graphc.ir.kernel.templates.operand import panels_of_weights


def last_lines_libraries(c: Convolution, tile: Tile) -> list[str]:
    """Kinds of libraries; none where it does not go line by line."""
    plan = lines_of_last(c, tile.machine)
    if plan is None:
        return []
    return ["conv_last_lines", *tile_kinds(plan.spans, plan.vectors, _asks(plan, tile))]


def _asks(plan: LastLines, tile: Tile) -> bool:
    """Whether tiles ask for the next weights: those of all panels do not stay in a cache."""
    return asks_ahead(tile) and not plan.together


def emit_last_lines(
    module: Module, kernel: Kernel, c: Convolution, tile: Tile, symbol: str, plan: LastLines
) -> None:
    """Defines void @symbol(ptr %args, ptr %status)."""
    f = module.function(f"void @{symbol}(ptr %args, ptr %status)", "", ENTRY)
    arguments = Arguments(f, kernel)
    request = Words(f, f.alloca("i64", len(Strips)))
    epilogue, epilogue_arguments = epilogue_pointers(f, kernel, tile, symbol, arguments)
    shape, tiles = _shape(module, c, tile, symbol, plan)
    for field, pointer in (
        (Strips.LEFT, arguments.buffer(c.left.buffer)),
        (Strips.RIGHT, arguments.buffer(c.right.buffer)),
        (Strips.EPILOGUE, epilogue), (Strips.ARGUMENTS, epilogue_arguments),
        (Strips.MEMORY, f.load(f.gep("%status", SCRATCH, "ptr"), "ptr", 8)),
        (Strips.SHAPE, shape), (Strips.KERNELS, tiles),
    ):
        request.write_pointer(field, pointer)
    request.write(Strips.WORKERS, f.load(f.gep("%status", WORKERS, "i64"), "i64", 8))
    images = Number(f, arguments.size(c.geometry.batch))
    found = chunks_of(plan, images, c.geometry.out_channels, tile.machine, tile.bytes)
    d = Descriptor(f, f.alloca("i64", WORDS))
    d.set_pointer(Word.MEMORY, request.read_pointer(Strips.MEMORY))
    chunks = f.mul(value_of(found.chunks), 1 if plan.together else plan.panels)
    words: dict[Word, Value] = {
        Word.CHUNKS_AT: 0, Word.CHUNK_SCRATCH: value_of(found.sums),
        Word.WORKERS: request.read(Strips.WORKERS), Word.SLOTS: f.smin(chunks, MOST_SLOTS),
    }
    for field_, number in words.items():
        d[field_] = number
    f.store(0, "i64", d.place(Word.BUSY), 8)
    request.write_pointer(Strips.SLOTS, d.pointer)
    for each, value in (
        (Strips.UNITS, found.units), (Strips.CHUNK, found.lines), (Strips.CHUNKS, found.chunks),
    ):
        request.write(each, value_of(value))
    module.declare(f"declare void {_symbol(tile)}(ptr, i64)")
    f.call("void", _symbol(tile), f"ptr {request.pointer}", f"i64 {chunks}")
    f.ret()


def _shape(
    module: Module, c: Convolution, tile: Tile, symbol: str, plan: LastLines
) -> tuple[str, str]:
    w, columns = plan.window, plan.vectors * tile.lanes
    pixel = c.geometry.in_channels // panels_of_weights(c.right.index)[1]
    fields = {
        Shape.OUTPUTS: c.geometry.out_channels, Shape.DEPTH: plan.depth, Shape.TAPS: plan.taps,
        Shape.PANELS: plan.panels, Shape.PANEL: plan.taps * plan.depth * columns,
        Shape.VECTORS: plan.vectors, Shape.HEIGHT: w.input[1], Shape.WIDTH: w.input[2],
        Shape.OUT_HEIGHT: w.out[1], Shape.OUT_WIDTH: w.out[2], Shape.WINDOW: w.size[1],
        Shape.WINDOW_WIDTH: w.size[2], Shape.STEP: w.step[1], Shape.STEP_WIDTH: w.step[2],
        Shape.LOW: w.low[1], Shape.LOW_WIDTH: w.low[2], Shape.DILATION: w.dilation[1],
        Shape.PIXEL: pixel, Shape.NEXT_ROW: w.step[2] * pixel,
        Shape.NEXT_TAP: w.dilation[2] * pixel,
        Shape.NEXT_LINE: w.dilation[1] * w.input[2] * pixel,
        Shape.BLOCK: plan.block, Shape.TOGETHER: int(plan.together),
        Shape.TURNS: int(plan.near < ANY),
    }
    return emit_shape(module, tile, symbol, fields, plan.spans, _asks(plan, tile))


def _symbol(tile: Tile) -> str:
    """void (request, chunks)."""
    return f"@graphc_conv_last_lines_{tile.name}"


def emit_last_lines_driver(module: Module, tile: Tile) -> None:
    """Defines it, and what it calls."""
    emit_line(module, tile, f"@graphc_last_lines_line_{tile.name}")
    _emit_chunk(module, tile)
    f = module.function(f"void {_symbol(tile)}(ptr %request, i64 %chunks)", "", ENTRY)
    f.call(
        "void", run_symbol(module), f"ptr @graphc_last_lines_chunk_{tile.name}", "ptr %request",
        "i64 %chunks",
    )
    f.ret()


def _emit_chunk(module: Module, tile: Tile) -> None:
    """Panel by panel; of each, as many lines of the window at a time as stay in a cache."""
    f = module.function(
        f"void @graphc_last_lines_chunk_{tile.name}(ptr noalias readonly %request, i64 %chunk)",
        "internal", ENTRY,
    )
    r = Words(f, "%request")
    s = Words(f, r.read_pointer(Strips.SHAPE))
    height, width, out_height, out_width, window, block, panels = (
        s.read(field) for field in (
            Shape.HEIGHT, Shape.WIDTH, Shape.OUT_HEIGHT, Shape.OUT_WIDTH, Shape.WINDOW,
            Shape.BLOCK, Shape.PANELS,
        )
    )
    columns, pixel = f.mul(s.read(Shape.VECTORS), tile.lanes), s.read(Shape.PIXEL)
    next_line = f.mul(f.mul(s.read(Shape.WINDOW_WIDTH), s.read(Shape.DEPTH)), columns)
    count, chunks = r.read(Strips.CHUNK), r.read(Strips.CHUNKS)
    turns = f.cmp("ne", s.read(Shape.TURNS), 0)
    panel, part = panel_and_part(f, turns, chunks, panels)
    together = f.cmp("ne", s.read(Shape.TOGETHER), 0)
    first = f.mul(part, count)
    last = f.smin(f.add(first, count), r.read(Strips.UNITS))
    slots = Descriptor(f, r.read_pointer(Strips.SLOTS))
    slot, sums = take_slot(slots)
    waits = f.cmp("slt", block, window)
    some_lines = f.let(f"or i1 {waits}, {turns}")
    line_sums = choose(f, waits, f.mul(out_width, columns), 0)
    given, epilogue = r.read_pointer(Strips.ARGUMENTS), r.read_pointer(Strips.EPILOGUE)
    with (
        f.loop(panel, choose(f, together, panels, f.add(panel, 1))) as each,
        f.loop(0, window, block) as tap,
    ):
        of_panel = f.gep(
            r.read_pointer(Strips.RIGHT), f.mul(each, s.read(Shape.PANEL)), tile.element
        )
        end, n = f.smin(f.add(tap, block), window), f.mul(each, columns)
        # what is multiplied next lies behind: a part for each position of the lines that meet this
        asked = f.gep(of_panel, f.mul(end, next_line), tile.element)
        of_block = f.mul(f.mul(f.sub(end, tap), next_line), tile.bytes)
        met = choose(f, some_lines, f.sub(last, first), r.read(Strips.UNITS))
        apart = choose(f, together, 0, ceil_div(f, of_block, f.smax(f.mul(met, out_width), 1)))
        with f.loop(first, last) as unit:
            image, line = f.sdiv(unit, out_height), f.srem(unit, out_height)
            y = f.sub(f.mul(line, s.read(Shape.STEP)), s.read(Shape.LOW))
            low, high = seen_lines(f, y, height, s.read(Shape.DILATION), (tap, end))
            at = f.add(f.mul(image, height), f.add(y, f.mul(low, s.read(Shape.DILATION))))
            at = f.mul(f.mul(at, width), pixel)
            # not inbounds: a line may see nothing of the image
            x = f.let(
                f"getelementptr {tile.element}, ptr {r.read_pointer(Strips.LEFT)}, i64 {at}"
            )
            w = f.gep(of_panel, f.mul(low, next_line), tile.element)
            to = f.gep(sums, f.mul(f.sub(unit, first), line_sums), tile.element)
            before = f.mul(f.mul(f.sub(unit, choose(f, some_lines, first, 0)), out_width), apart)
            ahead = f.let(f"getelementptr i8, ptr {asked}, i64 {before}")
            f.call(
                "void", f"@graphc_last_lines_line_{tile.name}", "ptr %request", f"ptr {x}",
                f"i64 {f.sub(high, low)}", f"ptr {w}", f"ptr {to}", f"i64 {tap}",
                f"ptr {ahead}", f"i64 {apart}",
            )
            with f.when(f.cmp("eq", end, window)):
                some = f.smin(columns, f.sub(s.read(Shape.OUTPUTS), n))
                values = (image, f.mul(line, out_width), out_width, n, some)
                f.call(
                    "void", epilogue, f"ptr {given}", *(f"i64 {v}" for v in values),
                    f"ptr {to}", f"i64 {columns}",
                )
    give_slot(slots, slot)
    f.ret()
