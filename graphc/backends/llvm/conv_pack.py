"""Packing of windows: im2col done on the fly, a vector of output positions at a time.

`emit_conv_packs` defines, for one source dtype and accumulator:
    @graphc_pack_window_rows_<src>_<acc>     right operand, k = (channel, tap), n = position
    @graphc_pack_window_columns_<src>_<acc>  right operand, k = position, n = (channel, tap)
    @graphc_pack_weights_<src>_<acc>         left operand, m = row, k = (channel, tap)

Positions are cut into pieces within one row of the output grid. At step 1 along the width a piece
is one masked load, at step 2 two loads and a shuffle, else a gather. Which lanes of a tap fall
outside the input is a conjunction of three tables, one per dimension.
"""

from collections.abc import Callable

from graphc.backends.llvm.conv_direct import emit_pad
from graphc.backends.llvm.conv_geometry import DEPTH, HEIGHT, WIDTH, Window, Words
from graphc.backends.llvm.conv_tables import TABLES, Tables, emit_tables, table_bytes, window_sum
from graphc.backends.llvm.gemm_descriptor import Descriptor, Word
from graphc.backends.llvm.gemm_pack import (
    LEFT_PARAMETERS,
    RIGHT_PARAMETERS,
    Source,
    copy_step,
    declare_transpose,
    first_lanes,
    left_tiles,
    packed_panels,
    packed_vectors,
    store_masked,
    transpose_symbol,
)
from graphc.backends.llvm.gemm_plan import choose
from graphc.backends.llvm.microkernel import MR
from graphc.backends.llvm.text import Function, Module, Value
from graphc.backends.llvm.values import lane_numbers, shuffle_mask

_Fetch = Callable[[str, str], str]  # (address of lane 0, mask bits) -> a register


def emit_conv_packs(module: Module, source: Source) -> None:
    """Defines the three packers for one source dtype, and the padded copy."""
    emit_tables(module)
    emit_pad(module, source)
    _Rows(module, source).emit()
    declare_transpose(module, source.tile)
    _emit_pack_rows(module, source)
    _emit_pack_columns(module, source)
    _emit_pack_weights(module, source)


def window_symbol(source: Source) -> str:
    """Packs rows of a window at some positions; see _Rows."""
    return f"@graphc_window_{source.name}"


