"""The copy that a convolution reads in place: the input with its padding, in phases where there is
a stride; and the epilogue on its positions (see conv_direct)."""

import enum
from collections.abc import Callable

from graphc.backends.llvm.conv_geometry import Words
from graphc.backends.llvm.gemm_pack import (
    Source,
    first_lanes,
    first_values,
    store_masked,
    store_words_masked,
)
from graphc.backends.llvm.gemm_plan import ceil_div, choose, round_up
from graphc.backends.llvm.gemm_store import (
    ADDRESS,
    B_STRIDE,
    M_STRIDE,
    STORE_TYPES,
    store_symbol,
)
from graphc.backends.llvm.microkernel import MR, Tile
from graphc.backends.llvm.text import Function, Module, Value
from graphc.backends.llvm.values import lane_numbers, shuffle_mask
from graphc.ir import dtypes


class Copy(enum.IntEnum):
    """The padded copy: planes, in phases, of HEIGHT lines of WIDTH elements, the last of which are
    the first of the next line, PITCH from it."""

    SOURCE = 0
    TARGET = enum.auto()
    PLANES = enum.auto()
    PLANES_PER_CHUNK = enum.auto()
    IN_HEIGHT = enum.auto()
    IN_WIDTH = enum.auto()
    LOW_HEIGHT = enum.auto()  # lines and columns before the source (negative: so many are left out)
    LOW_WIDTH = enum.auto()
    HEIGHT = enum.auto()
    WIDTH = enum.auto()
    PITCH = enum.auto()
    STEP_HEIGHT = enum.auto()  # phases of a plane
    STEP_WIDTH = enum.auto()
    IMAGE = enum.auto()  # elements of all planes of an image
    OUT_HEIGHT = enum.auto()
    OUT_WIDTH = enum.auto()
    VECTORS = enum.auto()  # registers of positions per image
    ARGUMENTS = enum.auto()  # of the epilogue that counts positions without the excess columns
    EPILOGUE = enum.auto()


COPY_WORDS = len(Copy)


def pad_symbol(source: Source) -> str:
    """The copy of some planes: void (copy, chunk)."""
    return f"@graphc_pad_{source.name}"


def emit_pad(module: Module, source: Source) -> None:
    """Defines the copy for one source dtype, converting to the accumulator's type."""
    tile = source.tile
    f = module.function(f"void {pad_symbol(source)}(ptr %copy, i64 %chunk)")
    c = Words(f, "%copy")
    height, width, pitch = c.read(Copy.IN_HEIGHT), c.read(Copy.IN_WIDTH), c.read(Copy.PITCH)
    lines, low_height, low_width, extent = (
        c.read(field) for field in (Copy.HEIGHT, Copy.LOW_HEIGHT, Copy.LOW_WIDTH, Copy.WIDTH)
    )
    down, step = c.read(Copy.STEP_HEIGHT), c.read(Copy.STEP_WIDTH)
    source_at, target_at = c.read_pointer(Copy.SOURCE), c.read_pointer(Copy.TARGET)
    count = c.read(Copy.PLANES_PER_CHUNK)
    first = f.mul("%chunk", count)
    with (
        f.loop(first, f.smin(f.add(first, count), c.read(Copy.PLANES))) as plane,
        f.loop(0, down) as upper,
        f.loop(0, step) as left,
        f.loop(0, lines) as line,
    ):
        from_line = f.sub(f.add(f.mul(line, down), upper), low_height)
        limit = choose(f, f.cmp("ult", from_line, height), width, 0)
        line_at = f.mul(f.add(f.mul(plane, height), from_line), width)
        from_at = f.gep(source_at, f.add(line_at, f.sub(left, low_width)), source.element)
        phase = f.add(f.mul(f.add(f.mul(plane, down), upper), step), left)
        to_line = f.mul(f.add(f.mul(phase, lines), line), pitch)
        to = f.gep(target_at, to_line, tile.value_element)
        _emit_line(f, source, (from_at, f.sub(left, low_width), limit, step), (to, extent))
    f.ret()


