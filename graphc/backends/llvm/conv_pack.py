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

from graphc.backends.llvm.conv_geometry import (
    DEPTH,
    HEIGHT,
    SPAN,
    WIDTH,
    Window,
    Words,
    table_bytes,
    window_sum,
)
from graphc.backends.llvm.gemm_descriptor import Descriptor, Word
from graphc.backends.llvm.gemm_pack import (
    LEFT_PARAMETERS,
    RIGHT_PARAMETERS,
    Source,
    emit_transpose,
    first_lanes,
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
    """Defines the three packers for one source dtype."""
    _Rows(module, source).emit()
    emit_transpose(module, source.tile)
    _emit_tap_offsets(module)
    _emit_pack_rows(module, source)
    _emit_pack_columns(module, source)
    _emit_pack_weights(module, source)


def _emit_tap_offsets(module: Module) -> None:
    """@graphc_tap_offsets(window, to): the distance in elements of each tap from the first."""
    f = module.function("void @graphc_tap_offsets(ptr %g, ptr %to)", "internal")
    g = Words(f, "%g")
    sizes, inputs, steps = g.read3(Window.WINDOW), g.read3(Window.IN), g.read3(Window.DILATION)
    row = inputs[WIDTH]
    plane = f.mul(inputs[HEIGHT], row)
    with f.loop(0, sizes[DEPTH]) as kd:
        depth = f.mul(f.mul(kd, steps[DEPTH]), plane)
        with f.loop(0, sizes[HEIGHT]) as kh:
            height = f.add(depth, f.mul(f.mul(kh, steps[HEIGHT]), row))
            first = f.mul(f.add(f.mul(kd, sizes[HEIGHT]), kh), sizes[WIDTH])
            with f.loop(0, sizes[WIDTH]) as kw:
                offset = f.add(height, f.mul(kw, steps[WIDTH]))
                f.store(offset, "i64", f.gep("%to", f.add(first, kw), "i64"), 8)
    f.ret()


def window_symbol(source: Source) -> str:
    """Packs some positions of some rows of a window; see _Rows."""
    return f"@graphc_window_{source.name}"


class _Rows:
    """void (window, base, position, count, row, rows, to, pitch, room, work).

    Rows `row` .. `row + rows` of the window, a row being (channel, tap), at `count` <= SPAN
    positions from `position` on (over all images) go to to + i * pitch bytes. Behind `count`
    elements a row of `to` has `room` - `count` that may be overwritten. `work` begins with the tap
    offsets and has room for the pieces.

    A piece is a run of at most `lanes` positions in one row of the output grid. Pieces are stored
    left to right, whole registers where there is room: the next piece overwrites the excess.
    """

    def __init__(self, module: Module, source: Source) -> None:
        self.source, self.tile = source, source.tile
        self.lanes = source.tile.lanes
        self.ints = f"<{self.lanes} x i32>"
        self.f = f = module.function(
            f"void {window_symbol(source)}(ptr %g, ptr %base, i64 %position, i64 %count, i64 %row, "
            "i64 %rows, ptr %to, i64 %pitch, i64 %room, ptr %work)",
            "internal",
        )
        self.g = g = Words(f, "%g")
        self.inputs, self.sizes = g.read3(Window.IN), g.read3(Window.WINDOW)
        self.outputs, self.steps = g.read3(Window.OUT), g.read3(Window.STEP)
        self.lows, self.dilations = g.read3(Window.LOW), g.read3(Window.DILATION)
        self.taps, self.images = f.smax(g.read(Window.TAPS), 1), g.read(Window.IMAGE_STRIDE)
        self.stride = g.read(Window.CHANNEL_STRIDE)
        # tap offsets, then per piece: where it is read, where it goes, its size, masks by tap
        self.offsets = f.gep("%work", self.taps, "i64")
        self.columns = f.gep(self.offsets, SPAN, "i64")
        self.takes = f.gep(self.columns, SPAN, "i64")
        self.masks = f.gep(self.takes, SPAN, "i64")
        # masks by depth, height and width of one piece
        self.sides = [f.gep(self.masks, f.mul(self.taps, SPAN), "i32")]
        for dim in (DEPTH, HEIGHT):
            self.sides.append(f.gep(self.sides[-1], self.sizes[dim], "i32"))

    def emit(self) -> None:
        """Defines the function."""
        f = self.f
        pieces = self._find_pieces()
        kinds = (f.label("dense"), f.label("pairs"), f.label("gather"))
        done, other = f.label("done"), f.label("other")
        step = self.steps[WIDTH]
        f.cond_br(f.cmp("eq", step, 1), kinds[0], other)
        f.block(other)
        f.cond_br(f.cmp("eq", step, 2), kinds[1], kinds[2])
        for kind, fetch in zip(kinds, (self._load, self._load_pairs, self._gather), strict=True):
            f.block(kind)
            self._copy(fetch, pieces)
            f.br(done)
        f.block(done)
        f.ret()

    def _splat(self, value: Value) -> str:
        f, kind = self.f, self.ints
        narrow = f.let(f"trunc i64 {value} to i32")
        first = f.let(f"insertelement {kind} poison, i32 {narrow}, i64 0")
        zeros = f"<{self.lanes} x i32> zeroinitializer"
        return f.let(f"shufflevector {kind} {first}, {kind} poison, {zeros}")

    def _find_pieces(self) -> Value:
        """Cuts the positions into pieces and fills their tables; returns how many there are."""
        f = self.f
        depth, height, width = self.outputs
        numbers = lane_numbers(self.lanes, "i32")
        self.numbers = f.let(f"mul {self.ints} {numbers}, {self._splat(self.steps[WIDTH])}")
        self.width_limit = self._splat(self.inputs[WIDTH])
        self.spread = f.cmp("eq", self.steps[WIDTH], 2)
        ow = f.srem("%position", width)
        rest = f.sdiv("%position", width)
        oh = f.srem(rest, height)
        rest = f.sdiv(rest, height)
        od, image = f.srem(rest, depth), f.sdiv(rest, depth)
        start = [("i64", str(value)) for value in (ow, oh, od, f.mul(image, self.images), 0)]
        loop = f.carry_loop(0, "%count", "%take", start)
        ow, oh, od, shift, number = loop.values
        f.module.declare("declare i64 @llvm.smin.i64(i64, i64)")
        room = f.smin(f.sub(width, ow), self.lanes)
        left = f.sub("%count", loop.index)
        f.emit(f"%take = call i64 @llvm.smin.i64(i64 {room}, i64 {left})")
        self._add_piece(loop.index, (od, oh, ow), shift, number)
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
            f.add(number, 1),
        )
        return loop.close([str(value) for value in after])[4]

    def _wraps(self, value: Value, size: str) -> str:
        """1 where a counter has reached its size."""
        return self.f.let(f"zext i1 {self.f.cmp('eq', value, size)} to i64")

    def _unless(self, wrapped: str, value: Value) -> Value:
        """0 if wrapped, else the value."""
        return choose(self.f, self.f.cmp("ne", wrapped, 0), 0, value)

    def _add_piece(
        self, column: Value, at: tuple[str, str, str], shift: Value, number: Value
    ) -> None:
        """Notes where a piece is read and goes, and which of its lanes each tap finds inside."""
        f = self.f
        starts = [
            f.sub(f.mul(position, step), low)
            for position, step, low in zip(at, self.steps, self.lows, strict=True)
        ]
        plane = f.add(f.mul(starts[DEPTH], self.inputs[HEIGHT]), starts[HEIGHT])
        offset = f.add(f.add(shift, f.mul(plane, self.inputs[WIDTH])), starts[WIDTH])
        f.store(offset, "i64", f.gep(self.offsets, number, "i64"), 8)
        f.store(column, "i64", f.gep(self.columns, number, "i64"), 8)
        f.store("%take", "i64", f.gep(self.takes, number, "i64"), 8)
        for dim in (DEPTH, HEIGHT):
            with f.loop(0, self.sizes[dim]) as tap:
                place = f.add(starts[dim], f.mul(tap, self.dilations[dim]))
                inside = f.cmp("ult", place, self.inputs[dim])
                mask = f.let(f"sext i1 {inside} to i32")
                f.store(mask, "i32", f.gep(self.sides[dim], tap, "i32"), 4)
        take = f.let("trunc i64 %take to i32")
        bits = f.let(f"sub i32 {f.let(f'shl i32 1, {take}')}, 1")
        places = f.let(f"add {self.ints} {self._splat(starts[WIDTH])}, {self.numbers}")
        with f.loop(0, self.sizes[WIDTH]) as tap:
            moved = self._splat(f.mul(tap, self.dilations[WIDTH]))
            moved = f.let(f"add {self.ints} {places}, {moved}")
            inside = f.let(f"icmp ult {self.ints} {moved}, {self.width_limit}")
            found = f.let(f"bitcast <{self.lanes} x i1> {inside} to i{self.lanes}")
            mask = f.let(f"and i32 {f.let(f'zext i{self.lanes} {found} to i32')}, {bits}")
            mask = f.let(f"select i1 {self.spread}, i32 {self._spread_bits(mask)}, i32 {mask}")
            f.store(mask, "i32", f.gep(self.sides[WIDTH], tap, "i32"), 4)
        self._combine_masks(f.gep(self.masks, f.mul(number, self.taps), "i32"))

    def _spread_bits(self, mask: str) -> str:
        """Bit i of 16 moved to bit 2 * i: the even lanes of a pair of registers."""
        f = self.f
        for shift, keep in ((8, 0x00FF00FF), (4, 0x0F0F0F0F), (2, 0x33333333), (1, 0x55555555)):
            moved = f.let(f"shl i32 {mask}, {shift}")
            mask = f.let(f"and i32 {f.let(f'or i32 {mask}, {moved}')}, {keep}")
        return mask

    def _combine_masks(self, masks: str) -> None:
        """masks[tap] of a piece: the conjunction of its three dimensions."""
        f = self.f
        with f.loop(0, self.sizes[DEPTH]) as kd:
            deep = f.load(f.gep(self.sides[DEPTH], kd, "i32"), "i32", 4)
            with f.loop(0, self.sizes[HEIGHT]) as kh:
                high = f.load(f.gep(self.sides[HEIGHT], kh, "i32"), "i32", 4)
                high = f.let(f"and i32 {deep}, {high}")
                row = f.mul(f.add(f.mul(kd, self.sizes[HEIGHT]), kh), self.sizes[WIDTH])
                with f.loop(0, self.sizes[WIDTH]) as kw:
                    wide = f.load(f.gep(self.sides[WIDTH], kw, "i32"), "i32", 4)
                    place = f.gep(masks, f.add(row, kw), "i32")
                    f.store(f.let(f"and i32 {wide}, {high}"), "i32", place, 4)

    def _copy(self, fetch: _Fetch, pieces: Value) -> None:
        """The loops over channels, pieces and taps."""
        f, element = self.f, self.source.element
        end = f.add("%row", "%rows")
        first = f.sdiv("%row", self.taps)
        last = f.sdiv(f.add(end, f.sub(self.taps, 1)), self.taps)
        with f.loop(first, last) as channel:
            place = f.gep("%base", f.mul(channel, self.stride), element)
            tap_zero = f.sub(f.mul(channel, self.taps), "%row")
            low = f.smax(f.sub(0, tap_zero), 0)
            high = f.smin(f.sub("%rows", tap_zero), self.taps)
            to = f.gep("%to", f.mul(tap_zero, "%pitch"), "i8")
            with f.loop(0, pieces) as piece:
                offset, column, take = (
                    f.load(f.gep(table, piece, "i64"), "i64", 8)
                    for table in (self.offsets, self.columns, self.takes)
                )
                masks = f.gep(self.masks, f.mul(piece, self.taps), "i32")
                at = f.gep(place, offset, element)
                target = f.gep(to, column, self.tile.element)
                self._copy_piece(fetch, at, masks, target, (low, high), column, take)

    def _copy_piece(
        self,
        fetch: _Fetch,
        at: str,
        masks: str,
        target: str,
        bounds: tuple[Value, Value],
        column: Value,
        take: Value,
    ) -> None:
        """One piece of all taps of a channel: whole registers if they fit, else masked stores."""
        f, tile = self.f, self.tile
        whole, part, done = f.label("whole"), f.label("part"), f.label("done")
        mask = first_lanes(f, tile, take)
        f.cond_br(f.cmp("sle", f.add(column, self.lanes), "%room"), whole, part)
        for label in (whole, part):
            f.block(label)
            with f.loop(*bounds) as tap:
                offset = f.load(f.gep("%work", tap, "i64"), "i64", 8)
                bits = f.load(f.gep(masks, tap, "i32"), "i32", 4)
                value = fetch(f.gep(at, offset, self.source.element), bits)
                place = f.gep(target, f.mul(tap, "%pitch"), "i8")
                if label == whole:
                    f.store(value, tile.vector, place, tile.bytes)
                else:
                    store_masked(f, tile, value, place, mask)
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


