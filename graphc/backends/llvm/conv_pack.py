"""Packing of windows: im2col done on the fly, a vector of output positions at a time.

`emit_conv_packs` defines, for one source dtype and accumulator:
    @graphc_pack_window_rows_<src>_<acc>     right operand, k = (channel, tap), n = position
    @graphc_pack_window_columns_<src>_<acc>  right operand, k = position, n = (channel, tap)
    @graphc_pack_weights_<src>_<acc>         left operand, m = row, k = (channel, tap)

Neighbouring positions lie in segments: runs within one row of the output grid. Where the width has
step 1 a vector is loaded by one masked load per segment (4 at most), else it is gathered. Which
lanes of a tap fall outside the input is a product of three tables, one per dimension.
"""

from collections.abc import Callable

from graphc.backends.llvm.conv_geometry import DEPTH, HEIGHT, WIDTH, Window, Words, table_bytes
from graphc.backends.llvm.gemm_descriptor import Descriptor, Word
from graphc.backends.llvm.gemm_pack import (
    LEFT_PARAMETERS,
    RIGHT_PARAMETERS,
    Source,
    emit_transpose,
    packed_vectors,
    transpose_symbol,
)
from graphc.backends.llvm.gemm_plan import choose
from graphc.backends.llvm.microkernel import MR
from graphc.backends.llvm.text import Function, Module, Value
from graphc.backends.llvm.values import lane_numbers, suffix

SEGMENTS = 4  # masked loads per vector, at most

_Fetch = Callable[[str, Value], str]  # (address of a tap in lane 0's image row, tap) -> vector


def emit_conv_packs(module: Module, source: Source) -> None:
    """Defines the three packers for one source dtype."""
    _Vector(module, source).emit()
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


def vector_symbol(source: Source) -> str:
    """Packs one vector of positions; see _Vector."""
    return f"@graphc_window_{source.name}"


