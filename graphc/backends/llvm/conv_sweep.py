"""Convolutions plane by plane that read images where they lie, by code of their own.

conv_planes.py copies a strip with its padding, which every tap then reads; it serves all windows.
Here the window's taps are in the code. A register of columns goes down a strip, some lines of
positions at a time: a line of the image is loaded once for each column of the window (of every two
columns, where positions are two apart), under a mask of the lanes that are in the image, and goes
to the sums of all positions that see it, which stay in registers. A line beside the image is one of
zeros. Where masks take vector registers, they are for the image's edges alone. Nothing is copied,
and sums that are stored as they are go from there to the result. A sum has its terms in the
same order as there.

    @<kernel>.planes(request)       all of a convolution
    @<kernel>.strips(work, chunk)   some strips
"""

from collections.abc import Callable

from graphc.backends.llvm.conv_geometry import HEIGHT, WIDTH, Conv, Words
from graphc.backends.llvm.conv_planes import Work, emit_driver, may_go_by_planes
from graphc.backends.llvm.gemm_descriptor import Descriptor
from graphc.backends.llvm.gemm_pack import Source, first_lanes, store_masked
from graphc.backends.llvm.gemm_plan import ceil_div
from graphc.backends.llvm.gemm_stages import give_slot, take_slot
from graphc.backends.llvm.gemm_store import ADDRESS, B_STRIDE, M_STRIDE
from graphc.backends.llvm.lane_masks import lanes_of
from graphc.backends.llvm.microkernel import LINE, Tile
from graphc.backends.llvm.text import Module, Value
from graphc.backends.llvm.values import lane_numbers, shuffle_mask
from graphc.ir.dim import Size, is_static
from graphc.ir.kernel import Convolution
from graphc.ir.kernel.blocking import multiple, quotient_up
from graphc.ir.kernel.plan_planes import ROWS, strips

MOST_TAPS = 49  # of a window: each is an instruction for every line of positions at a time
MOST_ROWS = 7  # lines of positions at a time,
MOST_TERMS = 200  # if their terms are so many at most
LOAD_COST = 2  # of a register across two lines of the caches, with its mask, against a term
MOST_WIDTH = 16  # of a window; the masks of a line lie where the others' copy does
AHEAD = 4096  # bytes: what is summed until memory answers
MASKED_BYTES = 64  # of registers whose masks are no registers
SWEPT_BYTES = 32  # of registers, at least
KEPT, FEW_ROWS = 13, 4  # of 16 registers, those of sums and weights; lines of positions there


def is_swept(c: Convolution, tile: Tile) -> bool:
    """Whether a convolution is done so, if its groups may be done plane by plane in the call."""
    g = c.geometry
    if not may_go_by_planes(c, tile) or len(g.window) > 2 or not _sized(c):
        return False
    taps = 1
    for size in g.window:
        taps *= size
    return (
        tile.target.vector_bytes >= SWEPT_BYTES
        and Source(c.left.dtype, tile).same and Source(c.right.dtype, tile).same
        and taps <= MOST_TAPS and g.window[-1] <= MOST_WIDTH and g.stride[-1] in (1, 2)
    )


def is_known(c: Convolution) -> bool:
    """Whether all sizes are known, so that nothing is asked in the call."""
    g = c.geometry
    return is_static((g.batch, *g.input, *g.output))


def _sized(c: Convolution) -> bool:
    """Whether no size is known to be 0."""
    g = c.geometry
    return all(size != 0 for size in (g.batch, *g.input, *g.output, *g.window))


def emit_sweep(module: Module, c: Convolution, tile: Tile, symbol: str, stored: bool) -> str:
    """Defines both functions and returns the first one's name. `stored`: the epilogue is the
    plainest, its arguments say where the result lies."""
    _Strips(module, c, tile, symbol, stored).emit()
    emit_driver(module, tile, f"@{symbol}.planes", f"@{symbol}.strips")
    return f"@{symbol}.planes"


def _pair(sizes: tuple[int, ...], missing: int) -> tuple[int, int]:
    height, width = ((missing,) * (2 - len(sizes)) + sizes)[-2:]
    return height, width