class _Rows:
    """void (window, base, position, count, rows, to, pitch, room, work).

    The rows that the tables in `work` were made for, at `count` positions from `position` on (over
    all images), go to to + i * pitch bytes. A row of `to` has `room` elements, of which those
    behind `count` may be overwritten.

    A piece is a run of at most `lanes` positions in one row of the output grid. Pieces are stored
    left to right, whole registers where there is room: the next piece overwrites the excess.
    """

    def __init__(self, module: Module, source: Source) -> None:
        self.source, self.tile = source, source.tile
        self.lanes = source.tile.lanes
        self.ints = f"<{self.lanes} x i32>"
        self.f = f = module.function(
            f"void {window_symbol(source)}(ptr %g, ptr %base, i64 %position, i64 %count, "
            "i64 %rows, ptr %to, i64 %pitch, i64 %room, ptr %work)",
            "internal",
        )
        self.g = g = Words(f, "%g")
        self.inputs, self.sizes = g.read3(Window.IN), g.read3(Window.WINDOW)
        self.outputs, self.steps = g.read3(Window.OUT), g.read3(Window.STEP)
        self.lows, self.dilations = g.read3(Window.LOW), g.read3(Window.DILATION)
        self.taps, self.images = g.read(Window.TAPS), g.read(Window.IMAGE_STRIDE)
        self.tables = Tables(f, g, "%work")
        numbers = lane_numbers(self.lanes, "i32")
        self.numbers = f.let(f"mul {self.ints} {numbers}, {self._splat(self.steps[WIDTH])}")
        self.width_limit = self._splat(self.inputs[WIDTH])
        self.single, self.double = (f.cmp("eq", self.steps[WIDTH], step) for step in (1, 2))

    def emit(self) -> None:
        """Defines the function: a loop over pieces."""
        f = self.f
        depth, height, width = self.outputs
        ow = f.srem("%position", width)
        rest = f.sdiv("%position", width)
        oh = f.srem(rest, height)
        rest = f.sdiv(rest, height)
        od, image = f.srem(rest, depth), f.sdiv(rest, depth)
        start = [("i64", str(value)) for value in (ow, oh, od, f.mul(image, self.images))]
        loop = f.carry_loop(0, "%count", "%take", start)
        ow, oh, od, shift = loop.values
        f.module.declare("declare i64 @llvm.smin.i64(i64, i64)")
        room = f.smin(f.sub(width, ow), self.lanes)
        left = f.sub("%count", loop.index)
        f.emit(f"%take = call i64 @llvm.smin.i64(i64 {room}, i64 {left})")
        self._piece(loop.index, (od, oh, ow), shift)
        end = f.add(ow, "%take")
        row = self._wraps(end, width)
        up = f.add(oh, row)
        plane = self._wraps(up, height)
        deep = f.add(od, plane)
        next_image = self._wraps(deep, depth)
        after = (
            self._unless(row, end),
            self._unless(plane, up),
            self._unless(next_image, deep),
            f.add(shift, f.mul(next_image, self.images)),
        )
        loop.close([str(value) for value in after])
        f.ret()

    def _splat(self, value: Value) -> str:
        f, kind = self.f, self.ints
        narrow = f.let(f"trunc i64 {value} to i32")
        first = f.let(f"insertelement {kind} poison, i32 {narrow}, i64 0")
        zeros = f"<{self.lanes} x i32> zeroinitializer"
        return f.let(f"shufflevector {kind} {first}, {kind} poison, {zeros}")

    def _wraps(self, value: Value, size: str) -> str:
        """1 where a counter has reached its size."""
        return self.f.let(f"zext i1 {self.f.cmp('eq', value, size)} to i64")

    def _unless(self, wrapped: str, value: Value) -> Value:
        """0 if wrapped, else the value."""
        return choose(self.f, self.f.cmp("ne", wrapped, 0), 0, value)

    def _piece(self, column: Value, at: tuple[str, str, str], shift: Value) -> None:
        """Masks of one piece, then its loop over rows."""
        f = self.f
        starts = [
            f.sub(f.mul(position, step), low)
            for position, step, low in zip(at, self.steps, self.lows, strict=True)
        ]
        plane = f.add(f.mul(starts[DEPTH], self.inputs[HEIGHT]), starts[HEIGHT])
        offset = f.add(f.add(shift, f.mul(plane, self.inputs[WIDTH])), starts[WIDTH])
        self._side_masks(starts)
        tables = self.tables
        with f.loop(0, self.taps) as tap:
            mask = "-1"
            for parts, side in zip(tables.parts, tables.sides, strict=True):
                part = f.load(f.gep(parts, tap, "i64"), "i64", 8)
                mask = f.let(f"and i32 {f.load(f.gep(side, part, 'i32'), 'i32', 4)}, {mask}")
            f.store(mask, "i32", f.gep(tables.masks, tap, "i32"), 4)
        place = f.gep("%base", offset, self.source.element)
        target = f.gep("%to", column, self.tile.element)
        whole = f.cmp("sle", f.add(column, self.lanes), "%room")
        done = f.label("done")
        for condition, fetch in (
            (self.single, self._load),
            (self.double, self._load_pairs),
            ("true", self._gather),
        ):
            this, other = f.label("kind"), f.label("other")
            f.cond_br(condition, this, other)
            f.block(this)
            self._copy(fetch, place, target, whole)
            f.br(done)
            if condition != "true":
                f.block(other)
        f.block(done)

    def _side_masks(self, starts: list[Value]) -> None:
        """Per dimension and tap, the lanes of a piece inside the input: all, none, or some."""
        f, sides = self.f, self.tables.sides
        for dim in (DEPTH, HEIGHT):
            with f.loop(0, self.sizes[dim]) as tap:
                place = f.add(starts[dim], f.mul(tap, self.dilations[dim]))
                mask = f.let(f"sext i1 {f.cmp('ult', place, self.inputs[dim])} to i32")
                f.store(mask, "i32", f.gep(sides[dim], tap, "i32"), 4)
        take = f.let("trunc i64 %take to i32")
        bits = f.let(f"sub i32 {f.let(f'shl i32 1, {take}')}, 1")
        places = f.let(f"add {self.ints} {self._splat(starts[WIDTH])}, {self.numbers}")
        with f.loop(0, self.sizes[WIDTH]) as tap:
            moved = self._splat(f.mul(tap, self.dilations[WIDTH]))
            moved = f.let(f"add {self.ints} {places}, {moved}")
            inside = f.let(f"icmp ult {self.ints} {moved}, {self.width_limit}")
            found = f.let(f"bitcast <{self.lanes} x i1> {inside} to i{self.lanes}")
            mask = f.let(f"and i32 {f.let(f'zext i{self.lanes} {found} to i32')}, {bits}")
            mask = f.let(f"select i1 {self.double}, i32 {self._spread(mask)}, i32 {mask}")
            f.store(mask, "i32", f.gep(sides[WIDTH], tap, "i32"), 4)

    def _spread(self, mask: str) -> str:
        """Bit i of 16 moved to bit 2 * i: the even lanes of a pair of registers."""
        f = self.f
        for shift, keep in ((8, 0x00FF00FF), (4, 0x0F0F0F0F), (2, 0x33333333), (1, 0x55555555)):
            moved = f.let(f"shl i32 {mask}, {shift}")
            mask = f.let(f"and i32 {f.let(f'or i32 {mask}, {moved}')}, {keep}")
        return mask

    def _copy(self, fetch: _Fetch, place: str, target: str, whole: str) -> None:
        """All rows of a piece: whole registers if they fit, else masked stores."""
        f, tile, tables = self.f, self.tile, self.tables
        mask = first_lanes(f, tile, "%take")
        fits, part, done = f.label("fits"), f.label("part"), f.label("stored")
        f.cond_br(whole, fits, part)
        for label in (fits, part):
            f.block(label)
            loop = f.carry_loop(0, "%rows", 1, [("ptr", target)])
            entry = f.gep(tables.rows, f.mul(loop.index, 2), "i64")
            offset = f.load(entry, "i64", 8)
            tap = f.load(f.gep(entry, 1, "i64"), "i64", 8)
            bits = f.load(f.gep(tables.masks, tap, "i32"), "i32", 4)
            value = fetch(f.gep(place, offset, self.source.element), bits)
            to = loop.values[0]
            if label == fits:
                f.store(value, tile.vector, to, tile.bytes)
            else:
                store_masked(f, tile, value, to, mask)
            loop.close([f.gep(to, "%pitch", "i8")])
            f.br(done)
        f.block(done)

    def _lanes_of(self, bits: str) -> str:
        """A mask vector from the low bits of an i32."""
        narrow = self.f.let(f"trunc i32 {bits} to i{self.lanes}")
        return self.f.let(f"bitcast i{self.lanes} {narrow} to <{self.lanes} x i1>")

    def _load(self, at: str, bits: str) -> str:
        return self.source.load_masked(self.f, at, self._lanes_of(bits))

    def _load_pairs(self, at: str, bits: str) -> str:
        """Every second element: two registers, their even lanes."""
        f, lanes, tile = self.f, self.lanes, self.tile
        low = self.source.load_masked(f, at, self._lanes_of(bits))
        upper = f.let(f"lshr i32 {bits}, {lanes}")
        place = f.gep(at, lanes, self.source.element)
        high = self.source.load_masked(f, place, self._lanes_of(upper))
        even = shuffle_mask(0, lanes, 2)
        return f.let(f"shufflevector {tile.vector} {low}, {tile.vector} {high}, {even}")

    def _gather(self, at: str, bits: str) -> str:
        return self.source.gather(self.f, at, f"{self.ints} {self.numbers}", self._lanes_of(bits))


