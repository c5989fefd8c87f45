"""The code that convolutions done strip by strip share: the rule is in `ir/kernel/plan_strips.py`.

    @graphc_conv_strips_<acc>(request)                the weights, then the strips
    @graphc_conv_strip_weights_<acc>(request, chunk)  the weights of a panel: [tap][channel][column]
    @graphc_conv_strip_<acc>(request, chunk)          a strip of an image: some lines of the output
    @graphc_conv_strip_copy_<acc>                     what it sees
    @graphc_conv_strip_line_<acc>                     the tiles of a line (conv_strips_line.py)
    @graphc_conv_strip_turn_<acc>                     a square, turned around
"""

from __future__ import annotations

from graphc.backends.llvm.conv_geometry import Words
from graphc.backends.llvm.conv_strips_line import Strips, emit_line, seen_lines
from graphc.backends.llvm.conv_strips_tile import Shape
from graphc.backends.llvm.gemm_descriptor import ENTRY, WORDS, Descriptor, Word
from graphc.backends.llvm.gemm_pack import (
    Source,
    declare_transpose,
    first_lanes,
    transpose_symbol,
)
from graphc.backends.llvm.gemm_plan import ceil_div, choose
from graphc.backends.llvm.gemm_stages import give_slot, run_symbol, take_slot
from graphc.backends.llvm.gemm_words import word
from graphc.backends.llvm.microkernel import Tile
from graphc.backends.llvm.text import Function, Module, Value


def strips_symbol(tile: Tile) -> str:
    """void (request)."""
    return f"@graphc_conv_strips_{tile.name}"


def emit_strip_driver(module: Module, tile: Tile) -> None:
    """Defines it, and what it calls."""
    _Driver(module, tile).emit()