def _begin_pack(f: Function) -> tuple[Descriptor, Words, Value]:
    """(descriptor, window, taps) of a packer, its tap offsets computed."""
    d = Descriptor(f, "%d")
    window = d.pointer_at(Word.GEOMETRY)
    f.call("void", "@graphc_tap_offsets", f"ptr {window}", "ptr %scratch")
    g = Words(f, window)
    return d, g, f.smax(g.read(Window.TAPS), 1)


def _emit_pack_rows(module: Module, source: Source) -> None:
    """k = (channel, tap); n = position."""
    f = module.function(f"void @graphc_pack_window_rows_{source.name}({RIGHT_PARAMETERS})")
    tile = source.tile
    _, g, _ = _begin_pack(f)
    with packed_panels(f, tile, "%columns", "%steps") as (column, to, pitch):
        count = f.smin(f.sub("%columns", column), pitch)
        values = (f.add("%n", column), count, "%k", "%steps")
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
    _, g, taps = _begin_pack(f)
    buffer = f.alloca(tile.vector, tile.lanes)
    rows = f.gep("%scratch", table_bytes(f, taps, window_sum(f, g)), "i8")
    with f.loop(0, "%steps", tile.lanes) as step:
        count = f.smin(f.sub("%steps", step), tile.lanes)
        values = (f.add("%k", step), count, "%n", "%columns")
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
    d = Descriptor(f, "%d")
    g = Words(f, d.pointer_at(Word.GEOMETRY))
    row_stride, element = g.read(Window.WEIGHT_ROW), source.tile.element
    base = f.gep("%base", g.read(Window.WEIGHT_START), source.element)
    rows = [f.gep(base, f.mul("%m", row_stride), source.element)]
    for row in range(1, MR):
        step = choose(f, f.cmp("slt", row, "%rows"), row_stride, 0)
        rows.append(f.gep(rows[-1], step, source.element))
    taps = f.smax(g.read(Window.TAPS), 1)
    sizes, strides = g.read3(Window.WINDOW), g.read3(Window.WEIGHT_TAP)
    channel_stride = g.read(Window.WEIGHT_CHANNEL)
    channel = f.sdiv("%k", taps)
    with f.loop(0, f.sdiv("%steps", taps)) as index:
        offset = f.mul(f.add(channel, index), channel_stride)
        to = f.gep("%to", f.mul(f.mul(index, taps), MR), element)
        with f.loop(0, sizes[DEPTH]) as kd:
            deep = f.add(offset, f.mul(kd, strides[DEPTH]))
            with f.loop(0, sizes[HEIGHT]) as kh:
                high = f.add(deep, f.mul(kh, strides[HEIGHT]))
                first = f.mul(f.add(f.mul(kd, sizes[HEIGHT]), kh), sizes[WIDTH])
                with f.loop(0, sizes[WIDTH]) as kw:
                    at = f.add(high, f.mul(kw, strides[WIDTH]))
                    goal = f.gep(to, f.mul(f.add(first, kw), MR), element)
                    for row, place in enumerate(rows):
                        value = source.load(f, f.gep(place, at, source.element))
                        f.store(value, element, f.gep(goal, row, element), source.tile.bytes)
    f.ret()
