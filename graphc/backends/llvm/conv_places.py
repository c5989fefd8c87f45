"""Convolutions whose tiles read the input where it lies, under masks.

If lines of the output are as long as those of the input, and there is no stride, a tap of positions
side by side is a piece of the input as long, wherever lines end; what of it is beside the image a
mask leaves out. So nothing is copied, no position is in vain, and sums that are stored as they are
go from a tile to the result. For each register of positions PACK_RIGHT stores a pointer to the same
pixels, OUTSIDE added where some row of it begins before the input or ends behind it, then the mask
of each tap, in `lanes` words of 8 bytes; B_STEP is a table of two words for each row (channel,
tap): how far from the pointer it begins, and where its mask is. The kernels are in place_kernel.py.
For sizes that are known (`ir/kernel/plan_convolution.py` says when).
"""

from graphc.backends.llvm.conv import Request, conv_symbol, emit_bases
from graphc.backends.llvm.conv_copy import Copy, emit_places_epilogue
from graphc.backends.llvm.conv_geometry import HEIGHT, WIDTH, Conv, Window, Words
from graphc.backends.llvm.conv_positions import Positions
from graphc.backends.llvm.gemm_descriptor import ENTRY, Descriptor, Word
from graphc.backends.llvm.gemm_pack import RIGHT_PARAMETERS
from graphc.backends.llvm.gemm_plan import Number, round_up
from graphc.backends.llvm.microkernel import LINE, Tile
from graphc.backends.llvm.place_kernel import OUTSIDE
from graphc.backends.llvm.text import Function, Module, Value
from graphc.backends.llvm.values import lane_numbers
from graphc.ir.kernel.blocking import ALIGN, POINTER_BYTES
from graphc.ir.kernel.plan_convolution import PLACE_BYTES, masks_bytes, place_columns

PLACES = "conv_places"  # a kind of conv.conv_symbol


def emit_forward_in_place(module: Module, tile: Tile) -> None:
    """Defines the driver, and what it calls."""
    emit_bases(module)
    _emit_point_places(module, tile)
    emit_places_epilogue(module, tile)
    f = module.function(f"void {conv_symbol(PLACES, tile)}(ptr %request)", "", ENTRY)
    r = Request(f, tile)
    r.set_groups(f.mul(r.outputs, r.filter), f.mul(r.channels, r.pixels))
    r.write_input_window()
    positions = Positions(r)
    _fill_offsets(r, positions.table, tile)
    size = round_up(f, f.mul(r.filter, PLACE_BYTES), ALIGN)
    positions.contract(size, f"@graphc_point_places_{tile.name}", {
        Word.MOST_STEPS: 2 * tile.tiling.block_k,
        Word.POINTER_COLUMNS: 1,
        Word.MOST_COLUMNS: place_columns(Number(f, r.filter), tile.tiling, tile.bytes).value,
        Word.B_STEP_K: PLACE_BYTES,
    })


def _fill_offsets(r: Request, offsets: str, tile: Tile) -> None:
    f, width = r.f, r.input[WIDTH]
    with f.loop(0, r.channels) as channel:
        row, plane = f.mul(channel, r.taps), f.mul(channel, r.pixels)
        with f.loop(0, r.window[HEIGHT]) as kh, f.loop(0, r.window[WIDTH]) as kw:
            down, across = (
                f.sub(f.mul(tap, r.dilation[dim]), r.pad[dim])
                for tap, dim in ((kh, HEIGHT), (kw, WIDTH))
            )
            offset = f.add(plane, f.add(f.mul(down, width), across))
            tap = f.add(f.mul(kh, r.window[WIDTH]), kw)
            entry = f.gep(offsets, f.mul(f.add(row, tap), 2), "i64")
            f.store(f.mul(offset, tile.bytes), "i64", entry, 8)
            mask = f.add(f.mul(tap, masks_bytes(tile.lanes)), POINTER_BYTES)
            f.store(mask, "i64", f.gep(entry, 1, "i64"), 8)


