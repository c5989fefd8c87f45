"""Convolutions whose tiles read a copy of the input for each tap along a line.

Such a copy has lines as long as the output's: pixel x of the copy for tap kw is what output x of
that line meets there, 0 beside the image. So positions side by side are side by side in it whatever
the stride, wherever lines end, and a tap further down is whole lines further on: no position is
computed in vain but in the last register of an image, and each pixel is copied once per tap of a
line where packing copies it once per tap. A chunk makes the copies of a block of k, for the lines
that its columns see, in its own scratch: they stay in the second cache. For sizes that are known
(`ir/kernel/plan_shifts.py`).

PACK_RIGHT makes them, and a pointer for each register of positions; B_STEP is a table of where each
row (channel, tap) of a block begins, in bytes: channel, kw, phase of the lines (y % stride), line.
"""

from collections.abc import Callable

from graphc.backends.llvm.conv import Request, conv_symbol, emit_bases
from graphc.backends.llvm.conv_copy import Copy, emit_places_epilogue
from graphc.backends.llvm.conv_geometry import HEIGHT, WIDTH, Window, Words
from graphc.backends.llvm.conv_positions import Positions
from graphc.backends.llvm.gemm_descriptor import ENTRY, Descriptor, Word
from graphc.backends.llvm.gemm_pack import RIGHT_PARAMETERS, Source
from graphc.backends.llvm.gemm_plan import Number, ceil_div, clamp, round_up, value_of
from graphc.backends.llvm.lane_masks import lanes_of
from graphc.backends.llvm.microkernel import LINE, Tile
from graphc.backends.llvm.text import Module, Value
from graphc.backends.llvm.values import lane_numbers, shuffle_mask
from graphc.ir import dtypes
from graphc.ir.kernel.blocking import ALIGN, POINTER_BYTES
from graphc.ir.kernel.plan_shifts import MASK_BYTES, shifts_of

SHIFTS = "conv_shifts"  # a kind of conv.conv_symbol