def _begin_pack(f: Function, row: Value, rows: Value) -> tuple[Words, Value]:
    """(window, taps) of a packer, with the tables of some rows made in %scratch."""
    window = Descriptor(f, "%d").pointer_at(Word.GEOMETRY)
    arguments = (f"ptr {window}", f"i64 {row}", f"i64 {rows}", "ptr %scratch")
    f.call("void", TABLES, *arguments)
    g = Words(f, window)
    return g, f.smax(g.read(Window.TAPS), 1)


def _emit_pack_rows(module: Module, source: Source) -> None:
    """k = (channel, tap); n = position."""
    f = module.function(f"void @graphc_pack_window_rows_{source.name}({RIGHT_PARAMETERS})")
    tile = source.tile
    g, _ = _begin_pack(f, "%k", "%steps")
    with packed_panels(f, tile, "%columns", "%steps") as (column, to, pitch):
        count = f.smin(f.sub("%columns", column), pitch)
        values = (f.add("%n", column), count, "%steps")
        f.call(
            "void",
            window_symbol(source),
            f"ptr {g.pointer}",
            "ptr %base",
            *(f"i64 {v}" for v in values),
            f"ptr {to}",
            f"i64 {f.mul(pitch, tile.bytes)}",
            f"i64 {pitch}",
            "ptr %scratch",
        )
    f.ret()