class _Driver:
    def __init__(self, module: Module, tile: Tile) -> None:
        self.module, self.tile = module, tile
        self.source = Source(tile.step.left, tile)
        declare_transpose(module, tile)

    def emit(self) -> None:
        """All of it."""
        self._emit_turn()
        self._emit_weights()
        self._emit_copy()
        emit_line(self.module, self.tile, self._part("_line"))
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

    def _function(
        self, part: str, more: str, attrs: str = "nounwind"
    ) -> tuple[Function, Words, Words]:
        """A function of a request and more, the request, and its shape."""
        f = self.module.function(
            f"void {self._part(part)}(ptr noalias readonly %request, {more})", "internal", attrs
        )
        r = Words(f, "%request")
        return f, r, Words(f, r.read_pointer(Strips.SHAPE))

    def _emit_turn(self) -> None:
        """A square of at most so many rows and columns, rows and columns so many elements apart;
        what is missing is 0. Where a word has two values, the second is `other` elements further,
        but for rows from `alone` on."""
        tile, lanes, element = self.tile, self.tile.lanes, self.source.element
        f = self.module.function(
            f"void {self._part('_turn')}(ptr %from, i64 %apart, i64 %other, i64 %alone, "
            "i64 %height, i64 %count, ptr %to, i64 %pitch)", "internal",
        )
        buffer, goal_pitch = f.alloca(tile.vector, lanes), f.mul("%pitch", tile.bytes)
        whole = f.let(
            f"and i1 {f.cmp('sge', '%height', lanes)}, {f.cmp('sge', '%count', lanes)}"
        )
        this, part, done = f.label("whole"), f.label("part"), f.label("turned")
        f.cond_br(whole, this, part)
        for label in (this, part):
            f.block(label)
            from_: str = buffer
            pitch: Value = lanes * tile.bytes
            if label == this and tile.group == 1:
                from_, pitch = "%from", f.mul("%apart", tile.bytes)
            else:
                some = lanes if label == this else f.smin("%height", lanes)
                mask = "" if label == this else first_lanes(f, tile, "%count")
                with f.loop(0, some) as row:
                    place = f.gep("%from", f.mul(row, "%apart"), element)
                    value = self._row(f, place, f.cmp("sge", row, "%alone"), mask)
                    f.store(value, tile.vector, f.gep(buffer, row, tile.vector), tile.bytes)
                with f.loop(some, lanes) as row:
                    f.store(tile.zero(), tile.vector, f.gep(buffer, row, tile.vector), tile.bytes)
            f.call(
                "void", transpose_symbol(tile), f"ptr {from_}", f"i64 {pitch}", "ptr %to",
                f"i64 {goal_pitch}",
            )
            f.br(done)
        f.block(done)
        f.ret()

    def _row(self, f: Function, place: str, alone: str, mask: str) -> str:
        """A row of a square; words of channels."""
        source = self.source

        def load(place: str) -> str:
            return source.load_masked(f, place, mask) if mask else source.load_vector(f, place)

        if self.tile.group == 1:
            return load(place)
        other = f.gep(place, choose(f, alone, 0, "%other"), source.element)
        high = f.let(
            f"select i1 {alone}, {self.tile.vector} zeroinitializer, "
            f"{self.tile.vector} {load(other)}"
        )
        return word(f, self.tile, [load(place), high], self.tile.lanes)

    def _turn(
        self, f: Function, from_: str, numbers: tuple[Value, ...], to: tuple[str, Value]
    ) -> None:
        f.call(
            "void", self._part("_turn"), f"ptr {from_}", *(f"i64 {n}" for n in numbers),
            f"ptr {to[0]}", f"i64 {to[1]}",
        )

    def _ask_for(self, f: Function, square: str, pitch: Value) -> None:
        """Has the next channels come: the core does not expect lines of so many planes."""
        lanes, element = self.tile.lanes, self.source.element
        f.module.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        with f.loop(lanes, 2 * lanes) as row:
            # not inbounds: there may be fewer
            place = f.let(f"getelementptr {element}, ptr {square}, i64 {f.mul(row, pitch)}")
            f.call("void", "@llvm.prefetch.p0", f"ptr {place}", "i32 0", "i32 2", "i32 1")

    def _emit_weights(self) -> None:
        f, r, s = self._function("_weights", "i64 %chunk")
        tile, lanes, element = self.tile, self.tile.lanes, self.source.element
        channels, outputs, taps, words, panels, vectors, panel_size = (
            s.read(field) for field in (
                Shape.CHANNELS, Shape.OUTPUTS, Shape.TAPS, Shape.DEPTH, Shape.PANELS,
                Shape.VECTORS, Shape.PANEL,
            )
        )
        row, next_channel, inner, turned = (
            s.read(field) for field in (
                Shape.WEIGHT_ROW, Shape.WEIGHT_CHANNEL, Shape.WEIGHT_STEPS, Shape.TURNED
            )
        )
        columns = f.mul(vectors, lanes)
        group, panel = f.sdiv("%chunk", panels), f.srem("%chunk", panels)
        first = f.mul(panel, columns)
        of_group = f.mul(f.mul(f.mul(group, outputs), channels), taps)
        base = f.gep(
            r.read_pointer(Strips.LEFT), f.add(of_group, f.mul(first, row)), element
        )
        to = f.gep(r.read_pointer(Strips.MEMORY), f.mul("%chunk", panel_size), tile.element)
        square = f.alloca(tile.vector, lanes)
        backward, span = f.cmp("ne", turned, 0), f.mul(words, columns)
        next_tap = choose(f, backward, f.sub(0, span), span)
        further = f.mul(f.sub(taps, 1), span)  # from the first tap to the last one
        origin = choose(f, backward, further, 0)
        # squares go along channels and taps, or along the taps of a word of channels
        outer = choose(f, f.cmp("eq", inner, taps), words, 1)
        to_channel = f.sub(columns, f.mul(f.sub(taps, 1), next_tap))  # from the last tap
        with (
            f.loop(0, vectors) as v, f.loop(0, outer) as channel, f.loop(0, inner, lanes) as step,
        ):
            number = f.mul(v, lanes)
            rows = f.smax(f.sub(f.sub(outputs, first), number), 0)
            at = f.mul(f.mul(channel, next_channel), tile.group)
            at = f.add(f.mul(number, row), f.add(at, step))
            # not inbounds: a panel may have registers of no weights
            from_ = f.let(f"getelementptr {element}, ptr {base}, i64 {at}")
            alone = f.cmp("eq", f.add(f.mul(channel, tile.group), 1), channels)
            self._turn(
                f, from_,
                (row, next_channel, choose(f, alone, 0, lanes), rows, f.sub(inner, step)),
                (square, lanes),
            )
            tap = f.srem(step, taps)
            place = f.add(origin, f.mul(tap, next_tap))
            place = f.add(place, f.mul(f.add(channel, f.sdiv(step, taps)), columns))
            goal = f.gep(f.gep(to, number, tile.element), place, tile.element)
            count = f.smin(f.sub(inner, step), lanes)
            loop = f.carry_loop(0, count, 1, [("ptr", goal), ("i64", str(tap))])
            value = f.load(f.gep(square, loop.index, tile.vector), tile.vector, tile.bytes)
            f.store(value, tile.vector, loop.values[0], tile.bytes)
            following = f.let(f"add nsw i64 {loop.values[1]}, 1")
            is_last = f.cmp("eq", following, taps)
            # not inbounds: there may be no such channel
            after = f.let(
                f"getelementptr {tile.element}, ptr {loop.values[0]}, "
                f"i64 {choose(f, is_last, to_channel, next_tap)}"
            )
            loop.close([after, str(choose(f, is_last, 0, following))])
        f.ret()

    def _emit_strip(self) -> None:
        f, r, s = self._function("", "i64 %chunk", ENTRY)
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
        f.call(
            "void", self._part("_copy"), "ptr %request", f"ptr {source}", f"i64 {seen}",
            f"ptr {copy}",
        )
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
            is_last = f.cmp("eq", f.add(panel, 1), panels)
            with f.loop(0, window, s.read(Shape.BLOCK)) as tap, f.loop(top, bottom) as line:
                y = f.sub(f.mul(line, step), padding)
                end = f.smin(f.add(tap, s.read(Shape.BLOCK)), window)
                # what is multiplied next, a part for each position: behind, or what a strip begins
                # with
                begins = f.let(f"and i1 {is_last}, {f.cmp('eq', end, window)}")
                asked = f.gep(of_panel, f.mul(end, next_line), tile.element)
                asked = f.let(f"select i1 {begins}, ptr {weights}, ptr {asked}")
                of_block = f.mul(f.mul(f.sub(end, tap), next_line), tile.bytes)
                apart = ceil_div(f, of_block, f.smax(positions, 1))
                before = f.mul(f.mul(f.sub(line, top), out_width), apart)
                ahead = f.let(f"getelementptr i8, ptr {asked}, i64 {before}")
                first, last = seen_lines(f, y, height, dilation, (tap, end))
                from_line = f.sub(f.add(y, f.mul(first, dilation)), low)
                from_line = f.mul(from_line, width)
                at_line = f.gep(of_panel, f.mul(first, next_line), tile.element)
                to_line = f.mul(f.sub(line, top), out_width)
                at = f.mul(from_line, pixel)
                # not inbounds: a line may see nothing of the copy
                x = f.let(f"getelementptr {tile.element}, ptr {copy}, i64 {at}")
                to = f.gep(sums, f.mul(to_line, columns), tile.element)
                f.call(
                    "void", self._part("_line"), "ptr %request", f"ptr {x}",
                    f"i64 {f.sub(last, first)}", f"ptr {at_line}", f"ptr {to}", f"i64 {tap}",
                    f"ptr {ahead}", f"i64 {apart}",
                )
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

    def _emit_copy(self) -> None:
        """What a strip sees, its channels last."""
        f, _, s = self._function("_copy", "ptr %source, i64 %seen, ptr %to")
        tile, lanes, element = self.tile, self.tile.lanes, self.source.element
        words, channels, pixel = (
            s.read(field) for field in (Shape.DEPTH, Shape.CHANNELS, Shape.PIXEL)
        )
        pixels = f.mul(s.read(Shape.HEIGHT), s.read(Shape.WIDTH))
        apart, pairs = f.mul(pixels, tile.group), f.floordiv(channels, tile.group)
        with f.loop(0, words, lanes) as channel, f.loop(0, "%seen", lanes) as at:
            from_ = f.gep("%source", f.add(f.mul(channel, apart), at), element)
            goal = f.gep("%to", f.add(f.mul(at, pixel), channel), tile.element)
            with f.when(f.cmp("slt", f.add(channel, lanes), words)):
                self._ask_for(f, from_, apart)
            sizes = f.sub(words, channel), f.sub("%seen", at)
            self._turn(f, from_, (apart, pixels, f.sub(pairs, channel), *sizes), (goal, pixel))
        f.ret()