def _emit_line(
    f: Function, source: Source, from_: tuple[str, Value, Value, str], to: tuple[str, str]
) -> None:
    """Copies every `step`-th element of a line, whose first one is at coordinate `start`: zeros for
    those outside 0..limit."""
    tile, (place, start, limit, step), (target, extent) = source.tile, from_, to
    lanes = tile.values
    ints = f"<{lanes} x i64>"

    def splat(value: Value) -> str:
        first = f.let(f"insertelement {ints} poison, i64 {value}, i64 0")
        zeros = f"<{lanes} x i32> zeroinitializer"
        return f.let(f"shufflevector {ints} {first}, {ints} poison, {zeros}")

    def inside(at: Value, apart: str = "") -> str:
        """The lanes of coordinates in the line, from `at` on."""
        numbers = f.let(f"mul {ints} {lane_numbers(lanes)}, {apart}") if apart else ""
        places = f.let(f"add {ints} {splat(at)}, {numbers or lane_numbers(lanes)}")
        return f.let(f"icmp ult {ints} {places}, {splat(limit)}")

    def load(at: Value, masked: bool) -> str:
        mask = inside(at) if masked else ""
        return source.load_words(f, f.gep(place, f.sub(at, start), source.element), mask)

    def pair(at: Value, masked: bool) -> str:
        """Every second element: two registers, their even lanes."""
        low, high = load(at, masked), load(f.add(at, lanes), masked)
        even = shuffle_mask(0, lanes, 2)
        return f.let(f"shufflevector {tile.vector} {low}, {tile.vector} {high}, {even}")

    def gather(at: Value, masked: bool) -> str:
        apart = splat(step)
        offsets = f.let(f"mul {ints} {lane_numbers(lanes)}, {apart}")
        first, mask = f.gep(place, f.sub(at, start), source.element), "splat (i1 true)"
        return source.gather(f, first, f"{ints} {offsets}", inside(at, apart) if masked else mask)

    # registers that are all inside, and need no mask
    before = round_up(f, ceil_div(f, f.smax(f.sub(0, start), 0), step), lanes)
    within = f.smin(f.sdiv(f.sub(limit, start), step), extent)
    count = f.mul(f.sdiv(f.smax(f.sub(within, before), 0), lanes), lanes)
    before = f.smin(before, extent)
    behind = f.add(before, count)

    parts = (0, before, True), (before, behind, False), (behind, extent, True)

    def copy(fetch: Callable[[Value, bool], str]) -> None:
        for begin, end, masked in parts:
            with f.loop(begin, end, lanes) as column:
                value = fetch(f.add(start, f.mul(column, step)), masked)
                there = f.gep(target, column, tile.value_element)
                if masked:
                    mask = first_values(f, tile, f.sub(extent, column))
                    store_words_masked(f, tile, value, there, mask)
                else:
                    f.store(value, tile.vector, there, tile.value_bytes)

    if tile.group > 1:
        copy(load)
        return
    done = f.label("copied")
    for number, fetch in ((1, load), (2, pair), (0, gather)):
        this, other = f.label("step"), f.label("step")
        if number:
            f.cond_br(f.cmp("eq", step, number), this, other)
            f.block(this)
        copy(fetch)
        f.br(done)
        if number:
            f.block(other)
    f.block(done)