def _emit_pack_columns(module: Module, source: Source) -> None:
    """k = position, n = (channel, tap): rows of the window, transposed square by square."""
    f = module.function(f"void @graphc_pack_window_columns_{source.name}({RIGHT_PARAMETERS})")
    tile = source.tile
    square = tile.lanes * tile.bytes
    g, taps = _begin_pack(f, "%n", "%columns")
    buffer = f.alloca(tile.vector, tile.lanes)
    rows = f.gep("%scratch", table_bytes(f, taps, window_sum(f, g), "%columns"), "i8")
    with f.loop(0, "%steps", tile.lanes) as step:
        count = f.smin(f.sub("%steps", step), tile.lanes)
        values = (f.add("%k", step), count, "%columns")
        f.call(
            "void",
            window_symbol(source),
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


def _emit_pack_weights(module: Module, source: Source) -> None:
    """Left operand of an input gradient: weights by (row, channel, tap), any of the taps."""
    f = module.function(f"void @graphc_pack_weights_{source.name}({LEFT_PARAMETERS})")
    g = Words(f, Descriptor(f, "%d").pointer_at(Word.GEOMETRY))
    base = f.gep("%base", g.read(Window.WEIGHT_START), source.element)
    taps = f.smax(g.read(Window.TAPS), 1)
    (depth, height, width), strides = _flat_taps(f, g)
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


def _flat_taps(f: Function, g: Words) -> tuple[list[Value], list[str]]:
    """The window's sizes and strides in the weights; one long dimension if all taps are there."""
    sizes, strides = g.read3(Window.WINDOW), g.read3(Window.WEIGHT_TAP)
    plane = f.mul(sizes[HEIGHT], sizes[WIDTH])
    dense = f.cmp("eq", strides[WIDTH], 1)
    for stride, expected in ((strides[HEIGHT], sizes[WIDTH]), (strides[DEPTH], plane)):
        dense = f.let(f"and i1 {dense}, {f.cmp('eq', stride, expected)}")
    whole = (1, 1, f.mul(sizes[DEPTH], plane))
    return [choose(f, dense, w, s) for w, s in zip(whole, sizes, strict=True)], strides
