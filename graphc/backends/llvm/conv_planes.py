"""Convolutions plane by plane: the rule is in `ir/kernel/plan_planes.py`.

    @graphc_conv_planes_<acc>(request)      all of a convolution
    @graphc_conv_strips_<acc>(work, chunk)  some strips: copied, summed, given to the epilogue
"""

import enum
from collections.abc import Callable

from graphc.backends.llvm.conv_geometry import HEIGHT, WIDTH, Conv, Words
from graphc.backends.llvm.gemm_descriptor import ENTRY, WORDS, Descriptor, Word
from graphc.backends.llvm.gemm_pack import Source
from graphc.backends.llvm.gemm_plan import Number, value_of
from graphc.backends.llvm.gemm_stages import give_slot, run_symbol, take_slot
from graphc.backends.llvm.microkernel import Tile
from graphc.backends.llvm.text import Function, Module, Value
from graphc.backends.llvm.values import lane_numbers, shuffle_mask
from graphc.ir import dtypes
from graphc.ir.kernel import Convolution
from graphc.ir.kernel.blocking import MOST_SLOTS
from graphc.ir.kernel.plan_planes import VECTORS, Strips, by_planes, offsets_bytes, strips


class Work(enum.IntEnum):
    """What chunks read beside the request: the plan's words, then these."""

    PITCH = 0
    ROWS = enum.auto()
    STRIPS = enum.auto()
    LINES = enum.auto()
    PART = enum.auto()
    UNITS = enum.auto()
    CHUNK = enum.auto()
    CHUNKS = enum.auto()
    ZEROS_AT = enum.auto()
    SUMS_AT = enum.auto()
    DENSE_AT = enum.auto()
    SCRATCH = enum.auto()
    REQUEST = enum.auto()
    SLOTS = enum.auto()  # a descriptor, of which only what take_slot asks is filled in
    OFFSETS = enum.auto()  # of taps in the copy, in bytes


def planes_symbol(tile: Tile) -> str:
    """The driver: void (request)."""
    return f"@graphc_conv_planes_{tile.name}"


def may_go_by_planes(c: Convolution, tile: Tile) -> bool:
    """Whether a convolution may be done so, from what its groups have."""
    g = c.geometry
    channels, outputs = g.in_channels // g.groups, g.out_channels // g.groups
    return c.kind == "conv" and tile.group == 1 and bool(by_planes(channels, outputs))


def asks_for_planes(f: Function, r: Words) -> str:
    """An i1: a convolution is done so that may; its operands have the type of the sums, and an
    image has lines of positions at most."""
    wanted = "true"
    conditions = [f.cmp("ne", r.read(field), 0) for field in (Conv.LEFT_SAME, Conv.RIGHT_SAME)]
    flat = (Conv.INPUT, Conv.WINDOW, Conv.OUTPUT, Conv.STRIDE)
    conditions += [f.cmp("eq", r.read(field), 1) for field in flat]
    conditions.append(f.cmp("eq", r.read(Conv.PAD), 0))
    sized = (Conv.BATCH, Conv.GROUPS, Conv.OUTPUTS)
    conditions += [f.cmp("sgt", r.read(field), 0) for field in sized]
    fields = (Conv.INPUT, Conv.WINDOW, Conv.OUTPUT)
    conditions += [f.cmp("sgt", r.read(x, dim), 0) for x in fields for dim in (HEIGHT, WIDTH)]
    for condition in conditions:
        wanted = f.let(f"and i1 {wanted}, {condition}")
    return wanted


def emit_planes(module: Module, tile: Tile) -> None:
    """Defines both functions."""
    _Chunk(module, tile).emit()
    emit_driver(module, tile, planes_symbol(tile), f"@graphc_conv_strips_{tile.name}")


