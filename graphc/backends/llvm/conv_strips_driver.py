"""The code that convolutions done strip by strip share: the rule is in `ir/kernel/plan_strips.py`.

    @graphc_conv_strips_<acc>(request)                the weights, then the strips
    @graphc_conv_strip_weights_<acc>(request, chunk)  the weights of a panel: [tap][channel][column]
    @graphc_conv_strip_<acc>(request, chunk)          a strip of an image: some lines of the output
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import NamedTuple

from graphc.backends.llvm.conv_geometry import Words
from graphc.backends.llvm.conv_strips_tile import Shape, Tiles
from graphc.backends.llvm.gemm_descriptor import ENTRY, WORDS, Descriptor, Word
from graphc.backends.llvm.gemm_pack import (
    Source,
    declare_transpose,
    first_lanes,
    transpose_symbol,
)
from graphc.backends.llvm.gemm_plan import ceil_div, choose, clamp
from graphc.backends.llvm.gemm_stages import give_slot, run_symbol, take_slot
from graphc.backends.llvm.gemm_words import word
from graphc.backends.llvm.microkernel import Tile
from graphc.backends.llvm.text import Function, Module, Value


class Strips(enum.IntEnum):
    """A request."""

    LEFT = 0
    RIGHT = enum.auto()
    ARGUMENTS = enum.auto()  # of the epilogue
    EPILOGUE = enum.auto()
    MEMORY = enum.auto()  # scratch: the panels of weights, and that of chunks
    WORKERS = enum.auto()
    SHAPE = enum.auto()
    KERNELS = enum.auto()  # a tile for each span
    SLOTS = enum.auto()  # the driver's: a descriptor, of which take_slot asks what is filled in


def strips_symbol(tile: Tile) -> str:
    """void (request)."""
    return f"@graphc_conv_strips_{tile.name}"


def emit_strip_driver(module: Module, tile: Tile) -> None:
    """Defines it, and what it calls."""
    _Driver(module, tile).emit()


class _Rows(NamedTuple):
    """The rows of a square in memory: elements `apart`; where a word has two, the second is `other`
    elements further, but for those of a channel alone."""

    f: Function
    element: str
    first: str
    apart: Value
    other: Value
    is_alone: Callable[[Value], str]

    def place(self, row: Value) -> str:
        """Where one begins."""
        return self.f.gep(self.first, self.f.mul(row, self.apart), self.element)


class _Driver:
    def __init__(self, module: Module, tile: Tile) -> None:
        self.module, self.tile = module, tile
        self.source = Source(tile.step.left, tile)
        declare_transpose(module, tile)

    def emit(self) -> None:
        """All of it."""
        self._emit_weights()
        self._emit_strip()
        f = self.module.function(f"void {strips_symbol(self.tile)}(ptr %request)", "", ENTRY)
        r = Words(f, "%request")
        s = Words(f, r.read_pointer(Strips.SHAPE))
        d = Descriptor(f, f.alloca("i64", WORDS))
        d.set_pointer(Word.MEMORY, r.read_pointer(Strips.MEMORY))
        words: dict[Word, Value] = {
            Word.CHUNKS_AT: s.read(Shape.WEIGHT_BYTES), Word.CHUNK_SCRATCH: s.read(Shape.SCRATCH),
            Word.WORKERS: r.read(Strips.WORKERS), Word.SLOTS: s.read(Shape.SLOTS),
        }
        for field, number in words.items():
            d[field] = number
        f.store(0, "i64", d.place(Word.BUSY), 8)
        r.write_pointer(Strips.SLOTS, d.pointer)
        run = run_symbol(self.module)
        for part, count in (("_weights", Shape.WEIGHT_CHUNKS), ("", Shape.CHUNKS)):
            f.call(
                "void", run, f"ptr {self._part(part)}", "ptr %request", f"i64 {s.read(count)}"
            )
        f.ret()

    def _part(self, part: str) -> str:
        return f"@graphc_conv_strip{part}_{self.tile.name}"

    def _function(self, part: str) -> tuple[Function, Words, Words]:
        """A function over chunks, with its request, and shape."""
        f = self.module.function(
            f"void {self._part(part)}(ptr noalias readonly %request, i64 %chunk)", "internal"
        )
        r = Words(f, "%request")
        return f, r, Words(f, r.read_pointer(Strips.SHAPE))

    def _turn(
        self, f: Function, buffers: list[str], rows: _Rows, sizes: tuple[Value, Value],
        to: tuple[str, Value] | None = None,
    ) -> None:
        """A square of at most so many rows and columns (`sizes`), to `to`, so many elements apart,
        or else to the second buffer; what is missing is 0."""
        tile, lanes = self.tile, self.tile.lanes
        (height, count), square_bytes = sizes, lanes * tile.bytes
        goal, apart = (to[0], f.mul(to[1], tile.bytes)) if to else (buffers[1], square_bytes)
        whole = f.let(
            f"and i1 {f.cmp('sge', height, lanes)}, {f.cmp('sge', count, lanes)}"
        )
        this, part, done = f.label("whole"), f.label("part"), f.label("turned")
        f.cond_br(whole, this, part)
        turn = transpose_symbol(tile)
        for label in (this, part):
            f.block(label)
            from_: str = buffers[0]
            pitch: Value = square_bytes
            if label == this and tile.group == 1:
                from_, pitch = rows.place(0), f.mul(rows.apart, tile.bytes)
            else:
                some = lanes if label == this else f.smin(height, lanes)
                mask = "" if label == this else first_lanes(f, tile, count)
                with f.loop(0, some) as row:
                    value = self._row(f, rows, row, mask)
                    f.store(value, tile.vector, f.gep(from_, row, tile.vector), tile.bytes)
                with f.loop(some, lanes) as row:
                    f.store(tile.zero(), tile.vector, f.gep(from_, row, tile.vector), tile.bytes)
            f.call(
                "void", turn, f"ptr {from_}", f"i64 {pitch}", f"ptr {goal}", f"i64 {apart}"
            )
            f.br(done)
        f.block(done)

    def _row(self, f: Function, rows: _Rows, row: Value, mask: str) -> str:
        """A row of a square; words of channels."""
        source = self.source

        def load(place: str) -> str:
            return source.load_masked(f, place, mask) if mask else source.load_vector(f, place)

        place = rows.place(row)
        if self.tile.group == 1:
            return load(place)
        alone = rows.is_alone(row)
        other = f.gep(place, choose(f, alone, 0, rows.other), source.element)
        high = f.let(
            f"select i1 {alone}, {self.tile.vector} zeroinitializer, "
            f"{self.tile.vector} {load(other)}"
        )
        return word(f, self.tile, [load(place), high], self.tile.lanes)

    def _ask_for(self, f: Function, square: str, pitch: Value) -> None:
        """Has the next channels come: the core does not expect lines of so many planes."""
        lanes, element = self.tile.lanes, self.source.element
        f.module.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        with f.loop(lanes, 2 * lanes) as row:
            # not inbounds: there may be fewer
            place = f.let(f"getelementptr {element}, ptr {square}, i64 {f.mul(row, pitch)}")
            f.call("void", "@llvm.prefetch.p0", f"ptr {place}", "i32 0", "i32 2", "i32 1")

    def _emit_weights(self) -> None:
        f, r, s = self._function("_weights")
        tile, lanes, element = self.tile, self.tile.lanes, self.source.element
        channels, outputs, taps, words, panels, vectors, panel_size = (
            s.read(field) for field in (
                Shape.CHANNELS, Shape.OUTPUTS, Shape.TAPS, Shape.DEPTH, Shape.PANELS,
                Shape.VECTORS, Shape.PANEL,
            )
        )
        k, columns = f.mul(channels, taps), f.mul(vectors, lanes)
        group, panel = f.sdiv("%chunk", panels), f.srem("%chunk", panels)
        first = f.mul(panel, columns)
        base = f.gep(
            r.read_pointer(Strips.LEFT), f.mul(f.add(f.mul(group, outputs), first), k), element
        )
        to = f.gep(r.read_pointer(Strips.MEMORY), f.mul("%chunk", panel_size), tile.element)
        buffers = [f.alloca(tile.vector, lanes) for _ in range(2)]
        next_tap = f.mul(words, columns)
        # squares go along channels and taps; where words are of two channels, along a word's taps
        outer, inner = (1, k) if tile.group == 1 else (words, taps)
        next_channel = f.sub(columns, f.mul(f.sub(taps, 1), next_tap))  # from the last tap
        with (
            f.loop(0, vectors) as v, f.loop(0, outer) as channel, f.loop(0, inner, lanes) as step,
        ):
            row = f.mul(v, lanes)
            rows = f.smax(f.sub(f.sub(outputs, first), row), 0)
            at = f.add(f.mul(row, k), f.add(f.mul(channel, f.mul(taps, tile.group)), step))
            # not inbounds: a panel may have registers of no weights
            from_ = f.let(f"getelementptr {element}, ptr {base}, i64 {at}")
            alone = f.cmp("eq", f.add(f.mul(channel, tile.group), 1), channels)

            def is_alone(row: Value, alone: str = alone) -> str:
                return alone

            square = _Rows(f, element, from_, k, taps, is_alone)
            self._turn(f, buffers, square, (rows, f.sub(inner, step)))
            tap = f.srem(step, taps)
            place = f.add(f.mul(tap, next_tap), f.mul(channel, columns))
            if tile.group == 1:
                place = f.add(place, f.mul(f.sdiv(step, taps), columns))
            goal = f.gep(f.gep(to, row, tile.element), place, tile.element)
            count = f.smin(f.sub(inner, step), lanes)
            loop = f.carry_loop(0, count, 1, [("ptr", goal), ("i64", str(tap))])
            value = f.load(f.gep(buffers[1], loop.index, tile.vector), tile.vector, tile.bytes)
            f.store(value, tile.vector, loop.values[0], tile.bytes)
            following = f.let(f"add nsw i64 {loop.values[1]}, 1")
            is_last = f.cmp("eq", following, taps)
            further = choose(f, is_last, next_channel, next_tap)
            # not inbounds: there may be no such channel
            after = f.let(f"getelementptr {tile.element}, ptr {loop.values[0]}, i64 {further}")
            loop.close([after, str(choose(f, is_last, 0, following))])
        f.ret()

    def _emit_strip(self) -> None:
        f, r, s = self._function("")
        tile, lanes, element = self.tile, self.tile.lanes, self.source.element
        channels, words, groups, outputs, panels = (
            s.read(field) for field in (
                Shape.CHANNELS, Shape.DEPTH, Shape.GROUPS, Shape.OUTPUTS, Shape.PANELS
            )
        )
        height, width, out_height, out_width = (
            s.read(field) for field in (
                Shape.HEIGHT, Shape.WIDTH, Shape.OUT_HEIGHT, Shape.OUT_WIDTH
            )
        )
        window, step, padding, dilation = (
            s.read(field) for field in (Shape.WINDOW, Shape.STEP, Shape.LOW, Shape.DILATION)
        )
        strips, lines, pixel, pitch = (
            s.read(field) for field in (Shape.STRIPS, Shape.LINES, Shape.PIXEL, Shape.PITCH)
        )
        columns = f.mul(s.read(Shape.VECTORS), lanes)
        image, strip = f.sdiv("%chunk", strips), f.srem("%chunk", strips)
        top = f.mul(strip, lines)
        bottom = f.smin(f.add(top, lines), out_height)
        low = f.smax(f.sub(f.mul(top, step), padding), 0)
        reach = f.add(f.mul(f.sub(window, 1), dilation), 1)
        high = f.sub(f.add(f.mul(f.sub(bottom, 1), step), reach), padding)
        high = f.smin(high, height)
        slots = Descriptor(f, r.read_pointer(Strips.SLOTS))
        slot, copy = take_slot(slots)
        sums = f.gep(copy, s.read(Shape.COPIED), "i8")
        turned = f.gep(sums, s.read(Shape.SUMS), "i8")
        pixels = f.mul(height, width)
        plane = f.mul(f.mul(image, channels), pixels)
        begin = f.mul(low, width)
        # not inbounds: a strip may see nothing of the image
        source = f.let(
            f"getelementptr {element}, ptr {r.read_pointer(Strips.RIGHT)}, "
            f"i64 {f.add(plane, begin)}"
        )
        seen = f.mul(f.sub(high, low), width)
        self._copy(f, source, copy, (words, channels, pixels, seen, pixel))
        group = f.srem(image, groups)
        panel_size = s.read(Shape.PANEL)
        weights = f.gep(
            r.read_pointer(Strips.MEMORY), f.mul(f.mul(group, panels), panel_size), tile.element
        )
        given, epilogue = (
            r.read_pointer(x) for x in (Strips.ARGUMENTS, Strips.EPILOGUE)
        )
        positions = f.mul(f.sub(bottom, top), out_width)
        next_line = f.mul(f.mul(s.read(Shape.WINDOW_WIDTH), words), columns)
        with f.loop(0, panels) as panel:
            of_panel = f.gep(weights, f.mul(panel, panel_size), tile.element)
            with f.loop(top, bottom) as line:
                y = f.sub(f.mul(line, step), padding)
                first = clamp(f, ceil_div(f, f.sub(0, y), dilation), 0, window)
                last = clamp(f, ceil_div(f, f.sub(height, y), dilation), first, window)
                from_line = f.sub(f.add(y, f.mul(first, dilation)), low)
                from_line = f.mul(from_line, width)
                at_line = f.gep(of_panel, f.mul(first, next_line), tile.element)
                to_line = f.mul(f.sub(line, top), out_width)
                self._line(r, s, (copy, from_line, f.sub(last, first), at_line, sums, to_line))
            with f.loop(0, positions, lanes) as at, f.loop(0, columns, lanes) as column:
                from_ = f.gep(sums, f.add(f.mul(at, columns), column), tile.element)
                goal = f.gep(turned, f.add(f.mul(column, pitch), at), tile.element)
                f.call(
                    "void", transpose_symbol(tile), f"ptr {from_}",
                    f"i64 {f.mul(columns, tile.bytes)}", f"ptr {goal}",
                    f"i64 {f.mul(pitch, tile.bytes)}",
                )
            m = f.mul(panel, columns)
            rows = f.smin(f.sub(outputs, m), columns)
            m = f.add(f.mul(group, outputs), m)
            values = (f.sdiv(image, groups), m, rows, f.mul(top, out_width), positions)
            f.call(
                "void", epilogue, f"ptr {given}", *(f"i64 {v}" for v in values),
                f"ptr {turned}", f"i64 {pitch}",
            )
        give_slot(slots, slot)
        f.ret()

    def _copy(
        self, f: Function, source: str, copy: str, sizes: tuple[Value, Value, Value, Value, Value]
    ) -> None:
        """What a strip sees, its channels last."""
        tile, lanes, element = self.tile, self.tile.lanes, self.source.element
        words, channels, pixels, seen, pixel = sizes
        buffers = [f.alloca(tile.vector, lanes) for _ in range(2)]
        with f.loop(0, words, lanes) as channel, f.loop(0, seen, lanes) as at:
            first = f.mul(channel, tile.group)
            from_ = f.gep(source, f.add(f.mul(first, pixels), at), element)
            goal = f.gep(copy, f.add(f.mul(at, pixel), channel), tile.element)
            apart = f.mul(pixels, tile.group)
            with f.when(f.cmp("slt", f.add(channel, lanes), words)):
                self._ask_for(f, from_, apart)

            def is_alone(row: Value, first: Value = first) -> str:
                of_row = f.add(first, f.mul(row, tile.group))
                return f.cmp("eq", f.add(of_row, 1), channels)

            square = _Rows(f, element, from_, apart, pixels, is_alone)
            count = f.sub(words, channel), f.sub(seen, at)
            self._turn(f, buffers, square, count, (goal, pixel))

    def _line(
        self, r: Words, s: Words, of: tuple[str, Value, Value, str, str, Value]
    ) -> None:
        """A line's tiles, span by span."""
        f, tile = r.function, self.tile
        copy, from_line, lines, weights, sums, to_line = of
        kernels = r.read_pointer(Strips.KERNELS)
        step, low, pixel, size = (
            s.read(field) for field in (
                Shape.STEP_WIDTH, Shape.LOW_WIDTH, Shape.PIXEL, Shape.SPAN_WORDS
            )
        )
        columns = f.mul(s.read(Shape.VECTORS), tile.lanes)
        with f.loop(0, s.read(Shape.SPANS)) as index:
            span = Words(f, f.gep(s.place(Shape.FIRST_SPAN), f.mul(index, size), "i64"))
            kernel = f.load(f.gep(kernels, index, "ptr"), "ptr", 8)
            runs = span.place(Tiles.RUNS)
            rows, first = span.read(Tiles.ROWS), span.read(Tiles.FIRST)
            with f.loop(0, span.read(Tiles.COUNT)) as number:
                position = f.add(f.mul(number, rows), first)
                column = f.sub(f.mul(position, step), low)
                at = f.mul(f.add(from_line, column), pixel)
                # not inbounds: the first taps may be beside the image
                x = f.let(f"getelementptr {tile.element}, ptr {copy}, i64 {at}")
                to = f.gep(sums, f.mul(f.add(to_line, position), columns), tile.element)
                f.call(
                    "void", kernel, f"ptr {s.pointer}", f"ptr {x}", f"i64 {lines}", f"ptr {runs}",
                    f"ptr {weights}", f"ptr {to}",
                )