def emit_forward_by_shifts(module: Module, tile: Tile) -> None:
    """Defines the driver, and what it calls."""
    emit_bases(module)
    emit_places_epilogue(module, tile)
    _Pack(module, tile).emit()
    f = module.function(f"void {conv_symbol(SHIFTS, tile)}(ptr %request)", "", ENTRY)
    r = Request(f, tile)
    r.set_groups(f.mul(r.outputs, r.filter), f.mul(r.channels, r.pixels))
    r.write_input_window()

    def numbers(*values: Value) -> list[Number]:
        return [Number(f, value) for value in values]

    filter_, taps, step, dilation, images = numbers(
        r.filter, r.taps, r.stride[HEIGHT], r.dilation[HEIGHT], r.batch
    )
    (height, width), (lines, length) = numbers(*r.window[1:]), numbers(*r.output[1:])
    shifts = shifts_of(
        filter_, taps, (height, width), step, dilation, (lines, length), images, tile.tiling,
        tile.bytes,
    )
    phase, phases = value_of(shifts.phase), value_of(shifts.copies // width)
    positions = Positions(r)
    for field, value in (
        (Copy.PHASES, phases), (Copy.PHASE, phase), (Copy.MASKS, value_of(shifts.masks)),
    ):
        positions.copy.write(field, value)
    channels = value_of(shifts.channels)
    _fill_offsets(r, positions.table, channels, (phases, phase))
    size = round_up(f, f.mul(f.mul(channels, r.taps), POINTER_BYTES), ALIGN)
    positions.contract(size, _pack_symbol(tile), {
        Word.K_QUANTUM: r.taps,
        Word.PACK_SCRATCH: value_of(shifts.scratch),
        Word.POINTER_COLUMNS: tile.lanes,
        Word.MOST_COLUMNS: value_of(shifts.columns),
        Word.B_STEP_K: 0,
    })


def _fill_offsets(r: Request, offsets: str, channels: Value, sizes: tuple[Value, Value]) -> None:
    """Of a block's rows, in bytes."""
    f, (phases, phase) = r.f, sizes
    with (
        f.loop(0, channels) as channel,
        f.loop(0, r.window[HEIGHT]) as kh,
        f.loop(0, r.window[WIDTH]) as kw,
    ):
        down = f.mul(kh, r.dilation[HEIGHT])
        line, upper = f.sdiv(down, r.stride[HEIGHT]), f.srem(down, r.stride[HEIGHT])
        copy = f.add(f.mul(f.add(f.mul(channel, r.window[WIDTH]), kw), phases), upper)
        offset = f.add(f.mul(copy, phase), f.mul(line, r.output[WIDTH]))
        tap = f.add(f.mul(kh, r.window[WIDTH]), kw)
        entry = f.gep(offsets, f.add(f.mul(channel, r.taps), tap), "i64")
        f.store(f.mul(offset, r.tile.bytes), "i64", entry, 8)


def _pack_symbol(tile: Tile) -> str:
    return f"@graphc_pack_shifts_{tile.name}"


class _Pack:
    """A pack_right: the copies of a block for some columns, and pointers to their registers."""

    def __init__(self, module: Module, tile: Tile) -> None:
        self.tile, self.source = tile, Source(dtypes.by_name(tile.accumulator), tile)
        self.ints = f"<{tile.lanes} x i32>"
        self.f = f = module.function(f"void {_pack_symbol(tile)}({RIGHT_PARAMETERS})", "internal")
        d = Descriptor(f, "%d")
        c, g = Words(f, d.pointer_at(Word.COPY)), Words(f, d.pointer_at(Word.GEOMETRY))
        self.vectors, self.phases, self.phase = (
            c.read(field) for field in (Copy.VECTORS, Copy.PHASES, Copy.PHASE)
        )
        self.channel, self.image = g.read(Window.CHANNEL_STRIDE), g.read(Window.IMAGE_STRIDE)
        self.taps = g.read(Window.TAPS)
        (
            (self.in_height, self.in_width), (self.kernel_height, self.kernel_width),
            (self.lines, self.length), (self.step_height, self.step), (self.above, self.before),
            (self.down, self.across),
        ) = (
            [g.read(field, dim) for dim in (HEIGHT, WIDTH)]
            for field in (
                Window.IN, Window.WINDOW, Window.OUT, Window.STEP, Window.LOW, Window.DILATION
            )
        )
        self.halo = f.sdiv(f.mul(f.sub(self.kernel_height, 1), self.down), self.step_height)
        self.registers = ceil_div(f, self.length, tile.lanes)
        self.copies = f.gep("%scratch", c.read(Copy.MASKS), "i8")

    def emit(self) -> None:
        """Defines it: image by image."""
        f, tile = self.f, self.tile
        self._fill_masks()
        total = f.floordiv(f.add("%columns", tile.lanes - 1), tile.lanes)
        number = f.floordiv("%n", tile.lanes)
        first = f.mul(f.sdiv("%k", self.taps), self.channel)
        source = f.gep("%base", first, tile.element)
        begin: list[tuple[str, str]] = [
            ("i64", str(value))
            for value in (f.srem(number, self.vectors), f.sdiv(number, self.vectors), 0)
        ]
        f.module.declare("declare i64 @llvm.smin.i64(i64, i64)")
        loop = f.carry_loop(0, total, "%some", begin)
        at, image, line = loop.values
        room, left = f.sub(self.vectors, at), f.sub(total, loop.index)
        f.emit(f"%some = call i64 @llvm.smin.i64(i64 {room}, i64 {left})")
        position = f.mul(at, tile.lanes)
        end = f.smin(f.add(position, f.mul("%some", tile.lanes)), f.mul(self.lines, self.length))
        top = f.sdiv(position, self.length)
        own = f.add(f.sub(f.sdiv(f.sub(end, 1), self.length), top), 1)
        count = f.add(own, self.halo)
        start = f.add(f.mul(f.sub(line, top), self.length), position)
        with f.loop(0, "%some") as index:
            place = f.gep(self.copies, f.add(start, f.mul(index, tile.lanes)), tile.element)
            f.store(place, "ptr", f.gep("%to", f.add(loop.index, index), "ptr"), 8)
        picture = f.gep(source, f.mul(image, self.image), tile.element)
        to = f.gep(self.copies, f.mul(line, self.length), tile.element)
        self._copy(picture, to, top, count)
        loop.close([str(value) for value in (0, f.add(image, 1), f.add(line, count))])
        f.ret()

    def _splat(self, value: Value) -> str:
        f, ints = self.f, self.ints
        number = f.let(f"trunc i64 {value} to i32")
        first = f.let(f"insertelement {ints} poison, i32 {number}, i64 0")
        zeros = f"<{self.tile.lanes} x i32> zeroinitializer"
        return f.let(f"shufflevector {ints} {first}, {ints} poison, {zeros}")

    def _fill_masks(self) -> None:
        """Two for each tap of a line and register of it: which of its pixels the image has; at step
        2 those of the two registers that it is every second element of."""
        f, lanes = self.f, self.tile.lanes
        numbers, limit = lane_numbers(lanes, "i32"), self._splat(self.in_width)
        double = f.cmp("eq", self.step, 2)
        apart = f.let(f"select i1 {double}, i64 1, i64 {self.step}")
        steps = f.let(f"mul {self.ints} {numbers}, {self._splat(apart)}")
        with f.loop(0, self.kernel_width) as tap, f.loop(0, self.registers) as index:
            first = f.mul(f.mul(index, lanes), self.step)
            column = f.add(first, f.sub(f.mul(tap, self.across), self.before))
            for number, further in enumerate((0, lanes)):
                places = self._splat(f.add(column, further))
                places = f.let(f"add {self.ints} {places}, {steps}")
                inside = f.let(f"icmp ult {self.ints} {places}, {limit}")
                bits = f.let(f"bitcast <{lanes} x i1> {inside} to i{lanes}")
                mask = f.let(f"zext i{lanes} {bits} to i32")
                f.store(mask, "i32", f.gep(self._masks(tap, index), number, "i32"), 4)

    def _masks(self, tap: Value, index: Value) -> str:
        at = self.f.add(self.f.mul(tap, self.registers), index)
        return self.f.gep("%scratch", self.f.mul(at, MASK_BYTES), "i8")

    def _copy(self, picture: str, to: str, top: Value, count: Value) -> None:
        """`count` lines of all copies, of which the first is that of the output's line `top`."""
        f = self.f
        channels = f.sdiv("%steps", self.taps)
        first = f.mul(top, self.step_height)
        begin = f.smax(f.sub(first, self.above), 0)
        rows = f.add(f.mul(count, self.step_height), f.smin(f.sub(first, self.above), 0))
        ahead = f.mul(f.mul(rows, self.in_width), self.tile.bytes)
        begin = f.mul(begin, self.in_width)
        with f.loop(0, channels) as channel:
            plane = f.gep(picture, f.mul(channel, self.channel), self.tile.element)
            self._ask_for(plane, f.add(begin, self.channel), ahead)
            self._copy_channel(plane, to, channel, first, count)

    def _ask_for(self, plane: str, begin: Value, size: Value) -> None:
        """Has the lines come that the next channel's copies read, in the order of memory."""
        f = self.f
        f.module.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        # not inbounds: there may be no such channel
        at = f.let(f"getelementptr {self.tile.element}, ptr {plane}, i64 {begin}")
        with f.loop(0, size, LINE) as further:
            place = f.let(f"getelementptr i8, ptr {at}, i64 {further}")
            f.call("void", "@llvm.prefetch.p0", f"ptr {place}", "i32 0", "i32 3", "i32 1")

    def _copy_channel(
        self, plane: str, to: str, channel: Value, first: Value, count: Value
    ) -> None:
        """`first`: the image's line that the first of the phase 0 would be, if none was above."""
        f = self.f
        with f.loop(0, self.kernel_width) as tap:
            shift = f.sub(f.mul(tap, self.across), self.before)
            with f.loop(0, self.phases) as upper:
                number = f.add(f.mul(channel, self.kernel_width), tap)
                number = f.add(f.mul(number, self.phases), upper)
                goal = f.gep(to, f.mul(number, self.phase), self.tile.element)
                y = f.sub(f.add(first, upper), self.above)  # of the first line
                begin = f.opaque(clamp(f, ceil_div(f, f.sub(0, y), self.step_height), 0, count))
                beyond = ceil_div(f, f.sub(self.in_height, y), self.step_height)
                end = f.opaque(clamp(f, beyond, begin, count))
                at = f.add(f.mul(y, self.in_width), shift)
                self._phase(plane, goal, (begin, end, count), at, tap)

    def _phase(
        self, plane: str, goal: str, lines: tuple[Value, Value, Value], at: Value, tap: Value
    ) -> None:
        """Lines of zeros, of the image, and of zeros, which begin at an element of the plane.

        The last register of a line is stored first, and lines in order: what of it is behind the
        line is overwritten.
        """
        f, lanes, (begin, end, count) = self.f, self.tile.lanes, lines
        last = f.sub(self.registers, 1)
        with f.loop(0, self.registers) as number:
            index = f.sub(last, number)
            column = f.mul(index, lanes)
            to = f.frozen(f.gep(goal, column, self.tile.element))
            masks = self._masks(tap, index)
            low, high = (
                lanes_of(f, self.tile, f.load(f.gep(masks, each, "i32"), "i32", 4), "i32")
                for each in (0, 1)
            )
            from_ = f.gep(plane, f.add(at, f.mul(column, self.step)), self.tile.element)
            from_ = f.frozen(from_)
            self._lines(to, 0, begin, lambda line: self.tile.zero())
            apart = f.mul(self.in_width, self.step_height)
            done = f.label("read")
            for step in (1, 2, 0):
                this, other = f.label("step"), f.label("step")
                if step:
                    f.cond_br(f.cmp("eq", self.step, step), this, other)
                    f.block(this)

                def read(
                    line: Value, step: int = step, from_: str = from_, low: str = low,
                    high: str = high, apart: Value = apart,
                ) -> str:
                    place = f.gep(from_, f.mul(line, apart), self.tile.element)
                    return self._read(place, step, low, high)

                self._lines(to, begin, end, read)
                f.br(done)
                if step:
                    f.block(other)
            f.block(done)
            self._lines(to, end, count, lambda line: self.tile.zero())

    def _lines(
        self, to: str, begin: Value, end: Value, read: Callable[[Value], str]
    ) -> None:
        f, tile = self.f, self.tile
        with f.loop(begin, end) as line:
            place = f.gep(to, f.mul(line, self.length), tile.element)
            f.store(read(line), tile.vector, place, tile.bytes)

    def _read(self, place: str, step: int, low: str, high: str) -> str:
        """A register of a line, 0 where the image has no pixel."""
        f, tile, lanes = self.f, self.tile, self.tile.lanes
        if step == 0:
            steps = self._splat(self.step)
            offsets = f.let(f"mul {self.ints} {lane_numbers(lanes, 'i32')}, {steps}")
            return self.source.gather(f, place, f"{self.ints} {offsets}", low)
        value = self.source.load_masked(f, place, low)
        if step == 1:
            return value
        other = self.source.load_masked(f, f.gep(place, lanes, tile.element), high)
        even = shuffle_mask(0, lanes, 2)
        return f.let(f"shufflevector {tile.vector} {value}, {tile.vector} {other}, {even}")