def emit_driver(module: Module, tile: Tile, symbol: str, strips_of: str) -> None:
    """Defines the first function over one that does some strips."""
    f = module.function(f"void {symbol}(ptr %request)", "internal", ENTRY)
    r = Words(f, "%request")

    def pair(field: Conv) -> tuple[Number, Number]:
        height, width = (Number(f, r.read(field, dim)) for dim in (HEIGHT, WIDTH))
        return height, width

    planes = Number(f, f.mul(r.read(Conv.BATCH), r.read(Conv.GROUPS)))
    plan = strips(
        planes, pair(Conv.OUTPUT), pair(Conv.WINDOW), pair(Conv.STRIDE), pair(Conv.DILATION),
        tile.lanes, tile.bytes,
    )
    w = Words(f, f.alloca("i64", len(Work)))
    for name in Strips.__match_args__:
        w.write(Work[name.upper()], value_of(getattr(plan, name)))
    memory = r.read_pointer(Conv.MEMORY)
    w.write_pointer(Work.REQUEST, "%request")
    w.write_pointer(Work.OFFSETS, memory)
    _fill_offsets(f, r, w, tile)
    taps = f.mul(r.read(Conv.WINDOW, HEIGHT), r.read(Conv.WINDOW, WIDTH))
    d = Descriptor(f, f.alloca("i64", WORDS))
    d.set_pointer(Word.MEMORY, memory)
    d[Word.CHUNKS_AT] = offsets_bytes(Number(f, taps)).value
    d[Word.CHUNK_SCRATCH] = w.read(Work.SCRATCH)
    d[Word.WORKERS] = r.read(Conv.WORKERS)
    d[Word.SLOTS] = f.smin(w.read(Work.CHUNKS), MOST_SLOTS)
    f.store(0, "i64", d.place(Word.BUSY), 8)
    w.write_pointer(Work.SLOTS, d.pointer)
    arguments = (f"ptr {strips_of}", f"ptr {w.pointer}")
    f.call("void", run_symbol(module), *arguments, f"i64 {w.read(Work.CHUNKS)}")
    f.ret()


def _fill_offsets(f: Function, r: Words, w: Words, tile: Tile) -> None:
    """Where each tap reads the position 0 of a strip."""
    offsets, pitch, part = w.read_pointer(Work.OFFSETS), w.read(Work.PITCH), w.read(Work.PART)
    height, width = r.read(Conv.WINDOW, HEIGHT), r.read(Conv.WINDOW, WIDTH)
    steps = [r.read(Conv.STRIDE, dim) for dim in (HEIGHT, WIDTH)]
    dilations = [r.read(Conv.DILATION, dim) for dim in (HEIGHT, WIDTH)]
    with f.loop(0, height) as kh, f.loop(0, width) as kw:
        at = [f.mul(tap, d) for tap, d in zip((kh, kw), dilations, strict=True)]
        line, column = (f.sdiv(x, step) for x, step in zip(at, steps, strict=True))
        of_line, of_column = (f.srem(x, step) for x, step in zip(at, steps, strict=True))
        which = f.add(f.mul(of_line, steps[1]), of_column)
        offset = f.add(f.mul(which, part), f.add(f.mul(line, pitch), column))
        tap = f.add(f.mul(kh, width), kw)
        f.store(f.mul(offset, tile.bytes), "i64", f.gep(offsets, tap, "i64"), 8)


_Line = Callable[[str, str, str], None]  # (source, whether it is in the plane, goal)
_Copy = Callable[[Value], _Line]  # (coordinate of the first column)


