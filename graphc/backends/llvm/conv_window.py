"""Rows of a window at output positions: what packing a window on the fly is made of.

Positions are cut into pieces within one row of the output grid. At step 1 along the width a piece
is one masked load, at step 2 two loads and a shuffle, else a gather. Which lanes of a tap fall
outside the input is a conjunction of three tables, one per dimension.
"""

from collections.abc import Callable
from typing import Literal

from graphc.backends.llvm.conv_geometry import DEPTH, HEIGHT, WIDTH, Window, Words
from graphc.backends.llvm.conv_tables import Tables, tables_symbol
from graphc.backends.llvm.gemm_descriptor import Descriptor, Word
from graphc.backends.llvm.gemm_pack import Source, first_lanes, store_masked
from graphc.backends.llvm.gemm_plan import choose
from graphc.backends.llvm.gemm_words import narrow, word
from graphc.backends.llvm.lane_masks import lanes_of
from graphc.backends.llvm.microkernel import LINE
from graphc.backends.llvm.text import Function, Module, Value
from graphc.backends.llvm.values import lane_numbers, shuffle_mask

Kind = Literal["sums", "pairs", "values"]
AHEAD = 2 * LINE  # bytes: two to four pieces
_Fetch = Callable[[str, str], str]  # (address of lane 0, mask bits) -> a register


def begin_pack(f: Function, source: Source, row: Value, rows: Value) -> tuple[Words, Value]:
    """(window, taps) of a packer, with the tables of some rows made in %scratch."""
    window = Descriptor(f, "%d").pointer_at(Word.GEOMETRY)
    arguments = (f"ptr {window}", f"i64 {row}", f"i64 {rows}", "ptr %scratch")
    f.call("void", tables_symbol(source), *arguments)
    g = Words(f, window)
    return g, f.smax(g.read(Window.TAPS), 1)


def window_symbol(source: Source, kind: Kind) -> str:
    """Packs rows of a window at some positions; see Rows."""
    return f"@graphc_window_{kind}_{source.name}"


ROWS_TYPES = "ptr, ptr, i64, i64, i64, ptr, i64, i64, ptr"


