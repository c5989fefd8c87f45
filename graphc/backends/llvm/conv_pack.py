"""Packing of windows: im2col done on the fly, a vector of output positions at a time.

Each for one source dtype and accumulator:
    @graphc_pack_window_rows_<src>_<acc>     right operand, k = (channel, tap), n = position
    @graphc_pack_window_columns_<src>_<acc>  right operand, k = position, n = (channel, tap)
    @graphc_pack_weights_<src>_<acc>         left operand, m = row, k = (channel, tap)

The first two share what makes rows of the window, a library by itself.
"""

from graphc.backends.llvm.conv_geometry import DEPTH, HEIGHT, WIDTH, Window, Words
from graphc.backends.llvm.conv_tables import (
    TABLES_TYPES,
    emit_tables,
    table_bytes,
    tables_symbol,
    window_sum,
)
from graphc.backends.llvm.conv_window import ROWS_TYPES, Rows, begin_pack, window_symbol
from graphc.backends.llvm.gemm_descriptor import Descriptor, Word
from graphc.backends.llvm.gemm_pack import (
    LEFT_PARAMETERS,
    RIGHT_PARAMETERS,
    Source,
    copy_step,
    declare_transpose,
    left_tiles,
    packed_panels,
    packed_vectors,
    transpose_symbol,
)
from graphc.backends.llvm.gemm_plan import choose, round_up
from graphc.backends.llvm.microkernel import MR
from graphc.backends.llvm.text import Function, Module, Value


def emit_window_rows(module: Module, source: Source) -> None:
    """What both packers call."""
    emit_tables(module, source, "")
    Rows(module, source, "sums", "").emit()


def _declare_window_rows(module: Module, source: Source) -> None:
    module.declare(f"declare void {tables_symbol(source)}({TABLES_TYPES})")
    module.declare(f"declare void {window_symbol(source, 'sums')}({ROWS_TYPES})")


def emit_pack_rows(module: Module, source: Source) -> None:
    """k = (channel, tap); n = position."""
    _declare_window_rows(module, source)
    f = module.function(f"void @graphc_pack_window_rows_{source.name}({RIGHT_PARAMETERS})")
    tile = source.tile
    g, _ = begin_pack(f, source, "%k", "%steps")
    with packed_panels(f, tile, "%columns", "%steps") as (column, to, pitch):
        count = f.smin(f.sub("%columns", column), pitch)
        values = (f.add("%n", column), count, "%steps")
        f.call(
            "void",
            window_symbol(source, "sums"),
            f"ptr {g.pointer}",
            "ptr %base",
            *(f"i64 {v}" for v in values),
            f"ptr {to}",
            f"i64 {f.mul(pitch, tile.bytes)}",
            f"i64 {pitch}",
            "ptr %scratch",
        )
    f.ret()


def emit_pack_columns(module: Module, source: Source) -> None:
    """k = position, n = (channel, tap): rows of the window, transposed square by square."""
    _declare_window_rows(module, source)
    declare_transpose(module, source.tile)
    f = module.function(f"void @graphc_pack_window_columns_{source.name}({RIGHT_PARAMETERS})")
    tile = source.tile
    square = tile.lanes * tile.bytes
    g, taps = begin_pack(f, source, "%n", "%columns")
    buffer = f.alloca(tile.vector, tile.lanes)
    rows = f.gep("%scratch", table_bytes(f, taps, window_sum(f, g), "%columns"), "i8")
    # columns that are not there are multiplied, too, and subnormals take long (vmath_exp.py)
    with f.loop("%columns", round_up(f, "%columns", tile.lanes)) as row:
        f.store(tile.zero(), tile.vector, f.gep(rows, row, tile.vector), tile.bytes)
    with f.loop(0, "%steps", tile.lanes) as step:
        count = f.smin(f.sub("%steps", step), tile.lanes)
        values = (f.add("%k", step), count, "%columns")
        f.call(
            "void",
            window_symbol(source, "sums"),
            f"ptr {g.pointer}",
            "ptr %base",
            *(f"i64 {v}" for v in values),
            f"ptr {rows}",
            f"i64 {square}",
            f"i64 {tile.lanes}",
            "ptr %scratch",
        )
        whole = f.cmp("eq", count, tile.lanes)
        with packed_vectors(f, tile, "%columns", "%steps") as (column, to, pitch):
            source_rows = f.gep(rows, f.mul(column, square), "i8")
            target = f.gep(to, f.mul(step, pitch), tile.element)
            goal = f.let(f"select i1 {whole}, ptr {target}, ptr {buffer}")
            goal_pitch = choose(f, whole, f.mul(pitch, tile.bytes), square)
            arguments = (f"ptr {source_rows}", f"i64 {square}", f"ptr {goal}")
            f.call("void", transpose_symbol(tile), *arguments, f"i64 {goal_pitch}")
            with f.loop(0, choose(f, whole, 0, count)) as row:
                value = f.load(f.gep(buffer, row, tile.vector), tile.vector, tile.bytes)
                at = f.gep(target, f.mul(row, pitch), tile.element)
                f.store(value, tile.vector, at, tile.bytes)
    f.ret()


def emit_pack_weights(module: Module, source: Source) -> None:
    """Left operand of an input gradient: weights by (row, channel, tap), any of the taps."""
    f = module.function(f"void @graphc_pack_weights_{source.name}({LEFT_PARAMETERS})")
    g = Words(f, Descriptor(f, "%d").pointer_at(Word.GEOMETRY))
    base = f.gep("%base", g.read(Window.WEIGHT_START), source.element)
    taps = f.smax(g.read(Window.TAPS), 1)
    (depth, height, width), strides = flat_taps(f, g)
    row_stride, channel_stride = g.read(Window.WEIGHT_ROW), g.read(Window.WEIGHT_CHANNEL)
    first = f.sdiv("%k", taps)
    # channels outside: the rows of one channel are neighbours in memory
    with f.loop(0, f.sdiv("%steps", taps)) as index:
        channel = f.gep(base, f.mul(f.add(first, index), channel_stride), source.element)
        with left_tiles(f, source, channel, row_stride) as (rows, tile):
            to = f.gep(tile, f.mul(f.mul(index, taps), MR), source.tile.element)
            with f.loop(0, depth) as kd, f.loop(0, height) as kh:
                high = f.add(f.mul(kd, strides[DEPTH]), f.mul(kh, strides[HEIGHT]))
                start = f.mul(f.add(f.mul(kd, height), kh), width)
                with f.loop(0, width) as kw:
                    goal = f.gep(to, f.mul(f.add(start, kw), MR), source.tile.element)
                    copy_step(f, source, rows, f.add(high, f.mul(kw, strides[WIDTH])), goal)
    f.ret()


def flat_taps(f: Function, g: Words) -> tuple[list[Value], list[str]]:
    """The window's sizes and strides in the weights; one long dimension if all taps are there."""
    sizes, strides = g.read3(Window.WINDOW), g.read3(Window.WEIGHT_TAP)
    plane = f.mul(sizes[HEIGHT], sizes[WIDTH])
    dense = f.cmp("eq", strides[WIDTH], 1)
    for stride, expected in ((strides[HEIGHT], sizes[WIDTH]), (strides[DEPTH], plane)):
        dense = f.let(f"and i1 {dense}, {f.cmp('eq', stride, expected)}")
    whole = (1, 1, f.mul(sizes[DEPTH], plane))
    return [choose(f, dense, w, s) for w, s in zip(whole, sizes, strict=True)], strides
