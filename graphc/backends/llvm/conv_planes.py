"""Convolutions plane by plane: the rule is in `ir/kernel/plan_planes.py`.

    @graphc_conv_planes_<acc>(request)      all of a convolution
    @graphc_conv_strips_<acc>(work, chunk)  some strips: copied, summed, given to the epilogue
"""

import enum
from collections.abc import Iterator
from contextlib import contextmanager

from graphc.backends.llvm.conv_geometry import HEIGHT, WIDTH, Conv, Words
from graphc.backends.llvm.gemm_descriptor import WORDS, Descriptor, Word
from graphc.backends.llvm.gemm_pack import Source, first_lanes, store_masked
from graphc.backends.llvm.gemm_plan import Number, choose, value_of
from graphc.backends.llvm.gemm_stages import give_slot, run_symbol, take_slot
from graphc.backends.llvm.microkernel import Tile
from graphc.backends.llvm.text import Function, Module, Value
from graphc.backends.llvm.values import lane_numbers, shuffle_mask
from graphc.ir import dtypes
from graphc.ir.kernel.blocking import MOST_SLOTS, POINTER_BYTES
from graphc.ir.kernel.plan_planes import VECTORS, Strips, by_planes, strips


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
    SUMS_AT = enum.auto()
    DENSE_AT = enum.auto()
    SCRATCH = enum.auto()
    REQUEST = enum.auto()
    SLOTS = enum.auto()  # a descriptor, of which only what take_slot asks is filled in
    OFFSETS = enum.auto()  # of taps in the copy, in bytes


def planes_symbol(tile: Tile) -> str:
    """The driver: void (request)."""
    return f"@graphc_conv_planes_{tile.accumulator}"


def asks_for_planes(f: Function, r: Words, channels: Value, outputs: Value) -> str:
    """An i1: a convolution is done so; its operands have the type of the sums, and an image has
    lines of positions at most."""
    wanted = by_planes(Number(f, channels), Number(f, outputs)).value
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
    f = module.function(f"void {planes_symbol(tile)}(ptr %request)", "internal")
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
    for name in Strips.__slots__:
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
    arguments = (f"ptr @graphc_conv_strips_{tile.accumulator}", f"ptr {w.pointer}")
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


class _Chunk:
    """The function that does some strips."""

    def __init__(self, module: Module, tile: Tile) -> None:
        self.tile = tile
        self.source = Source(dtypes.by_name(tile.accumulator), tile)
        self.f = f = module.function(
            f"void @graphc_conv_strips_{tile.accumulator}(ptr %work, i64 %chunk)", "internal"
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
        f, tile, (step, across) = self.f, self.tile, self.steps
        single, pairs = f.cmp("eq", across, 1), f.cmp("eq", across, 2)
        height, width = self.inputs
        with f.loop(0, step) as of_line, f.loop(0, self.w.read(Work.LINES)) as line:
            place = f.add(f.mul(f.add(start, line), step), f.sub(of_line, self.lows[0]))
            limit = choose(f, f.cmp("ult", place, height), width, 0)
            from_line = f.gep(source, f.mul(place, width), tile.element)
            part = f.mul(f.mul(of_line, across), self.part)
            to = f.gep(self.copy, f.add(part, f.mul(line, self.pitch)), tile.element)
            with f.loop(0, self.pitch, tile.lanes) as column:
                mask = first_lanes(f, tile, f.sub(self.pitch, column))
                begin = f.sub(f.mul(column, across), self.lows[1])
                goal = f.gep(to, column, tile.element)
                with self._one_of(single, pairs) as (one, two, many):
                    f.block(one)
                    store_masked(f, tile, self._read(from_line, begin, limit), goal, mask)
                    f.br(self.after)
                    f.block(two)
                    self._read_pairs(from_line, begin, limit, goal, mask)
                    f.br(self.after)
                    f.block(many)
                    with f.loop(0, across) as of_column:
                        at = f.add(begin, of_column)
                        value = self._gather(from_line, at, limit)
                        behind = f.gep(goal, f.mul(of_column, self.part), tile.element)
                        store_masked(f, tile, value, behind, mask)
                    f.br(self.after)

    @contextmanager
    def _one_of(self, single: str, pairs: str) -> Iterator[tuple[str, str, str]]:
        """Labels of three cases, each of which ends by going to `after`."""
        f = self.f
        one, other, two, many = (f.label(name) for name in ("one", "other", "two", "many"))
        self.after = f.label("after")
        f.cond_br(single, one, other)
        f.block(other)
        f.cond_br(pairs, two, many)
        yield one, two, many
        f.block(self.after)

    def _splat(self, value: Value) -> str:
        f, ints = self.f, self.ints
        start = f.let(f"insertelement {ints} poison, i64 {value}, i64 0")
        zeros = f"<{self.tile.lanes} x i32> zeroinitializer"
        return f.let(f"shufflevector {ints} {start}, {ints} poison, {zeros}")

    def _inside(self, begin: Value, limit: Value, distance: Value = 1) -> str:
        """The lanes whose coordinates, so far apart, are from 0 to before the limit."""
        f, ints = self.f, self.ints
        lanes = lane_numbers(self.tile.lanes)
        if distance != 1:
            lanes = f.let(f"mul {ints} {lanes}, {self._splat(distance)}")
        places = f.let(f"add {ints} {self._splat(begin)}, {lanes}")
        return f.let(f"icmp ult {ints} {places}, {self._splat(limit)}")

    def _read(self, line: str, begin: Value, limit: Value) -> str:
        mask = self._inside(begin, limit)
        return self.source.load_masked(self.f, self.f.gep(line, begin, self.tile.element), mask)

    def _read_pairs(self, line: str, begin: Value, limit: Value, goal: str, mask: str) -> None:
        """Both parts of a stride of 2: the even and the odd lanes of two registers."""
        f, tile = self.f, self.tile
        low = self._read(line, begin, limit)
        high = self._read(line, f.add(begin, tile.lanes), limit)
        for odd in (0, 1):
            order = shuffle_mask(odd, tile.lanes, 2)
            value = f.let(f"shufflevector {tile.vector} {low}, {tile.vector} {high}, {order}")
            place = f.gep(goal, self.part, tile.element) if odd else goal
            store_masked(f, tile, value, place, mask)

    def _gather(self, line: str, begin: Value, limit: Value) -> str:
        f, across = self.f, self.steps[1]
        mask = self._inside(begin, limit, across)
        numbers = lane_numbers(self.tile.lanes)
        offsets = f.let(f"mul {self.ints} {numbers}, {self._splat(across)}")
        place = f.gep(line, begin, self.tile.element)
        return self.source.gather(f, place, f"{self.ints} {offsets}", mask)

    # --- the sums -------------------------------------------------------------------------------

    def _sum(self, weights: str, lines: Value) -> None:
        """All positions of a strip, those in vain included."""
        f, tile = self.f, self.tile
        offsets = self.w.read_pointer(Work.OFFSETS)
        with f.loop(0, f.mul(lines, self.pitch), VECTORS * tile.lanes) as position:
            start = f.gep(self.copy, position, tile.element)
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
            to = f.gep(self.sums, position, tile.element)
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


def offsets_bytes(taps: Number) -> Number:
    """Of the table of offsets, which lies in front of the chunks' scratch."""
    return (taps * POINTER_BYTES + 63) // 64 * 64