class _Vector:
    """void (window, base, position, count, channels, to, pitch, work).

    For `count` positions from `position` on (over all images): row (channel, tap) of `channels`
    channels from `base` on goes to to + row * pitch bytes, lanes beyond `count` zero. `work` begins
    with the tap offsets and has room for the masks.
    """

    def __init__(self, module: Module, source: Source) -> None:
        self.source, self.tile = source, source.tile
        self.lanes = source.tile.lanes
        self.f = f = module.function(
            f"void {vector_symbol(source)}(ptr %g, ptr %base, i64 %position, i64 %count, "
            "i64 %channels, ptr %to, i64 %pitch, ptr %work)",
            "internal",
        )
        self.g = g = Words(f, "%g")
        self.inputs, self.sizes = g.read3(Window.IN), g.read3(Window.WINDOW)
        self.outputs, self.steps = g.read3(Window.OUT), g.read3(Window.STEP)
        self.lows, self.dilations = g.read3(Window.LOW), g.read3(Window.DILATION)
        self.taps, self.images = g.read(Window.TAPS), g.read(Window.IMAGE_STRIDE)
        self.masks = f.gep("%work", f.mul(self.taps, 8), "i8")
        # masks by depth, height and width, behind the masks by tap
        self.sides = [f.gep(self.masks, f.mul(self.taps, 4 * SEGMENTS), "i8")]
        for dim in (DEPTH, HEIGHT):
            self.sides.append(f.gep(self.sides[-1], self.sizes[dim], "i32"))
        self.ints = f"<{self.lanes} x i32>"
        self.segment_offsets = f.alloca("i64", SEGMENTS)
        self.segment_masks = f.alloca("i32", SEGMENTS)

    def emit(self) -> None:
        """Defines the function."""
        f = self.f
        f.store("zeroinitializer", f"<{SEGMENTS} x i32>", self.segment_masks, 16)
        f.store("zeroinitializer", f"<{SEGMENTS} x i64>", self.segment_offsets, 32)
        for dim in range(3):
            with f.loop(0, self.sizes[dim]) as tap:
                f.store(0, "i32", f.gep(self.sides[dim], tap, "i32"), 4)
        segments, offsets, first = self._find_segments()
        one_step = f.cmp("eq", self.steps[WIDTH], 1)
        few = f.cmp("sle", segments, SEGMENTS)
        loads = f.let(f"and i1 {one_step}, {few}")
        with f.when(f.let(f"xor i1 {loads}, true")):
            f.store(-1, "i32", self.segment_masks, 4)
        self._combine_masks()
        self._copy(loads, segments, offsets, first)
        f.ret()

    def _splat(self, value: Value) -> str:
        f, kind = self.f, self.ints
        narrow = f.let(f"trunc i64 {value} to i32")
        first = f.let(f"insertelement {kind} poison, i32 {narrow}, i64 0")
        return f.let(f"shufflevector {kind} {first}, {kind} poison, {kind} zeroinitializer")

    def _find_segments(self) -> tuple[Value, str, str]:
        """Cuts the positions into segments; returns (how many, gather offsets, first image)."""
        f = self.f
        depth, height, width = self.outputs
        self.numbers = f.let(
            f"mul {self.ints} {lane_numbers(self.lanes, 'i32')}, {self._splat(self.steps[WIDTH])}"
        )
        self.width_limit = self._splat(self.inputs[WIDTH])
        ow = f.srem("%position", width)
        rest = f.sdiv("%position", width)
        oh = f.srem(rest, height)
        rest = f.sdiv(rest, height)
        od, image = f.srem(rest, depth), f.sdiv(rest, depth)
        base = f.gep("%base", f.mul(image, self.images), self.source.element)
        counters = [("i64", str(value)) for value in (ow, oh, od, 0, 0)]
        start = [*counters, (self.ints, "zeroinitializer")]
        loop = f.carry_loop(0, "%count", "%take", start)
        ow, oh, od, shift, number, offsets = loop.values
        room = f.sub(width, ow)
        f.module.declare("declare i64 @llvm.smin.i64(i64, i64)")
        left = f.sub("%count", loop.index)
        f.emit(f"%take = call i64 @llvm.smin.i64(i64 {room}, i64 {left})")
        offsets = self._add_segment(loop.index, (od, oh, ow), shift, number, offsets)
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
        results = loop.close([*(str(value) for value in after), offsets])
        return results[4], results[5], base

    def _wraps(self, value: Value, size: str) -> str:
        """1 where a counter has reached its size."""
        return self.f.let(f"zext i1 {self.f.cmp('eq', value, size)} to i64")

    def _unless(self, wrapped: str, value: Value) -> str:
        """0 if wrapped, else the value."""
        return str(choose(self.f, self.f.cmp("ne", wrapped, 0), 0, value))

    def _add_segment(
        self, lane: Value, at: tuple[str, str, str], shift: Value, number: Value, offsets: str
    ) -> str:
        """Notes one segment: its offset and lanes, and which lanes each tap finds inside."""
        f = self.f
        starts = [
            f.sub(f.mul(position, step), low)
            for position, step, low in zip(at, self.steps, self.lows, strict=True)
        ]
        take, at_lane = (f.let(f"trunc i64 {value} to i32") for value in ("%take", lane))
        ones = f.let(f"sub i32 {f.let(f'shl i32 1, {take}')}, 1")
        bits = f.let(f"shl i32 {ones}, {at_lane}")
        for dim in (DEPTH, HEIGHT):
            with f.loop(0, self.sizes[dim]) as tap:
                place = f.add(starts[dim], f.mul(tap, self.dilations[dim]))
                inside = f.cmp("ult", place, self.inputs[dim])
                self._add_bits(dim, tap, f.let(f"select i1 {inside}, i32 {bits}, i32 0"))
        column = f.sub(starts[WIDTH], f.mul(lane, self.steps[WIDTH]))
        places = f.let(f"add {self.ints} {self._splat(column)}, {self.numbers}")
        with f.loop(0, self.sizes[WIDTH]) as tap:
            moved = self._splat(f.mul(tap, self.dilations[WIDTH]))
            moved = f.let(f"add {self.ints} {places}, {moved}")
            inside = f.let(f"icmp ult {self.ints} {moved}, {self.width_limit}")
            found = f.let(f"bitcast <{self.lanes} x i1> {inside} to i{self.lanes}")
            wide = f.let(f"zext i{self.lanes} {found} to i32")
            self._add_bits(WIDTH, tap, f.let(f"and i32 {wide}, {bits}"))
        plane = f.add(f.mul(starts[DEPTH], self.inputs[HEIGHT]), starts[HEIGHT])
        offset = f.add(f.add(shift, f.mul(plane, self.inputs[WIDTH])), column)
        slot = f.smin(number, SEGMENTS - 1)
        f.store(offset, "i64", f.gep(self.segment_offsets, slot, "i64"), 8)
        f.store(bits, "i32", f.gep(self.segment_masks, slot, "i32"), 4)
        lanes = self._lanes_of(bits)
        new = f.let(f"add {self.ints} {self._splat(offset)}, {self.numbers}")
        kinds = f"<{self.lanes} x i1> {lanes}, {self.ints} {new}, {self.ints} {offsets}"
        return f.let(f"select {kinds}")

    def _add_bits(self, dim: int, tap: Value, bits: str) -> None:
        f = self.f
        place = f.gep(self.sides[dim], tap, "i32")
        f.store(f.let(f"or i32 {f.load(place, 'i32', 4)}, {bits}"), "i32", place, 4)

    def _lanes_of(self, bits: str) -> str:
        """A mask vector from its bits."""
        narrow = self.f.let(f"trunc i32 {bits} to i{self.lanes}")
        return self.f.let(f"bitcast i{self.lanes} {narrow} to <{self.lanes} x i1>")

    def _combine_masks(self) -> None:
        """masks[segment][tap]: the lanes of a segment that a tap finds inside the input."""
        f = self.f
        parts = [
            f.load(f.gep(self.segment_masks, index, "i32"), "i32", 4) for index in range(SEGMENTS)
        ]
        rest = f.let(f"or i32 {f.let(f'or i32 {parts[1]}, {parts[2]}')}, {parts[3]}")
        several = f.let(f"icmp ne i32 {rest}, 0")
        with f.loop(0, self.sizes[DEPTH]) as kd:
            deep = f.load(f.gep(self.sides[DEPTH], kd, "i32"), "i32", 4)
            with f.loop(0, self.sizes[HEIGHT]) as kh:
                high = f.load(f.gep(self.sides[HEIGHT], kh, "i32"), "i32", 4)
                high = f.let(f"and i32 {deep}, {high}")
                row = f.mul(f.add(f.mul(kd, self.sizes[HEIGHT]), kh), self.sizes[WIDTH])
                with f.loop(0, self.sizes[WIDTH]) as kw:
                    wide = f.load(f.gep(self.sides[WIDTH], kw, "i32"), "i32", 4)
                    mask = f.let(f"and i32 {wide}, {high}")
                    tap = f.add(row, kw)
                    self._store_mask(mask, parts[0], tap)
                    with f.when(several):
                        for index in range(1, SEGMENTS):
                            at = f.add(f.mul(self.taps, index), tap)
                            self._store_mask(mask, parts[index], at)

    def _store_mask(self, mask: str, part: str, at: Value) -> None:
        f = self.f
        f.store(f.let(f"and i32 {mask}, {part}"), "i32", f.gep(self.masks, at, "i32"), 4)

    def _copy(self, loads: str, segments: Value, offsets: str, base: str) -> None:
        """The loops over channels and taps, one for each number of segments, and for gathering."""
        f = self.f
        done, by_load, by_gather = f.label("done"), f.label("loads"), f.label("gather")
        f.cond_br(loads, by_load, by_gather)
        f.block(by_gather)
        self._copy_loop(lambda at, tap: self._gather(at, tap, offsets), base)
        f.br(done)
        f.block(by_load)
        starts = [
            f.load(f.gep(self.segment_offsets, index, "i64"), "i64", 8)
            for index in range(SEGMENTS)
        ]
        for count in (1, 2, SEGMENTS):
            this, following = f.label("segments"), f.label("more")
            enough = "true" if count == SEGMENTS else f.cmp("sle", segments, count)
            f.cond_br(enough, this, following)
            f.block(this)
            self._copy_loop(lambda at, tap, n=count: self._load(at, tap, starts[:n]), base)  # type: ignore[misc]
            f.br(done)
            if count < SEGMENTS:
                f.block(following)
        f.block(done)

    def _copy_loop(self, fetch: _Fetch, base: str) -> None:
        f, size = self.f, self.source.element
        stride = self.g.read(Window.CHANNEL_STRIDE)
        row = f.mul(self.taps, "%pitch")
        with f.loop(0, "%channels") as channel:
            place = f.gep(base, f.mul(channel, stride), size)
            to = f.gep("%to", f.mul(channel, row), "i8")
            with f.loop(0, self.taps) as tap:
                offset = f.load(f.gep("%work", tap, "i64"), "i64", 8)
                value = fetch(f.gep(place, offset, size), tap)
                value = self.source.convert(f, value, self.lanes)
                at = f.gep(to, f.mul(tap, "%pitch"), "i8")
                f.store(value, self.tile.vector, at, self.tile.bytes)

    def _load(self, at: str, tap: Value, starts: list[str]) -> str:
        f = self.f
        value = "zeroinitializer"
        for index, start in enumerate(starts):
            place = f.gep(at, start, self.source.element)
            value = self.source.load_masked(f, place, self._tap_mask(index, tap), value)
        return value

    def _tap_mask(self, segment: int, tap: Value) -> str:
        f = self.f
        at = f.add(f.mul(self.taps, segment), tap)
        return self._lanes_of(f.load(f.gep(self.masks, at, "i32"), "i32", 4))

    def _gather(self, at: str, tap: Value, offsets: str) -> str:
        f, lanes, element = self.f, self.lanes, self.source.element
        kind, bits = f"<{lanes} x {element}>", f"<{lanes} x i1>"
        name = f"{suffix(self.source.dtype, lanes, memory=True)}.v{lanes}p0"
        callee = f"@llvm.masked.gather.{name}"
        f.module.declare(f"declare {kind} {callee}(<{lanes} x ptr>, i32, {bits}, {kind})")
        places = f.let(f"getelementptr {element}, ptr {at}, {self.ints} {offsets}")
        return f.call(
            kind,
            callee,
            f"<{lanes} x ptr> {places}",
            f"i32 {self.source.dtype.itemsize}",
            f"{bits} {self._tap_mask(0, tap)}",
            f"{kind} zeroinitializer",
        )


