"""The copy that a convolution reads in place: the input with its padding, in phases where there is
a stride; and the epilogue on its positions (see conv_direct)."""

import enum

from graphc.backends.llvm.conv_geometry import Words
from graphc.backends.llvm.gemm_pack import (
    Source,
    first_lanes,
    first_values,
    store_masked,
    store_words_masked,
)
from graphc.backends.llvm.gemm_plan import ceil_div, choose
from graphc.backends.llvm.gemm_store import (
    ADDRESS,
    B_STRIDE,
    M_STRIDE,
    STORE_TYPES,
    store_symbol,
    sums_of,
)
from graphc.backends.llvm.microkernel import MR, Tile
from graphc.backends.llvm.text import Function, Module, Value
from graphc.backends.llvm.values import lane_numbers, shuffle_mask
from graphc.ir import dtypes
from graphc.ir.kernel import Convolution


class Copy(enum.IntEnum):
    """The padded copy: planes, in phases, of HEIGHT lines of WIDTH elements, the last of which are
    the first of the next line, PITCH from it."""

    SOURCE = 0
    TARGET = enum.auto()
    PLANES = enum.auto()
    PLANES_PER_CHUNK = enum.auto()
    IN_HEIGHT = enum.auto()
    IN_WIDTH = enum.auto()
    LOW_HEIGHT = enum.auto()  # lines and columns before the source (negative: so many are left out)
    LOW_WIDTH = enum.auto()
    HEIGHT = enum.auto()
    WIDTH = enum.auto()
    PITCH = enum.auto()
    STEP_HEIGHT = enum.auto()  # phases of a plane
    STEP_WIDTH = enum.auto()
    IMAGE = enum.auto()  # elements of all planes of an image
    CHANNELS = enum.auto()  # of a group, where a plane is of two of them (see conv_copy_pairs)
    OUT_HEIGHT = enum.auto()
    OUT_WIDTH = enum.auto()
    VECTORS = enum.auto()  # registers of positions per image
    ARGUMENTS = enum.auto()  # of the epilogue that counts positions without the excess columns
    EPILOGUE = enum.auto()
    OFFSETS = enum.auto()  # a table: where each row (channel, tap) begins, in bytes
    # copies for each tap of a line (see conv_shifts): phases, elements from one to the next, bytes
    # of masks
    PHASES = enum.auto()
    PHASE = enum.auto()
    MASKS = enum.auto()


COPY_WORDS = len(Copy)


def copied_step(c: Convolution, tile: Tile) -> int:
    """The step along a line for which the copy of a convolution has code of its own; 0: any."""
    if c.kind == "conv_input_grad" or tile.group > 1:
        return 1
    step = c.geometry.stride[-1]
    return step if step in (1, 2) else 0


def pad_symbol(source: Source, step: int) -> str:
    """The copy of some planes: void (copy, chunk)."""
    return f"@graphc_pad_{step}_{source.name}"


def emit_pad(module: Module, source: Source, step: int) -> None:
    """Defines the copy for one source dtype, converting to the accumulator's type, by `step`.

    Whole registers are read and stored, in ascending order: what of them is beside a line is
    overwritten. Only at the ends of all that is there, or of what a chunk writes, are there masks.
    """
    f = module.function(f"void {pad_symbol(source, step)}(ptr %copy, i64 %chunk)")
    Planes(f, source).emit(step)
    f.ret()