class _Chunk:
    """The function that does some strips."""

    def __init__(self, module: Module, tile: Tile) -> None:
        self.tile = tile
        self.source = Source(dtypes.by_name(tile.accumulator), tile)
        self.f = f = module.function(
            f"void @graphc_conv_strips_{tile.name}(ptr %work, i64 %chunk)", "internal"
        )
        self.w = w = Words(f, "%work")
        self.r = r = Words(f, w.read_pointer(Work.REQUEST))
        self.pitch, self.part = w.read(Work.PITCH), w.read(Work.PART)
        self.inputs = [r.read(Conv.INPUT, dim) for dim in (HEIGHT, WIDTH)]
        self.outs = [r.read(Conv.OUTPUT, dim) for dim in (HEIGHT, WIDTH)]
        self.steps = [r.read(Conv.STRIDE, dim) for dim in (HEIGHT, WIDTH)]
        self.lows = [r.read(Conv.PAD, dim) for dim in (HEIGHT, WIDTH)]
        self.taps = f.mul(r.read(Conv.WINDOW, HEIGHT), r.read(Conv.WINDOW, WIDTH))
        self.outputs, self.groups = r.read(Conv.OUTPUTS), r.read(Conv.GROUPS)
        self.ints = f"<{tile.lanes} x i64>"

    def emit(self) -> None:
        f, w, r, tile = self.f, self.w, self.r, self.tile
        slots = Descriptor(f, w.read_pointer(Work.SLOTS))
        slot, scratch = take_slot(slots)
        self.copy = scratch
        self.sums = f.gep(scratch, w.read(Work.SUMS_AT), "i8")
        dense_at = f.gep(scratch, w.read(Work.DENSE_AT), "i8")
        epilogue, arguments = r.read_pointer(Conv.EPILOGUE), r.read_pointer(Conv.ARGUMENTS)
        left, right = r.read_pointer(Conv.LEFT), r.read_pointer(Conv.RIGHT)
        count, per_plane, rows = w.read(Work.CHUNK), w.read(Work.STRIPS), w.read(Work.ROWS)
        first = f.mul("%chunk", count)
        with f.loop(first, f.smin(f.add(first, count), w.read(Work.UNITS))) as unit:
            plane = f.sdiv(unit, per_plane)
            start = f.mul(f.srem(unit, per_plane), rows)
            lines = f.smin(f.sub(self.outs[0], start), rows)
            image, group = f.sdiv(plane, self.groups), f.srem(plane, self.groups)
            pixels = f.mul(self.inputs[0], self.inputs[1])
            self._copy_strip(f.gep(right, f.mul(plane, pixels), tile.element), start)
            n, columns = f.mul(start, self.outs[1]), f.mul(lines, self.outs[1])
            with f.loop(0, self.outputs) as output:
                row = f.add(f.mul(group, self.outputs), output)
                self._sum(f.gep(left, f.mul(row, self.taps), tile.element), lines)
                dense = self._dense(dense_at, lines)
                values = (f"i64 {v}" for v in (image, row, 1, n, columns))
                last = (f"ptr {dense}", f"i64 {columns}")
                f.call("void", epilogue, f"ptr {arguments}", *values, *last)
        give_slot(slots, slot)
        f.ret()

    # --- the copy -------------------------------------------------------------------------------

    def _copy_strip(self, source: str, start: Value) -> None:
        """The parts of a strip, zeros where they are outside of the plane."""
        f, step = self.f, self.steps[1]
        single, pairs = f.cmp("eq", step, 1), f.cmp("eq", step, 2)
        one, other, two, many = (f.label(name) for name in ("one", "other", "two", "many"))
        done = f.label("copied")
        f.cond_br(single, one, other)
        f.block(other)
        f.cond_br(pairs, two, many)
        for label, copy in ((one, self._single), (two, self._pairs), (many, self._apart)):
            f.block(label)
            self._copy_columns(source, start, copy)
            f.br(done)
        f.block(done)

    def _copy_columns(self, source: str, start: Value, copy: _Copy) -> None:
        """A register of columns of all lines, the last first: whole registers are stored, and what
        they have too many is in the next line, whose first columns come later."""
        f, tile, (step, across) = self.f, self.tile, self.steps
        height, width = self.inputs
        registers = f.floordiv(f.add(self.pitch, tile.lanes - 1), tile.lanes)
        with f.loop(0, registers) as index:
            column = f.mul(f.sub(f.sub(registers, 1), index), tile.lanes)
            begin = f.sub(f.mul(column, across), self.lows[1])
            lines = copy(begin)
            with f.loop(0, step) as of_line:
                part = f.mul(f.mul(of_line, across), self.part)
                to = f.gep(self.copy, f.add(part, column), tile.element)
                first = f.sub(f.add(f.mul(start, step), of_line), self.lows[0])
                with f.loop(0, self.w.read(Work.LINES)) as line:
                    place = f.add(first, f.mul(line, step))
                    inside = f.cmp("ult", place, height)
                    at = f.gep(source, f.add(f.mul(place, width), begin), tile.element)
                    lines(at, inside, f.gep(to, f.mul(line, self.pitch), tile.element))

    def _inside(self, begin: Value, distance: Value = 1) -> str:
        """The lanes whose columns, so far apart, are in the plane."""
        f, ints = self.f, self.ints
        lanes = lane_numbers(self.tile.lanes)
        if distance != 1:
            lanes = f.let(f"mul {ints} {lanes}, {self._splat(distance)}")
        places = f.let(f"add {ints} {self._splat(begin)}, {lanes}")
        return f.let(f"icmp ult {ints} {places}, {self._splat(self.inputs[1])}")

    def _splat(self, value: Value) -> str:
        f, ints = self.f, self.ints
        start = f.let(f"insertelement {ints} poison, i64 {value}, i64 0")
        zeros = f"<{self.tile.lanes} x i32> zeroinitializer"
        return f.let(f"shufflevector {ints} {start}, {ints} poison, {zeros}")

    def _where(self, inside: str, mask: str) -> str:
        """A mask, none of it where the line is not in the plane."""
        kind = f"<{self.tile.lanes} x i1>"
        return self.f.let(f"select i1 {inside}, {kind} {mask}, {kind} zeroinitializer")

    def _single(self, begin: Value) -> _Line:
        f, tile = self.f, self.tile
        mask = self._inside(begin)

        def line(at: str, inside: str, to: str) -> None:
            value = self.source.load_masked(f, at, self._where(inside, mask))
            f.store(value, tile.vector, to, tile.bytes)

        return line

    def _pairs(self, begin: Value) -> _Line:
        """Both parts of a stride of 2: the even and the odd lanes of two registers."""
        f, tile = self.f, self.tile
        masks = [self._inside(begin), self._inside(f.add(begin, tile.lanes))]

        def line(at: str, inside: str, to: str) -> None:
            low, high = (
                self.source.load_masked(
                    f, f.gep(at, index * tile.lanes, tile.element), self._where(inside, mask)
                )
                for index, mask in enumerate(masks)
            )
            for odd in (0, 1):
                order = shuffle_mask(odd, tile.lanes, 2)
                value = f.let(f"shufflevector {tile.vector} {low}, {tile.vector} {high}, {order}")
                place = f.gep(to, self.part, tile.element) if odd else to
                f.store(value, tile.vector, place, tile.bytes)

        return line

    def _apart(self, begin: Value) -> _Line:
        """The parts of any stride, lane by lane."""
        f, tile, across = self.f, self.tile, self.steps[1]
        numbers = lane_numbers(tile.lanes)
        offsets = f.let(f"mul {self.ints} {numbers}, {self._splat(across)}")

        def line(at: str, inside: str, to: str) -> None:
            with f.loop(0, across) as part:
                mask = self._where(inside, self._inside(f.add(begin, part), across))
                place = f.gep(at, part, tile.element)
                value = self.source.gather(f, place, f"{self.ints} {offsets}", mask)
                behind = f.gep(to, f.mul(part, self.part), tile.element)
                f.store(value, tile.vector, behind, tile.bytes)

        return line

    # --- the sums -------------------------------------------------------------------------------

    def _sum(self, weights: str, lines: Value) -> None:
        """All positions of a strip, those in vain included."""
        f, tile = self.f, self.tile
        offsets = self.w.read_pointer(Work.OFFSETS)
        with f.loop(0, f.mul(lines, self.pitch), VECTORS * tile.lanes) as position:
            start = f.gep(self.copy, position, tile.element)
            to = f.gep(self.sums, position, tile.element)
            zeros = [(tile.vector, tile.zero())] * VECTORS
            loop = f.carry_loop(0, self.taps, 1, zeros)
            at = f.gep(start, f.load(f.gep(offsets, loop.index, "i64"), "i64", 8), "i8")
            weight = f.load(f.gep(weights, loop.index, tile.element), tile.element, tile.bytes)
            weight = tile.splat(f, weight)
            sums = []
            for index, total in enumerate(loop.values):
                place = f.gep(at, index * tile.lanes, tile.element)
                value = f.load(place, tile.vector, tile.bytes)
                sums.append(tile.multiply_add(f, weight, value, total))
            for index, total in enumerate(loop.close(sums)):
                place = f.gep(to, index * tile.lanes, tile.element)
                f.store(total, tile.vector, place, tile.bytes)

    def _dense(self, dense: str, lines: Value) -> str:
        """Where the sums lie without those in vain."""
        f, tile, width = self.f, self.tile, self.outs[1]
        excess = f.cmp("ne", self.pitch, width)
        with f.when(excess), f.loop(0, lines) as line:
            source = f.gep(self.sums, f.mul(line, self.pitch), tile.element)
            to = f.gep(dense, f.mul(line, width), tile.element)
            # whole registers: the next line overwrites the excess
            with f.loop(0, width, tile.lanes) as column:
                value = f.load(f.gep(source, column, tile.element), tile.vector, tile.bytes)
                f.store(value, tile.vector, f.gep(to, column, tile.element), tile.bytes)
        return f.let(f"select i1 {excess}, ptr {dense}, ptr {self.sums}")

