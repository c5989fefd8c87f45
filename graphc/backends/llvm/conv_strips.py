"""Convolutions strip by strip, their lines copied with the channels last, their weights in panels:
the rule is in `ir/kernel/plan_strips.py`.

    @<kernel>.weights(request, chunk)   the weights of a panel: [tap][channel][column]
    @<kernel>.strip(request, chunk)     a strip of an image: some lines of the output
    @<kernel>.tile<n>(x, lines, w, to)  the sums of a tile: neighbours in a line, by columns
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import NamedTuple

from graphc.backends.llvm.conv_geometry import Words
from graphc.backends.llvm.gemm_arguments import Arguments
from graphc.backends.llvm.gemm_descriptor import WORDS, Descriptor, Word
from graphc.backends.llvm.gemm_kernel import SCRATCH, WORKERS
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
from graphc.ir.kernel import Convolution
from graphc.ir.kernel.blocking import MOST_SLOTS, quotient_up
from graphc.ir.kernel.plan_convolution import strips_plan
from graphc.ir.kernel.plan_strips import Span


class _Request(enum.IntEnum):
    LEFT = 0
    RIGHT = enum.auto()
    ARGUMENTS = enum.auto()  # of the epilogue
    EPILOGUE = enum.auto()
    WEIGHTS = enum.auto()  # scratch: the panels
    SLOTS = enum.auto()  # a descriptor, of which only what take_slot asks is filled in


def emit_strips(
    module: Module, c: Convolution, tile: Tile, symbol: str, f: Function, arguments: Arguments,
    epilogue: tuple[str, str],
) -> None:
    """The rest of a kernel's entry, which is `f`, and what it calls; `epilogue`: with its
    arguments."""
    _Strips(module, c, tile, symbol).emit(f, arguments, epilogue)


class _Rows(NamedTuple):
    """The rows of a square in memory: elements `apart`; where a word has two, the second is `other`
    elements further, but for those of a channel alone."""

    f: Function
    element: str
    first: str
    apart: int
    other: int
    is_alone: Callable[[Value], str]

    def place(self, row: Value) -> str:
        """Where one begins."""
        return self.f.gep(self.first, self.f.mul(row, self.apart), self.element)


class _Strips:
    def __init__(self, module: Module, c: Convolution, tile: Tile, symbol: str) -> None:
        self.module, self.c, self.tile, self.symbol = module, c, tile, symbol
        self.source = Source(c.right.dtype, tile)
        self.w, self.images, self.plan = strips_plan(c, tile.machine)
        g = c.geometry
        self.groups = g.groups
        self.channels, self.outputs = g.in_channels // g.groups, g.out_channels // g.groups
        self.words = quotient_up(self.channels, tile.group)  # steps of a tap
        self.columns = self.plan.vectors * tile.lanes
        self.panel = self.w.taps * self.words * self.columns  # elements
        declare_transpose(module, tile)

    def emit(self, f: Function, arguments: Arguments, epilogue: tuple[str, str]) -> None:
        c, plan = self.c, self.plan
        self._emit_weights()
        self._emit_strip()
        memory = f.load(f.gep("%status", SCRATCH, "ptr"), "ptr", 8)
        request = Words(f, f.alloca("i64", len(_Request)))
        chunks = self.images * self.groups * plan.strips
        d = Descriptor(f, f.alloca("i64", WORDS))
        d.set_pointer(Word.MEMORY, memory)
        words: dict[Word, Value] = {
            Word.CHUNKS_AT: plan.weights, Word.CHUNK_SCRATCH: plan.scratch,
            Word.WORKERS: f.load(f.gep("%status", WORKERS, "i64"), "i64", 8),
            Word.SLOTS: min(chunks, MOST_SLOTS),
        }
        for field, number in words.items():
            d[field] = number
        f.store(0, "i64", d.place(Word.BUSY), 8)
        for name, pointer in (
            (_Request.LEFT, arguments.buffer(c.left.buffer)),
            (_Request.RIGHT, arguments.buffer(c.right.buffer)),
            (_Request.EPILOGUE, epilogue[0]), (_Request.ARGUMENTS, epilogue[1]),
            (_Request.WEIGHTS, memory), (_Request.SLOTS, d.pointer),
        ):
            request.write_pointer(name, pointer)
        run = run_symbol(self.module)
        for part, count in (("weights", self.groups * plan.panels), ("strip", chunks)):
            f.call(
                "void", run, f"ptr @{self.symbol}.{part}", f"ptr {request.pointer}",
                f"i64 {count}",
            )
        f.ret()

    # --- turned squares -----------------------------------------------------------------------

    def _turn(
        self, f: Function, buffers: list[str], rows: _Rows, sizes: tuple[Value, Value],
        to: tuple[str, int] | None = None, store: Callable[[Value, str], None] | None = None,
    ) -> None:
        """A square of at most so many rows and columns (`sizes`). It goes to `to`, so many elements
        apart, or else `store` takes it column by column; of others what is missing is 0."""
        tile, lanes = self.tile, self.tile.lanes
        square, (height, count) = lanes * tile.bytes, sizes
        goal, apart = (to[0], to[1] * tile.bytes) if to else (buffers[1], square)
        whole = f.let(
            f"and i1 {f.cmp('sge', height, lanes)}, {f.cmp('sge', count, lanes)}"
        )
        this, part, done = f.label("whole"), f.label("part"), f.label("turned")
        f.cond_br(whole, this, part)
        turn = transpose_symbol(tile)
        for label in (this, part):
            f.block(label)
            from_, pitch = buffers[0], square
            if label == this and tile.group == 1:
                from_, pitch = rows.place(0), rows.apart * tile.bytes
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
        if store:
            with f.loop(0, f.smin(count, lanes)) as row:
                value = f.load(f.gep(buffers[1], row, tile.vector), tile.vector, tile.bytes)
                store(row, value)

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

    def _ask_for(self, f: Function, square: str, pitch: int) -> None:
        """Has the next channels come: the core does not expect lines of so many planes."""
        lanes, element = self.tile.lanes, self.source.element
        f.module.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        for row in range(lanes):
            # not inbounds: there may be no such channel
            place = f.let(f"getelementptr {element}, ptr {square}, i64 {(lanes + row) * pitch}")
            f.call("void", "@llvm.prefetch.p0", f"ptr {place}", "i32 0", "i32 2", "i32 1")

    def _emit_weights(self) -> None:
        tile, lanes, taps = self.tile, self.tile.lanes, self.w.taps
        f = self.module.function(
            f"void @{self.symbol}.weights(ptr %request, i64 %chunk)", "internal"
        )
        r = Words(f, "%request")
        k, panels = self.channels * taps, self.plan.panels
        group, panel = f.sdiv("%chunk", panels), f.srem("%chunk", panels)
        first = f.mul(panel, self.columns)
        base = f.gep(r.read_pointer(_Request.LEFT), f.mul(
            f.add(f.mul(group, self.outputs), first), k), self.source.element)
        to = f.gep(r.read_pointer(_Request.WEIGHTS), f.mul("%chunk", self.panel), tile.element)
        buffers = [f.alloca(tile.vector, lanes) for _ in range(2)]
        # squares go along channels and taps; where words are of two channels, along a word's taps
        outer, inner = (1, k) if tile.group == 1 else (self.words, taps)
        with (
            f.loop(0, self.plan.vectors) as v, f.loop(0, outer) as channel,
            f.loop(0, inner, lanes) as step,
        ):
            row = f.mul(v, lanes)
            rows = f.smax(f.sub(f.sub(self.outputs, first), row), 0)
            at = f.add(f.mul(row, k), f.add(f.mul(channel, tile.group * taps), step))
            # not inbounds: a panel may have registers of no weights
            from_ = f.let(f"getelementptr {self.source.element}, ptr {base}, i64 {at}")
            alone = f.cmp("eq", f.add(f.mul(channel, tile.group), 1), self.channels)

            def is_alone(row: Value, alone: str = alone) -> str:
                return alone

            goal = f.gep(to, row, tile.element)

            def store(
                index: Value, value: str, step: Value = step, goal: str = goal,
                channel: Value = channel,
            ) -> None:
                at = f.add(step, index)
                if tile.group == 1:
                    place = f.add(f.mul(f.srem(at, taps), self.words), f.sdiv(at, taps))
                else:
                    place = f.add(f.mul(at, self.words), channel)
                place = f.gep(goal, f.mul(place, self.columns), tile.element)
                f.store(value, tile.vector, place, tile.bytes)

            square = _Rows(f, self.source.element, from_, k, taps, is_alone)
            self._turn(f, buffers, square, (rows, f.sub(inner, step)), store=store)
        f.ret()

    # --- strips -------------------------------------------------------------------------------

    def _emit_strip(self) -> None:
        w, plan, tile, lanes = self.w, self.plan, self.tile, self.tile.lanes
        (_, height, width), (_, out_height, out_width) = w.input, w.out
        kernels = self._emit_tiles()
        f = self.module.function(
            f"void @{self.symbol}.strip(ptr %request, i64 %chunk)", "internal"
        )
        r = Words(f, "%request")
        image, strip = f.sdiv("%chunk", plan.strips), f.srem("%chunk", plan.strips)
        top = f.mul(strip, plan.lines)
        bottom = f.smin(f.add(top, plan.lines), out_height)
        low = f.smax(f.sub(f.mul(top, w.step[1]), w.low[1]), 0)
        span = (w.size[1] - 1) * w.dilation[1] + 1
        high = f.sub(f.add(f.mul(f.sub(bottom, 1), w.step[1]), span), w.low[1])
        high = f.smin(high, height)
        slots = Descriptor(f, r.read_pointer(_Request.SLOTS))
        slot, copy = take_slot(slots)
        sums = f.gep(copy, plan.copied, "i8")
        turned = f.gep(sums, plan.sums, "i8")
        buffers = [f.alloca(tile.vector, lanes) for _ in range(2)]
        pixels, element = height * width, self.source.element
        plane = f.mul(f.mul(image, self.channels), pixels)
        begin = f.mul(low, width)
        # not inbounds: a strip may see nothing of the image
        source = f.let(
            f"getelementptr {element}, ptr {r.read_pointer(_Request.RIGHT)}, "
            f"i64 {f.add(plane, begin)}"
        )
        seen = f.mul(f.sub(high, low), width)

        with f.loop(0, self.words, lanes) as channel, f.loop(0, seen, lanes) as at:
            first = f.mul(channel, tile.group)
            from_ = f.gep(source, f.add(f.mul(first, pixels), at), element)
            goal = f.gep(copy, f.add(f.mul(at, plan.pixel), channel), tile.element)
            apart = tile.group * pixels
            self._ask_for(f, from_, apart)

            def is_alone(row: Value, first: Value = first) -> str:
                of_row = f.add(first, f.mul(row, tile.group))
                return f.cmp("eq", f.add(of_row, 1), self.channels)

            square = _Rows(f, element, from_, apart, pixels, is_alone)
            sizes = f.sub(self.words, channel), f.sub(seen, at)
            self._turn(f, buffers, square, sizes, (goal, plan.pixel))
        group = f.srem(image, self.groups)
        weights = f.gep(
            r.read_pointer(_Request.WEIGHTS), f.mul(group, plan.panels * self.panel), tile.element
        )
        given, epilogue = (
            r.read_pointer(x) for x in (_Request.ARGUMENTS, _Request.EPILOGUE)
        )
        positions = f.mul(f.sub(bottom, top), out_width)
        with f.loop(0, plan.panels) as panel:
            of_panel = f.gep(weights, f.mul(panel, self.panel), tile.element)
            with f.loop(top, bottom) as line:
                y = f.sub(f.mul(line, w.step[1]), w.low[1])
                first = clamp(f, ceil_div(f, f.sub(0, y), w.dilation[1]), 0, w.size[1])
                last = clamp(f, ceil_div(f, f.sub(height, y), w.dilation[1]), first, w.size[1])
                from_line = f.sub(f.add(y, f.mul(first, w.dilation[1])), low)
                from_line = f.mul(from_line, width)
                at_line = f.gep(
                    of_panel, f.mul(first, w.size[2] * self.words * self.columns), tile.element
                )
                to_line = f.mul(f.sub(line, top), out_width)
                for span_, kernel in zip(plan.spans, kernels, strict=True):
                    with f.loop(0, span_.count) as number:
                        position = f.add(f.mul(number, span_.rows), span_.first)
                        column = f.sub(f.mul(position, w.step[2]), w.low[2])
                        pixel = f.mul(f.add(from_line, column), plan.pixel)
                        # not inbounds: the first taps may be beside the image
                        x = f.let(f"getelementptr {tile.element}, ptr {copy}, i64 {pixel}")
                        to = f.gep(
                            sums, f.mul(f.add(to_line, position), self.columns), tile.element
                        )
                        f.call(
                            "void", kernel, f"ptr {x}", f"i64 {f.sub(last, first)}",
                            f"ptr {at_line}", f"ptr {to}",
                        )
            with f.loop(0, positions, lanes) as at, f.loop(0, self.columns, lanes) as column:
                from_ = f.gep(sums, f.add(f.mul(at, self.columns), column), tile.element)
                goal = f.gep(turned, f.add(f.mul(column, plan.pitch), at), tile.element)
                f.call(
                    "void", transpose_symbol(tile), f"ptr {from_}",
                    f"i64 {self.columns * tile.bytes}", f"ptr {goal}",
                    f"i64 {plan.pitch * tile.bytes}",
                )
            m = f.mul(panel, self.columns)
            rows = f.smin(f.sub(self.outputs, m), self.columns)
            m = f.add(f.mul(group, self.outputs), m)
            values = (f.sdiv(image, self.groups), m, rows, f.mul(top, out_width), positions)
            f.call(
                "void", epilogue, f"ptr {given}", *(f"i64 {v}" for v in values),
                f"ptr {turned}", f"i64 {plan.pitch}",
            )
        give_slot(slots, slot)
        f.ret()

    # --- tiles --------------------------------------------------------------------------------

    def _emit_tiles(self) -> list[str]:
        """One for each kind of span: their names."""
        found: dict[tuple[object, ...], str] = {}
        names = []
        for span in self.plan.spans:
            key = span.rows, span.taps
            if key not in found:
                found[key] = f"@{self.symbol}.tile{len(found)}"
                self._emit_tile(found[key], span)
            names.append(found[key])
        return names

    def _emit_tile(self, name: str, span: Span) -> None:
        w, tile, vectors, pixel = self.w, self.tile, self.plan.vectors, self.plan.pixel
        f = self.module.function(
            f"void {name}(ptr noalias readonly %x, i64 %lines, ptr noalias readonly %w, "
            "ptr noalias %to)", "internal", "noinline",
        )
        zeros = [(tile.vector, tile.zero())] * (span.rows * vectors)
        lines = f.carry_loop(0, "%lines", 1, zeros)
        sums = list(lines.values)
        apart = f.mul(lines.index, w.dilation[1] * w.input[2] * pixel)
        line = f.let(f"getelementptr {tile.element}, ptr %x, i64 {apart}")
        of_line = f.gep(
            "%w", f.mul(lines.index, w.size[2] * self.words * self.columns), tile.element
        )
        for tap, (low, high) in enumerate(span.taps):
            if low == high:
                continue
            weights = f.gep(of_line, tap * self.words * self.columns, tile.element)
            shift = (low * w.step[2] + tap * w.dilation[2]) * pixel
            place = f.let(f"getelementptr {tile.element}, ptr {line}, i64 {shift}")
            some = slice(low * vectors, high * vectors)
            loop = f.carry_loop(0, self.words, 1, [(tile.vector, s) for s in sums[some]])
            at = f.gep(weights, f.mul(loop.index, self.columns), tile.element)
            columns = [
                f.load(f.gep(at, v * tile.lanes, tile.element), tile.vector, tile.bytes)
                for v in range(vectors)
            ]
            of_channel = f.gep(place, loop.index, tile.element)
            new = []
            for row in range(high - low):
                value = f.load(
                    f.gep(of_channel, row * w.step[2] * pixel, tile.element), tile.element,
                    tile.bytes,
                )
                scalar = tile.splat(f, value)
                new += [
                    tile.multiply_add(f, scalar, column, loop.values[row * vectors + v])
                    for v, column in enumerate(columns)
                ]
            sums[some] = loop.close(new)
        for index, total in enumerate(lines.close(sums)):
            f.store(total, tile.vector, f.gep("%to", index * tile.lanes, tile.element), tile.bytes)
        f.ret()