class Planes:
    """The planes of a chunk: their lines, each of which is some zeros, then elements `step` apart,
    then zeros."""

    def __init__(self, f: Function, source: Source) -> None:
        self.f, self.source, self.tile = f, source, source.tile
        self.lanes, self.element = source.tile.values, source.tile.value_element
        self.element_bytes = source.tile.value_bytes
        self.c = c = Words(f, "%copy")
        self.height, self.width, self.pitch = (
            c.read(field) for field in (Copy.IN_HEIGHT, Copy.IN_WIDTH, Copy.PITCH)
        )
        self.lines, self.low_height, self.low_width, self.extent = (
            c.read(x) for x in (Copy.HEIGHT, Copy.LOW_HEIGHT, Copy.LOW_WIDTH, Copy.WIDTH)
        )
        self.down, self.step = c.read(Copy.STEP_HEIGHT), c.read(Copy.STEP_WIDTH)
        self.from_, self.to = c.read_pointer(Copy.SOURCE), c.read_pointer(Copy.TARGET)
        planes, count = c.read(Copy.PLANES), c.read(Copy.PLANES_PER_CHUNK)
        self.first = f.mul("%chunk", count)
        self.last = f.smin(f.add(self.first, count), planes)
        self.phase, self.pixels = f.mul(self.lines, self.pitch), f.mul(self.height, self.width)
        # the ends of the source, and of what is written here
        self.source_end = f.mul(self.channels(planes), self.pixels)
        phases = f.mul(self.last, f.mul(self.down, self.step))
        self.end = f.add(f.mul(phases, self.phase), f.sub(self.extent, self.pitch))

    def channels(self, planes: Value) -> Value:
        """How many of the source make so many planes."""
        return planes

    def begin(self, plane: Value) -> tuple[Value, Value]:
        """(where in the source a plane begins, how much further elements are read)."""
        return self.f.mul(plane, self.pixels), 0

    def emit(self, step: int) -> None:
        """Copies them where lines have this step; 0: any."""
        f, apart = self.f, step or self.step
        with f.loop(self.first, self.last) as plane:
            begin, further = self.begin(plane)
            with f.loop(0, self.down) as upper, f.loop(0, apart) as left:
                self._phase(plane, (begin, further), (upper, left), step)

    def _phase(
        self, plane: Value, from_: tuple[Value, Value], at: tuple[Value, Value], step: int
    ) -> None:
        """The lines of a plane that begin `at` these remainders."""
        f, (begin, further), (upper, left), apart = self.f, from_, at, step or self.step
        start = f.sub(left, self.low_width)
        front = f.smax(f.sub(0, start), 0)
        front = f.smin(ceil_div(f, front, apart), self.extent)
        place = f.add(start, f.mul(front, apart))
        count = ceil_div(f, f.smax(f.sub(self.width, place), 0), apart)
        count = f.smin(count, f.sub(self.extent, front))
        phase = f.add(f.mul(f.add(f.mul(plane, self.down), upper), apart), left)
        with f.loop(0, self.lines) as line:
            from_line = f.sub(f.add(f.mul(line, self.down), upper), self.low_height)
            inside = f.cmp("ult", from_line, self.height)
            first = f.add(f.add(begin, f.mul(from_line, self.width)), place)
            to = f.add(f.mul(phase, self.phase), f.mul(line, self.pitch))
            first, to = f.opaque(first), f.opaque(to)
            zeros = f.opaque(choose(f, inside, front, self.extent))
            some = f.opaque(choose(f, inside, count, 0))
            read = f.add(f.add(first, further), f.mul(f.add(some, 2 * self.lanes), apart))
            stored = f.add(to, f.add(self.extent, self.lanes))
            whole = f.let(
                f"and i1 {f.cmp('sle', read, self.source_end)}, {f.cmp('sle', stored, self.end)}"
            )
            this, other, done = f.label("whole"), f.label("part"), f.label("copied")
            f.cond_br(whole, this, other)
            for label, masked in ((this, False), (other, True)):
                f.block(label)
                self._line((first, apart), to, (zeros, some), step, masked)
                f.br(done)
            f.block(done)

    def _line(
        self, from_: tuple[Value, Value], to: Value, sizes: tuple[Value, Value], step: int,
        masked: bool,
    ) -> None:
        f, lanes, (at, apart), (zeros, count) = self.f, self.lanes, from_, sizes
        fetch = {1: self.load, 2: self.pair}.get(step, self.gather)
        self._zeros(to, zeros, masked)
        data = f.opaque(f.add(to, zeros))
        with f.loop(0, count, lanes) as column:
            left = f.sub(count, column) if masked else 0
            value = fetch(f.add(at, f.mul(column, apart)), left, masked)
            self._store(value, f.add(data, column), masked)
        behind = f.opaque(f.add(zeros, count))
        self._zeros(f.opaque(f.add(to, behind)), f.sub(self.extent, behind), masked)

    def _zeros(self, at: Value, count: Value, masked: bool) -> None:
        with self.f.loop(0, count, self.lanes) as column:
            self._store("zeroinitializer", self.f.add(at, column), masked)

    def _store(self, value: str, at: Value, masked: bool) -> None:
        f, tile = self.f, self.tile
        place = f.gep(self.to, at, self.element)
        if not masked:
            f.store(value, tile.vector, place, self.element_bytes)
            return
        left = f.sub(self.end, at)
        if self.lanes == tile.lanes:
            store_masked(f, tile, value, place, first_lanes(f, tile, left))
        else:
            store_words_masked(f, tile, value, place, first_values(f, tile, left))

    def load(self, at: Value, count: Value, masked: bool) -> str:
        """Neighbours: a register, or the first `count`."""
        mask = first_values(self.f, self.tile, count) if masked else ""
        return self.source.load_words(self.f, self.place(at), mask)

    def pair(self, at: Value, count: Value, masked: bool) -> str:
        """Every second element: two registers, their even lanes."""
        f, tile, lanes = self.f, self.tile, self.tile.lanes
        needed = f.sub(f.mul(count, 2), 1)
        low = self.load(at, needed, masked)
        high = self.load(f.add(at, lanes), f.sub(needed, lanes), masked)
        even = shuffle_mask(0, lanes, 2)
        return f.let(f"shufflevector {tile.vector} {low}, {tile.vector} {high}, {even}")

    def gather(self, at: Value, count: Value, masked: bool) -> str:
        """Elements any step apart."""
        f, lanes = self.f, self.tile.lanes
        ints = f"<{lanes} x i64>"
        first = f.let(f"insertelement {ints} poison, i64 {self.step}, i64 0")
        zeros = f"<{lanes} x i32> zeroinitializer"
        apart = f.let(f"shufflevector {ints} {first}, {ints} poison, {zeros}")
        offsets = f.let(f"mul {ints} {lane_numbers(lanes)}, {apart}")
        mask = first_lanes(f, self.tile, count) if masked else "splat (i1 true)"
        return self.source.gather(f, self.place(at), f"{ints} {offsets}", mask)

    def place(self, at: Value) -> str:
        """The address of an element of the source."""
        return self.f.gep(self.from_, at, self.source.element)