class _Strips:
    """The function that does some strips."""

    def __init__(
        self, module: Module, c: Convolution, tile: Tile, symbol: str, stored: bool
    ) -> None:
        g = c.geometry
        self.tile, self.stored = tile, stored
        self.bits = tile.target.vector_bytes >= MASKED_BYTES  # masks are; else registers
        self.words = f"<{tile.lanes} x i{8 * tile.bytes}>"
        self.source = Source(c.right.dtype, tile)
        self.f = f = module.function(f"void @{symbol}.strips(ptr %work, i64 %chunk)", "internal")
        self.w = w = Words(f, "%work")
        self.r = Words(f, w.read_pointer(Work.REQUEST))
        self.inputs = [self._size(Conv.INPUT, g.input, dim) for dim in (0, 1)]
        self.outs = [self._size(Conv.OUTPUT, g.output, dim) for dim in (0, 1)]
        self.window, self.steps = _pair(g.window, 1), _pair(g.stride, 1)
        self.dilations, self.lows = _pair(g.dilation, 1), _pair(g.pad_low, 0)
        self.taps = self.window[0] * self.window[1]
        self.groups, self.outputs = g.groups, g.out_channels // g.groups
        width = self.outs[1]
        few = isinstance(width, int) and 2 * width <= tile.lanes
        self.parts = 1 if few else self.steps[1]  # registers that a line's are picked from
        # of the window's columns: those that are loaded; of what lies between two positions, the
        # next column is the odd lanes
        between = self.steps[1] == 2 and self.dilations[1] == 1
        self.loaded = range(0, self.window[1], 2 if between else 1)
        self.strips: tuple[Value, Value] = w.read(Work.STRIPS), w.read(Work.ROWS)
        if is_known(c):  # divisions take as long as the sums of a small plane
            outs = (self.outs[0], self.outs[1])
            shape = (outs, self.window, self.steps, self.dilations)
            plan = strips(1, *shape, tile.lanes, tile.bytes)
            self.strips = plan.strips, plan.rows
        self.rows = self._rows_of(self.strips[1])
        kept = tile.rows * tile.vectors if self.bits else KEPT
        self.in_registers = self.taps + self.rows <= kept
        self.registers = ceil_div(f, self.outs[1], tile.lanes)
        self.last = f.smax(f.sub(self.outs[1], tile.lanes), 0)  # where a line's last one begins
        self.tail = first_lanes(f, tile, self.outs[1])

    def _rows_of(self, strip: Value) -> int:
        """Lines of positions at a time: what costs the least for a strip of so many."""
        if not isinstance(strip, int):
            return ROWS

        def cost(rows: int) -> int:
            loads = len(self._readers(rows)) * len(self.loaded) * self.parts
            return -(-strip // rows) * (loads * LOAD_COST + rows * self.taps)

        most = MOST_ROWS if self.bits else min(max(KEPT - self.taps, FEW_ROWS), MOST_ROWS)
        few = max(min(most, strip, MOST_TERMS // self.taps), 1)
        return min(range(1, few + 1), key=cost)

    def _size(self, field: Conv, sizes: tuple[Size, ...], dim: int) -> Value:
        size = ((1, *sizes) if len(sizes) == 1 else sizes)[dim]
        return size if isinstance(size, int) else self.r.read(field, (HEIGHT, WIDTH)[dim])

    def emit(self) -> None:
        f, w, r, tile = self.f, self.w, self.r, self.tile
        slots = Descriptor(f, w.read_pointer(Work.SLOTS))
        slot, self.masks = take_slot(slots)
        self.zeros = f.gep(self.masks, w.read(Work.ZEROS_AT), "i8")
        sums = f.gep(self.masks, w.read(Work.SUMS_AT), "i8")
        epilogue, arguments = r.read_pointer(Conv.EPILOGUE), r.read_pointer(Conv.ARGUMENTS)
        left, right = r.read_pointer(Conv.LEFT), r.read_pointer(Conv.RIGHT)
        count, (per_plane, rows) = w.read(Work.CHUNK), self.strips
        result, apart = "", list[Value]()
        if self.stored:
            result = f.load(f.gep(arguments, ADDRESS, "ptr"), "ptr", 8)
            apart += [
                f.load(f.gep(arguments, word, "i64"), "i64", 8) for word in (B_STRIDE, M_STRIDE)
            ]
        self._fill_masks()
        line = f.mul(f.add(w.read(Work.PITCH), 1), self.steps[1])
        with f.loop(0, line, tile.lanes) as column:
            place = f.gep(self.zeros, column, tile.element)
            f.store(tile.zero(), tile.vector, place, tile.bytes)
        pixels = f.mul(self.inputs[0], self.inputs[1])
        first = f.mul("%chunk", count)
        with f.loop(first, f.smin(f.add(first, count), w.read(Work.UNITS))) as unit:
            plane, start = f.sdiv(unit, per_plane), f.mul(f.srem(unit, per_plane), rows)
            lines = f.smin(f.sub(self.outs[0], start), rows)
            image, group = f.sdiv(plane, self.groups), f.srem(plane, self.groups)
            source = f.gep(right, f.mul(plane, pixels), tile.element)
            n, columns = f.mul(start, self.outs[1]), f.mul(lines, self.outs[1])
            with f.loop(0, self.outputs) as output:
                row = f.add(f.mul(group, self.outputs), output)
                weights = f.gep(left, f.mul(row, self.taps), tile.element)
                to = sums
                if self.stored:
                    at = f.add(f.add(f.mul(image, apart[0]), f.mul(row, apart[1])), n)
                    to = f.gep(result, at, tile.element)
                self._strip(source, weights, (start, lines), to)
                if not self.stored:
                    values = (f"i64 {v}" for v in (image, row, 1, n, columns))
                    last = (f"ptr {sums}", f"i64 {columns}")
                    f.call("void", epilogue, f"ptr {arguments}", *values, *last)
        give_slot(slots, slot)
        f.ret()

    # --- masks ----------------------------------------------------------------------------------

    def _fill_masks(self) -> None:
        """By register of a line, column that is loaded and part: the lanes that are in the image,
        as the bits of an i16."""
        f, tile = self.f, self.tile
        ints = f"<{tile.lanes} x i64>"

        def splat(value: Value) -> str:
            start = f.let(f"insertelement {ints} poison, i64 {value}, i64 0")
            zeros = f"<{tile.lanes} x i32> zeroinitializer"
            return f.let(f"shufflevector {ints} {start}, {ints} poison, {zeros}")

        width = splat(self.inputs[1])
        with f.loop(0, self.registers) as index:
            first = f.sub(f.mul(self._column(index), self.steps[1]), self.lows[1])
            for number in range(len(self.loaded) * self.parts):
                column, part = divmod(number, self.parts)
                tap = self.loaded[column]
                begin = f.add(first, tap * self.dilations[1] + part * tile.lanes)
                places = f.let(f"add {ints} {splat(begin)}, {lane_numbers(tile.lanes)}")
                inside = f.let(f"icmp ult {ints} {places}, {width}")
                bits = f.let(f"bitcast <{tile.lanes} x i1> {inside} to i{tile.lanes}")
                if tile.lanes < 16:
                    bits = f.let(f"zext i{tile.lanes} {bits} to i16")
                f.store(bits, "i16", self._mask_at(index, number), 2)

    def _mask_at(self, register: Value, number: int) -> str:
        at = self.f.mul(register, len(self.loaded) * self.parts)
        return self.f.gep(self.masks, self.f.add(at, number), "i16")

    def _column(self, register: Value) -> Value:
        """Where a register of a line begins: the last one has columns of the one before, too."""
        return self.f.smin(self.f.mul(register, self.tile.lanes), self.last)

    # --- the sums -------------------------------------------------------------------------------

    def _strip(
        self, source: str, weights: str, lines: tuple[Value, Value], to: str
    ) -> None:
        """All positions of some lines: the first one, and how many."""
        f, tile, (start, count) = self.f, self.tile, lines
        readers = self._readers(self.rows)
        kept = range(self.taps) if self.in_registers else ()
        known = [self._weight(weights, tap) for tap in kept]
        with f.loop(0, count, self.rows) as line:
            first = f.sub(f.mul(f.add(start, line), self.steps[0]), self.lows[0])
            places = dict[int, str]()
            for down in readers:
                at = f.add(first, down)
                inside = f.let(f"icmp ult i64 {at}, {self.inputs[0]}")
                begin = f.sub(f.mul(at, self.inputs[1]), self.lows[1])
                there = self._beside(source, begin)
                places[down] = f.let(f"select i1 {inside}, ptr {there}, ptr {self.zeros}")
            goal = f.gep(to, f.mul(line, self.outs[1]), tile.element)
            with f.loop(0, self.registers) as register:
                column = self._column(register)
                across = f.mul(column, self.steps[1])

                def sum_up(masked: bool) -> list[str]:
                    masks = [
                        self._mask(register, number) if masked else ""
                        for number in range(len(self.loaded) * self.parts)
                    ]
                    self._ask_for(there, register)
                    sums = [tile.zero()] * self.rows
                    for down, uses in readers.items():
                        place = self._beside(places[down], across)
                        parts: list[str] = []
                        for tap in range(self.window[1]):
                            if tap in self.loaded:
                                at = self.loaded.index(tap) * self.parts
                                mine = masks[at : at + self.parts]
                                parts = self._load(place, tap, mine)
                            value = self._picked(parts, tap not in self.loaded)
                            for row, height in uses:
                                number = height * self.window[1] + tap
                                weight = known[number] if known else self._weight(weights, number)
                                sums[row] = tile.multiply_add(f, weight, value, sums[row])
                    return sums

                if self.bits:
                    sums = sum_up(True)
                else:
                    whole = self._all_inside(across)
                    sums = self._one_of(whole, lambda: sum_up(False), lambda: sum_up(True))
                self._store(sums, f.gep(goal, column, tile.element), f.sub(count, line))

    def _mask(self, register: Value, number: int) -> str:
        """The lanes of a register that are in the image: bits, or words of ones."""
        f, lanes = self.f, self.tile.lanes
        bits = f.load(self._mask_at(register, number), "i16", 2)
        if self.bits:
            return bits
        found = lanes_of(f, self.tile, bits, "i16")
        return f.let(f"sext <{lanes} x i1> {found} to {self.words}")

    def _all_inside(self, across: Value) -> str:
        """An i1: all columns that a register of positions reads are in the image."""
        f, begin = self.f, self.f.sub(across, self.lows[1])
        reach = (self.window[1] - 1) * self.dilations[1] + self.parts * self.tile.lanes
        found = "true"
        for condition in (
            f.cmp("sge", begin, 0), f.cmp("sle", f.add(begin, reach), self.inputs[1]),
        ):
            found = f.let(f"and i1 {found}, {condition}")
        return found

    def _one_of(
        self, condition: str, then: Callable[[], list[str]], other: Callable[[], list[str]]
    ) -> list[str]:
        """Registers that one of two pieces of code makes."""
        f, kind = self.f, self.tile.vector
        one, two, done = (f.label(name) for name in ("whole", "masked", "summed"))
        f.cond_br(condition, one, two)
        f.block(one)
        left, from_one = then(), f.current
        f.br(done)
        f.block(two)
        right, from_two = other(), f.current
        f.br(done)
        f.block(done)
        return [
            f.phi(kind, ((a, from_one), (b, from_two))) for a, b in zip(left, right, strict=True)
        ]

    def _ask_for(self, line: str, register: Value) -> None:
        """Has lines of the caches come that are read later: as many as are read anew here. A core
        that goes along several lines at a time does not find out by itself."""
        f, tile = self.f, self.tile
        size = self.rows * self.steps[0] * self.steps[1] * tile.lanes * tile.bytes
        if isinstance(self.inputs[1], int) and isinstance(self.registers, int):
            anew = self.rows * self.steps[0] * self.inputs[1] * tile.bytes
            size = min(size, multiple(quotient_up(anew, self.registers), LINE))
        f.module.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        first = f.add(f.mul(register, size), AHEAD)
        for place in range(0, size, LINE):
            at = f.let(f"getelementptr i8, ptr {line}, i64 {f.add(first, place)}")
            f.call("void", "@llvm.prefetch.p0", f"ptr {at}", "i32 0", "i32 3", "i32 1")

    def _readers(self, rows: int) -> dict[int, list[tuple[int, int]]]:
        """By lines of the image, from the first on: those of so many lines of positions that see
        it, and which of the window's lines it is to them."""
        found: dict[int, list[tuple[int, int]]] = {}
        for row in range(rows):
            for height in range(self.window[0]):
                down = row * self.steps[0] + height * self.dilations[0]
                found.setdefault(down, []).append((row, height))
        return dict(sorted(found.items()))

    def _beside(self, place: str, elements: Value) -> str:
        """An address that may be outside of what it is reckoned from."""
        return self.f.let(f"getelementptr {self.tile.element}, ptr {place}, i64 {elements}")

    def _weight(self, weights: str, tap: int) -> str:
        f, tile = self.f, self.tile
        value = f.load(f.gep(weights, tap, tile.element), tile.element, tile.bytes)
        return tile.splat(f, value)

    def _load(self, line: str, tap: int, masks: list[str]) -> list[str]:
        """What a line has for one column of the window, and between its elements."""
        f, tile, parts = self.f, self.tile, []
        for index, bits in enumerate(masks):
            if not bits:
                place = self._beside(line, tap * self.dilations[1] + index * tile.lanes)
                parts.append(self.source.load_vector(f, place))
                continue
            if self.bits:
                mask = lanes_of(f, tile, bits, "i16")
            else:
                mask = f.let(f"icmp slt {self.words} {bits}, zeroinitializer")
            place = self._beside(line, tap * self.dilations[1] + index * tile.lanes)
            parts.append(self.source.load_masked(f, place, mask))
        return parts

    def _picked(self, parts: list[str], odd: bool) -> str:
        """A register of every step-th element of a line."""
        if self.steps[1] == 1:
            return parts[0]
        kind, lanes = self.tile.vector, shuffle_mask(int(odd), self.tile.lanes, 2)
        return self.f.let(f"shufflevector {kind} {parts[0]}, {kind} {parts[-1]}, {lanes}")

    def _store(self, sums: list[str], to: str, lines: Value) -> None:
        """The sums of so many lines as there are."""
        whole = self.f.cmp("sge", self.outs[1], self.tile.lanes)
        self._either(
            whole, *(lambda masked=masked: self._store_lines(sums, to, lines, masked)
                     for masked in (False, True))
        )

    def _store_lines(self, sums: list[str], to: str, lines: Value, masked: bool) -> None:
        f, tile = self.f, self.tile

        def store(row: int) -> None:
            place = f.gep(to, f.mul(self.outs[1], row), tile.element)
            if masked:
                store_masked(f, tile, sums[row], place, self.tail)
            else:
                f.store(sums[row], tile.vector, place, tile.bytes)

        def every() -> None:
            for row in range(len(sums)):
                store(row)

        def some() -> None:
            for row in range(len(sums)):
                with f.when(f.cmp("slt", row, lines)):
                    store(row)

        # not row by row alone: LLVM would move sums to where they are stored, one after the other
        self._either(f.cmp("sge", lines, len(sums)) if len(sums) > 1 else "true", every, some)

    def _either(self, condition: str, then: Callable[[], None], other: Callable[[], None]) -> None:
        """One of two pieces of code; only that is made if it is known which."""
        f = self.f
        if condition in ("true", "false"):
            (then if condition == "true" else other)()
            return
        one, two, done = (f.label(name) for name in ("then", "else", "done"))
        f.cond_br(condition, one, two)
        for label, piece in ((one, then), (two, other)):
            f.block(label)
            piece()
            f.br(done)
        f.block(done)