def _emit_point_places(module: Module, tile: Tile) -> None:
    """A pack_right: pointers to registers of positions in the input, and their masks."""
    f = module.function(f"void @graphc_point_places_{tile.name}({RIGHT_PARAMETERS})", "internal")
    d = Descriptor(f, "%d")
    vectors = Words(f, d.pointer_at(Word.COPY)).read(Copy.VECTORS)
    g = Words(f, d.pointer_at(Word.GEOMETRY))
    image, height, width = (
        g.read(Window.IMAGE_STRIDE), g.read(Window.IN, HEIGHT), g.read(Window.IN, WIDTH)
    )
    taps, low, dilation = (
        [g.read(field, dim) for dim in (HEIGHT, WIDTH)]
        for field in (Window.WINDOW, Window.LOW, Window.DILATION)
    )
    lanes, bits = tile.lanes, f"i{tile.lanes}"
    ints = f"<{lanes} x i32>"
    sides = [f.alloca(bits, lanes * POINTER_BYTES) for _ in range(2)]

    def splat(value: Value) -> str:
        number = f.let(f"trunc i64 {value} to i32")
        first = f.let(f"insertelement {ints} poison, i32 {number}, i64 0")
        return f.let(f"shufflevector {ints} {first}, {ints} poison, {ints} zeroinitializer")

    limits, bounds = (splat(height), splat(width)), _bounds(f, d, g, tile)
    first = f.floordiv("%n", lanes)
    with f.loop(0, f.floordiv(f.add("%columns", lanes - 1), lanes)) as index:
        number = f.add(first, index)
        at = f.mul(f.srem(number, vectors), lanes)
        offset = f.add(f.mul(f.sdiv(number, vectors), image), at)
        record = f.gep("%to", f.mul(index, lanes), "i64")
        place = f.gep("%base", offset, tile.element)
        f.store(_marked(f, place, bounds), "i64", record, 8)
        line, column = f.sdiv(at, width), f.srem(at, width)
        columns = f.let(f"add {ints} {splat(column)}, {lane_numbers(lanes, 'i32')}")
        begin = [(ints, splat(line)), (ints, columns)]
        loop = f.carry_loop(0, f.sdiv(f.add(column, lanes - 1), width), 1, begin)
        lines, columns = loop.values
        over = f.let(f"icmp uge {ints} {columns}, {limits[1]}")
        lines = f.let(f"sub {ints} {lines}, {f.let(f'sext <{lanes} x i1> {over} to {ints}')}")
        fewer = f.let(f"sub {ints} {columns}, {limits[1]}")
        columns = f.let(f"select <{lanes} x i1> {over}, {ints} {fewer}, {ints} {columns}")
        places = loop.close([lines, columns])
        for dim in (0, 1):
            with f.loop(0, taps[dim]) as tap:
                further = splat(f.sub(f.mul(tap, dilation[dim]), low[dim]))
                place = f.let(f"add {ints} {places[dim]}, {further}")
                inside = f.let(f"icmp ult {ints} {place}, {limits[dim]}")
                mask = f.let(f"bitcast <{lanes} x i1> {inside} to {bits}")
                f.store(mask, bits, f.gep(sides[dim], tap, bits), 1)
        with f.loop(0, taps[0]) as kh, f.loop(0, taps[1]) as kw:
            down, across = (
                f.load(f.gep(side, tap, bits), bits, 1)
                for side, tap in zip(sides, (kh, kw), strict=True)
            )
            mask = f.let(f"and {bits} {down}, {across}")
            goal = f.gep(f.gep(record, 1, "i64"), f.add(f.mul(kh, taps[1]), kw), bits)
            f.store(mask, bits, goal, 1)
    _ask_for_next(f, d, g, tile)
    f.ret()


def _ask_for_next(f: Function, d: Descriptor, g: Words, tile: Tile) -> None:
    """Has the pixels come that the next columns read: pieces of other pages for each channel."""
    f.module.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    first = f.load("%to", "i64", 8)
    with f.loop(0, f.sdiv(d[Word.VALUES], g.read(Window.TAPS))) as channel:
        plane = f.add(f.mul(channel, g.read(Window.CHANNEL_STRIDE)), "%columns")
        begin = f.add(first, f.mul(plane, tile.bytes))
        with f.loop(0, f.mul("%columns", tile.bytes), LINE) as at:
            place = f.let(f"inttoptr i64 {f.add(begin, at)} to ptr")
            f.call("void", "@llvm.prefetch.p0", f"ptr {place}", "i32 0", "i32 2", "i32 1")


def _bounds(f: Function, d: Descriptor, g: Words, tile: Tile) -> tuple[Value, Value]:
    """Addresses between which no row of a register that begins there is outside of the input."""
    r = Words(f, d.pointer_at(Word.OPERANDS))
    begin = f.let(f"ptrtoint ptr {r.read_pointer(Conv.RIGHT)} to i64")
    size = f.mul(f.mul(r.read(Conv.BATCH), g.read(Window.IMAGE_STRIDE)), tile.bytes)
    width = g.read(Window.IN, WIDTH)
    least: Value = 0
    spans: Value = 0
    for dim, apart in ((HEIGHT, width), (WIDTH, 1)):
        low, taps = g.read(Window.LOW, dim), g.read(Window.WINDOW, dim)
        span = f.mul(f.sub(taps, 1), g.read(Window.DILATION, dim))
        least = f.sub(least, f.mul(low, apart))
        spans = f.add(spans, f.mul(span, apart))
    channels = f.sub(f.sdiv(d[Word.VALUES], g.read(Window.TAPS)), 1)
    most = f.add(f.add(least, spans), f.mul(channels, g.read(Window.CHANNEL_STRIDE)))
    most = f.mul(f.add(most, tile.lanes), tile.bytes)
    return f.sub(begin, f.mul(least, tile.bytes)), f.sub(f.add(begin, size), most)


def _marked(f: Function, place: str, bounds: tuple[Value, Value]) -> str:
    address = f.let(f"ptrtoint ptr {place} to i64")
    before, behind = f.cmp("slt", address, bounds[0]), f.cmp("sgt", address, bounds[1])
    outside = f.let(f"or i1 {before}, {behind}")
    return f.let(f"select i1 {outside}, i64 {f.add(address, OUTSIDE)}, i64 {address}")