def emit_lines_epilogue(module: Module, tile: Tile) -> None:
    """The epilogue on positions of the copy: moves the lines of the output together.

    Without the excess columns, positions of neighbouring lines are neighbours in the output.
    """
    f = module.function(
        f"void @graphc_lines_epilogue_{tile.name}(ptr %copy, i64 %b, i64 %m, i64 %rows, "
        "i64 %n, i64 %columns, ptr %tile, i64 %tile_pitch)",
        "internal",
    )
    c = Words(f, "%copy")
    pitch, width, height = (
        c.read(field) for field in (Copy.PITCH, Copy.OUT_WIDTH, Copy.OUT_HEIGHT)
    )
    end = f.add("%n", "%columns")
    first, last = f.sdiv("%n", pitch), f.smin(ceil_div(f, end, pitch), height)
    epilogue, arguments = c.read_pointer(Copy.EPILOGUE), c.read_pointer(Copy.ARGUMENTS)
    f.module.declare(f"declare void {store_symbol(tile)}({STORE_TYPES})")
    plain, other = f.label("plain"), f.label("other")
    f.cond_br(f.let(f"icmp eq ptr {epilogue}, {store_symbol(tile)}"), plain, other)
    f.block(plain)
    _emit_stored_lines(f, tile, (first, last), (pitch, width, end), arguments)
    f.ret()
    f.block(other)
    buffer = f.alloca(tile.vector, MR * tile.vectors + 1)
    skipped = f.sub("%n", f.mul(first, pitch))
    start = f.add(f.mul(first, width), f.smin(skipped, width))
    with f.loop(0, "%rows") as row:
        source = f.gep("%tile", f.mul(row, "%tile_pitch"), tile.element)
        target = f.gep(buffer, f.mul(row, "%tile_pitch"), tile.element)
        with f.loop(first, last) as line:
            line_at = f.mul(line, pitch)
            low, high = f.smax(line_at, "%n"), f.smin(f.add(line_at, width), end)
            at = f.sub(f.add(f.mul(line, width), f.sub(low, line_at)), start)
            from_line = f.gep(source, f.sub(low, "%n"), tile.element)
            to_line = f.gep(target, at, tile.element)
            # whole registers: the excess is overwritten by the next line, or by the next row
            with f.loop(0, f.sub(high, low), tile.lanes) as column:
                value = f.load(f.gep(from_line, column, tile.element), tile.vector, tile.bytes)
                f.store(value, tile.vector, f.gep(to_line, column, tile.element), tile.bytes)
    stop = f.sub(end, f.mul(f.sub(last, 1), pitch))
    count = f.sub(f.add(f.mul(f.sub(last, 1), width), f.smin(stop, width)), start)
    with f.when(f.cmp("sgt", count, 0)):
        values = (f"i64 {v}" for v in ("%b", "%m", "%rows", start, count))
        f.call("void", epilogue, f"ptr {arguments}", *values, f"ptr {buffer}", "i64 %tile_pitch")
    f.ret()