class Rows:
    """void (window, base, position, count, rows, to, pitch, room, work).

    The rows that the tables in `work` were made for, at `count` positions from `position` on (over
    all images), go to to + i * pitch bytes. A row of `to` has `room` elements, of which those
    behind `count` may be overwritten. They are "sums", elements of the type of the tile's sums; or,
    for a tile of pairs, "pairs", of each two rows, the last of which may be alone, or "values".

    A piece is a run of at most `lanes` positions in one row of the output grid. Pieces are stored
    left to right, whole registers where there is room: the next piece overwrites the excess.
    """

    def __init__(self, module: Module, source: Source, kind: Kind, linkage: str) -> None:
        self.source, self.tile, self.kind = source, source.tile, kind
        self.element, self.bytes = self.tile.element, self.tile.bytes
        if kind == "values":
            self.element, self.bytes = self.tile.value_element, self.tile.value_bytes
        self.lanes = source.tile.lanes
        self.ints = f"<{self.lanes} x i32>"
        self.f = f = module.function(
            f"void {window_symbol(source, kind)}(ptr %g, ptr %base, i64 %position, i64 %count, "
            "i64 %rows, ptr %to, i64 %pitch, i64 %room, ptr %work)",
            linkage,
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
        target = f.gep("%to", column, self.element)
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
        f = self.f
        mask = first_lanes(f, self.tile, "%take")
        fits, part, done = f.label("fits"), f.label("part"), f.label("stored")
        f.cond_br(whole, fits, part)
        for label in (fits, part):
            f.block(label)
            masked = mask if label == part else ""
            if self.kind == "pairs":
                self._copy_pairs(fetch, place, target, masked)
            elif masked and self.kind == "sums" and self.source.shares_lines:
                self._copy_merged(fetch, place, target, masked)
            else:
                loop = f.carry_loop(0, "%rows", 1, [("ptr", target)])
                self._store(self._row(fetch, place, loop.index), loop.values[0], masked)
                loop.close([f.gep(loop.values[0], "%pitch", "i8")])
            f.br(done)
        f.block(done)

    def _copy_pairs(self, fetch: _Fetch, place: str, target: str, mask: str) -> None:
        f, tile = self.f, self.tile
        whole = f.floordiv("%rows", 2)
        loop = f.carry_loop(0, whole, 1, [("ptr", target)])
        first = f.mul(loop.index, 2)
        low, high = (self._row(fetch, place, row) for row in (first, f.add(first, 1)))
        self._store(word(f, tile, [low, high], tile.lanes), loop.values[0], mask)
        (end,) = loop.close([f.gep(loop.values[0], "%pitch", "i8")])
        last = f.mul(whole, 2)
        with f.when(f.cmp("slt", last, "%rows")):
            low = self._row(fetch, place, last)
            self._store(word(f, tile, [low, tile.zero()], tile.lanes), end, mask)

    def _copy_merged(self, fetch: _Fetch, place: str, target: str, mask: str) -> None:
        """Whole registers, too, whose excess is what is there: a row's beginning, all but behind
        the last. A store under a mask in a register takes as long as packing the row."""
        f, kind = self.f, self.tile.vector
        last = f.smax(f.sub("%rows", 1), 0)
        loop = f.carry_loop(0, last, 1, [("ptr", target)])
        at = loop.values[0]
        value, there = self._row(fetch, place, loop.index), f.load(at, kind, self.bytes)
        value = f.let(f"select <{self.lanes} x i1> {mask}, {kind} {value}, {kind} {there}")
        self._store(value, at, "")
        (end,) = loop.close([f.gep(at, "%pitch", "i8")])
        with f.when(f.cmp("slt", last, "%rows")):
            self._store(self._row(fetch, place, last), end, mask)

    def _row(self, fetch: _Fetch, place: str, row: Value) -> str:
        """A register of a row."""
        f, tables = self.f, self.tables
        entry = f.gep(tables.rows, f.mul(row, 2), "i64")
        offset = f.load(entry, "i64", 8)
        tap = f.load(f.gep(entry, 1, "i64"), "i64", 8)
        bits = f.load(f.gep(tables.masks, tap, "i32"), "i32", 4)
        at = f.gep(place, offset, self.source.element)
        if self.source.shares_lines:
            self._ask_for(at)
        return fetch(at, bits)

    def _ask_for(self, at: str) -> None:
        """Has a line of the caches come that later pieces read: a core that goes through all
        channels and taps of a piece does not find out by itself that they go along lines."""
        f = self.f
        f.module.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        # not inbounds: it may be beside the image
        ahead = f.let(f"getelementptr i8, ptr {at}, i64 {AHEAD}")
        f.call("void", "@llvm.prefetch.p0", f"ptr {ahead}", "i32 0", "i32 3", "i32 1")

    def _store(self, value: str, to: str, mask: str) -> None:
        """Stores a register, or the lanes of a mask."""
        f, tile, kind = self.f, self.tile, self.tile.vector
        if self.kind == "values":
            value, kind = narrow(f, tile, value), f"<{self.lanes} x {self.element}>"
        if not mask:
            f.store(value, kind, to, self.bytes)
        elif self.kind == "values":
            callee = f"@llvm.masked.store.v{self.lanes}{self.element}.p0"
            bits = f"<{self.lanes} x i1>"
            f.module.declare(f"declare void {callee}({kind}, ptr, i32, {bits})")
            arguments = (f"{kind} {value}", f"ptr {to}", f"i32 {self.bytes}", f"{bits} {mask}")
            f.call("void", callee, *arguments)
        else:
            store_masked(f, tile, value, to, mask)

    def _lanes_of(self, bits: str) -> str:
        """A mask vector from the low bits of an i32."""
        return lanes_of(self.f, self.tile, bits, "i32")

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