def emit_lines_epilogue(module: Module, tile: Tile) -> None:
    """The epilogue on positions of the copy: moves the lines of the output together.

    Without the excess columns, positions of neighbouring lines are neighbours in the output.
    """
    f = module.function(
        f"void @graphc_lines_epilogue_{tile.name}(ptr %copy, i64 %b, i64 %m, i64 %rows, "
        "i64 %n, i64 %columns, ptr %tile, i64 %tile_pitch)",
        "internal",
    )
    c = Words(f, "%copy")
    pitch, width, height = (
        c.read(field) for field in (Copy.PITCH, Copy.OUT_WIDTH, Copy.OUT_HEIGHT)
    )
    end = f.add("%n", "%columns")
    first, last = f.sdiv("%n", pitch), f.smin(ceil_div(f, end, pitch), height)
    epilogue, arguments = c.read_pointer(Copy.EPILOGUE), c.read_pointer(Copy.ARGUMENTS)
    f.module.declare(f"declare void {store_symbol(tile)}({STORE_TYPES})")
    plain, other = f.label("plain"), f.label("other")
    f.cond_br(f.let(f"icmp eq ptr {epilogue}, {store_symbol(tile)}"), plain, other)
    f.block(plain)
    _emit_stored_lines(f, tile, (first, last), (pitch, width, end), arguments)
    f.ret()
    f.block(other)
    buffer = f.alloca(tile.vector, MR * tile.vectors + 1)
    skipped = f.sub("%n", f.mul(first, pitch))
    start = f.add(f.mul(first, width), f.smin(skipped, width))
    with f.loop(0, "%rows") as row:
        source = f.gep("%tile", f.mul(row, "%tile_pitch"), tile.element)
        target = f.gep(buffer, f.mul(row, "%tile_pitch"), tile.element)
        with f.loop(first, last) as line:
            line_at = f.mul(line, pitch)
            low, high = f.smax(line_at, "%n"), f.smin(f.add(line_at, width), end)
            at = f.sub(f.add(f.mul(line, width), f.sub(low, line_at)), start)
            from_line = f.gep(source, f.sub(low, "%n"), tile.element)
            to_line = f.gep(target, at, tile.element)
            # whole registers: the excess is overwritten by the next line, or by the next row
            with f.loop(0, f.sub(high, low), tile.lanes) as column:
                value = f.load(f.gep(from_line, column, tile.element), tile.vector, tile.bytes)
                f.store(value, tile.vector, f.gep(to_line, column, tile.element), tile.bytes)
    stop = f.sub(end, f.mul(f.sub(last, 1), pitch))
    count = f.sub(f.add(f.mul(f.sub(last, 1), width), f.smin(stop, width)), start)
    with f.when(f.cmp("sgt", count, 0)):
        values = (f"i64 {v}" for v in ("%b", "%m", "%rows", start, count))
        f.call("void", epilogue, f"ptr {arguments}", *values, f"ptr {buffer}", "i64 %tile_pitch")
    f.ret()


def _emit_stored_lines(
    f: Function, tile: Tile, lines: tuple[Value, Value], sizes: tuple[str, str, Value],
    words: str,
) -> None:
    """What the plainest epilogue stores of such a tile, line by line."""
    (pitch, width, end), source = sizes, Source(dtypes.by_name(tile.accumulator), tile)
    b_stride, m_stride = (
        f.load(f.gep(words, word, "i64"), "i64", 8) for word in (B_STRIDE, M_STRIDE)
    )
    start = f.add(f.mul("%b", b_stride), f.mul("%m", m_stride))
    base = f.gep(f.load(f.gep(words, ADDRESS, "ptr"), "ptr", 8), start, tile.element)
    with f.loop(*lines) as line:
        line_at = f.mul(line, pitch)
        low, high = f.smax(line_at, "%n"), f.smin(f.add(line_at, width), end)
        count = f.smax(f.sub(high, low), 0)
        whole = f.mul(f.sdiv(count, tile.lanes), tile.lanes)
        some = f.cmp("sgt", count, whole)
        mask = first_lanes(f, tile, f.sub(count, whole))
        from_line = f.gep("%tile", f.sub(low, "%n"), tile.element)
        at = f.add(f.mul(line, width), f.sub(low, line_at))
        to_line = f.gep(base, at, tile.element)
        with f.loop(0, "%rows") as row:
            sums = f.gep(from_line, f.mul(row, "%tile_pitch"), tile.element)
            to = f.gep(to_line, f.mul(row, m_stride), tile.element)
            with f.loop(0, whole, tile.lanes) as column:
                value = f.load(f.gep(sums, column, tile.element), tile.vector, tile.bytes)
                f.store(value, tile.vector, f.gep(to, column, tile.element), tile.bytes)
            with f.when(some):
                value = source.load_masked(f, f.gep(sums, whole, tile.element), mask)
                store_masked(f, tile, value, f.gep(to, whole, tile.element), mask)