def _emit_stored_lines(
    f: Function, tile: Tile, lines: tuple[Value, Value], sizes: tuple[str, str, Value],
    words: str,
) -> None:
    """What the plainest epilogue stores of such a tile, line by line."""
    (pitch, width, end), tile = sizes, sums_of(tile)
    source = Source(dtypes.by_name(tile.accumulator), tile)
    b_stride, m_stride = (
        f.load(f.gep(words, word, "i64"), "i64", 8) for word in (B_STRIDE, M_STRIDE)
    )
    start = f.add(f.mul("%b", b_stride), f.mul("%m", m_stride))
    base = f.gep(f.load(f.gep(words, ADDRESS, "ptr"), "ptr", 8), start, tile.element)
    with f.loop(*lines) as line:
        line_at = f.mul(line, pitch)
        low, high = f.smax(line_at, "%n"), f.smin(f.add(line_at, width), end)
        count = f.smax(f.sub(high, low), 0)
        whole = f.mul(f.sdiv(count, tile.lanes), tile.lanes)
        some = f.cmp("sgt", count, whole)
        mask = first_lanes(f, tile, f.sub(count, whole))
        from_line = f.gep("%tile", f.sub(low, "%n"), tile.element)
        at = f.add(f.mul(line, width), f.sub(low, line_at))
        to_line = f.gep(base, at, tile.element)
        with f.loop(0, "%rows") as row:
            sums = f.gep(from_line, f.mul(row, "%tile_pitch"), tile.element)
            to = f.gep(to_line, f.mul(row, m_stride), tile.element)
            with f.loop(0, whole, tile.lanes) as column:
                value = f.load(f.gep(sums, column, tile.element), tile.vector, tile.bytes)
                f.store(value, tile.vector, f.gep(to, column, tile.element), tile.bytes)
            with f.when(some):
                value = source.load_masked(f, f.gep(sums, whole, tile.element), mask)
                store_masked(f, tile, value, f.gep(to, whole, tile.element), mask)


def places_epilogue(tile: Tile) -> str:
    """The name of the next one."""
    return f"@graphc_places_epilogue_{tile.name}"


def emit_places_epilogue(module: Module, tile: Tile) -> None:
    """The epilogue on an image's positions in whole registers, which leaves out those of the last
    one that it has not."""
    f = module.function(
        f"void {places_epilogue(tile)}(ptr %copy, i64 %b, i64 %m, i64 %rows, i64 %n, "
        "i64 %columns, ptr %tile, i64 %pitch)",
        "internal",
    )
    c = Words(f, "%copy")
    positions = f.mul(c.read(Copy.OUT_HEIGHT), c.read(Copy.OUT_WIDTH))
    columns = f.smin("%columns", f.sub(positions, "%n"))
    with f.when(f.cmp("sgt", columns, 0)):
        values = (f"i64 {v}" for v in ("%b", "%m", "%rows", "%n", columns))
        epilogue, arguments = c.read_pointer(Copy.EPILOGUE), c.read_pointer(Copy.ARGUMENTS)
        f.call("void", epilogue, f"ptr {arguments}", *values, "ptr %tile", "i64 %pitch")
    f.ret()