def _begin_pack(f: Function) -> tuple[Descriptor, Words, Value]:
    """(descriptor, window, taps) of a packer, its tap offsets computed."""
    d = Descriptor(f, "%d")
    window = d.pointer_at(Word.GEOMETRY)
    f.call("void", "@graphc_tap_offsets", f"ptr {window}", "ptr %scratch")
    g = Words(f, window)
    return d, g, f.smax(g.read(Window.TAPS), 1)


def _emit_pack_rows(module: Module, source: Source) -> None:
    """k = (channel, tap), whole channels; n = position."""
    f = module.function(f"void @graphc_pack_window_rows_{source.name}({RIGHT_PARAMETERS})")
    tile = source.tile
    _, g, taps = _begin_pack(f)
    channel, channels = f.sdiv("%k", taps), f.sdiv("%steps", taps)
    offset = f.mul(channel, g.read(Window.CHANNEL_STRIDE))
    base = f.gep("%base", offset, source.element)
    with packed_vectors(f, tile, "%columns", "%steps") as (column, to, pitch):
        count = f.smin(f.sub("%columns", column), tile.lanes)
        values = (f.add("%n", column), count, channels)
        f.call(
            "void",
            vector_symbol(source),
            f"ptr {g.pointer}",
            f"ptr {base}",
            *(f"i64 {v}" for v in values),
            f"ptr {to}",
            f"i64 {f.mul(pitch, tile.bytes)}",
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
    channel = f.sdiv("%n", taps)
    end = f.sdiv(f.add(f.add("%n", "%columns"), f.sub(taps, 1)), taps)
    skipped = f.sub("%n", f.mul(channel, taps))
    offset = f.mul(channel, g.read(Window.CHANNEL_STRIDE))
    base = f.gep("%base", offset, source.element)
    windows = f.add(f.add(*g.read3(Window.WINDOW)[:2]), g.read(Window.WINDOW, WIDTH))
    rows = f.gep("%scratch", f.mul(f.floordiv(table_bytes(f, taps, windows), 64), 64), "i8")
    first = f.gep(rows, f.mul(skipped, square), "i8")
    with f.loop(0, "%steps", tile.lanes) as step:
        count = f.smin(f.sub("%steps", step), tile.lanes)
        values = (f.add("%k", step), count, f.sub(end, channel))
        f.call(
            "void",
            vector_symbol(source),
            f"ptr {g.pointer}",
            f"ptr {base}",
            *(f"i64 {v}" for v in values),
            f"ptr {rows}",
            f"i64 {square}",
            "ptr %scratch",
        )
        whole = f.cmp("eq", count, tile.lanes)
        with packed_vectors(f, tile, "%columns", "%steps") as (column, to, pitch):
            source_rows = f.gep(first, f.mul(column, square), "i8")
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
