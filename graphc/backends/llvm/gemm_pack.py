"""Packing of matrix operands into panels, converting their elements to the accumulator's type.

`emit_gemm_pack` defines, for one source dtype and accumulator, one of
    @graphc_pack_left_<src>_<acc>      any strides, k in segments
    @graphc_pack_rows_<src>_<acc>      right operand with n of stride 1
    @graphc_pack_columns_<src>_<acc>   right operand with k of stride 1, by register transposes
    @graphc_pack_strided_<src>_<acc>   right operand, any strides
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from graphc.backends.llvm.gemm_descriptor import Descriptor, Word
from graphc.backends.llvm.gemm_plan import choose
from graphc.backends.llvm.microkernel import LINE, MR, Tile
from graphc.backends.llvm.text import Function, Module, Value
from graphc.backends.llvm.values import lane_numbers, memory_type
from graphc.ir import dtypes
from graphc.ir.dtypes import DType
from graphc.ir.record import record

LEFT_PARAMETERS = "ptr %d, ptr %base, i64 %m, i64 %rows, i64 %k, i64 %steps, ptr %to"
RIGHT_PARAMETERS = (
    "ptr %d, ptr %base, i64 %n, i64 %columns, i64 %k, i64 %steps, ptr %to, ptr %scratch"
)
LEFT_TYPES = "ptr, ptr, i64, i64, i64, i64, ptr"
RIGHT_TYPES = "ptr, ptr, i64, i64, i64, i64, ptr, ptr"


@record
class Source:
    """Elements of `dtype` in memory, read as the tile's accumulator type."""

    dtype: DType
    tile: Tile

    @property
    def name(self) -> str:
        """How helpers for this pair are called."""
        return f"{self.dtype.name}_{self.tile.name}"

    @property
    def shares_lines(self) -> bool:
        """Whether a register of elements takes less than a line of the caches, on a machine whose
        registers do."""
        return self.tile.lanes * self.tile.bytes < LINE

    @property
    def element(self) -> str:
        """LLVM's type of one element in memory."""
        return memory_type(self.dtype)

    @property
    def same(self) -> bool:
        """True if no conversion is needed."""
        if self.tile.value_bytes == 1:  # all bits of a word are used: there are no wider bytes
            return True
        return self.dtype is self.tile.step.left

    def _bits(self, lanes: int) -> str:
        """The type that memory is read as: half-width floats as integers, for any target."""
        element = f"i{self.dtype.bits}" if self.dtype.bits == 16 else self.element
        return element if lanes == 1 else f"<{lanes} x {element}>"

    def _convert(self, f: Function, value: str, lanes: int) -> str:
        """Elements as read from memory to accumulator elements."""
        if self.same and self.tile.group == 1:
            return value
        source = self._bits(lanes)
        target = self.tile.element if lanes == 1 else self.tile.vector
        if self.dtype is dtypes.bf16:
            return self._widen_bf16(f, value, lanes)
        if self.dtype is dtypes.f16:
            half = "half" if lanes == 1 else f"<{lanes} x half>"
            value, source = f.let(f"bitcast {source} {value} to {half}"), half
        if self.dtype.is_float:
            return f.let(f"fpext {source} {value} to {target}")
        if self.tile.bytes <= self.dtype.itemsize:
            return f.let(f"trunc {source} {value} to {target}")
        op = "sext" if self.dtype.is_signed else "zext"
        return f.let(f"{op} {source} {value} to {target}")

    def _widen_bf16(self, f: Function, value: str, lanes: int) -> str:
        """A bf16 is the upper half of an f32."""
        wide, narrow = "i32", "float"
        if lanes > 1:
            wide, narrow = f"<{lanes} x i32>", f"<{lanes} x float>"
        value = f.let(f"zext {self._bits(lanes)} {value} to {wide}")
        sixteen = "16" if lanes == 1 else "splat (i32 16)"
        value = f.let(f"bitcast {wide} {f.let(f'shl {wide} {value}, {sixteen}')} to {narrow}")
        if self.tile.accumulator == "f32":
            return value
        target = self.tile.element if lanes == 1 else self.tile.vector
        return f.let(f"fpext {narrow} {value} to {target}")

    def load(self, f: Function, place: str) -> str:
        """One element."""
        return self._convert(f, f.load(place, self._bits(1), self.dtype.itemsize), 1)

    def load_vector(self, f: Function, place: str) -> str:
        """One register of elements."""
        lanes = self.tile.lanes
        return self._convert(f, f.load(place, self._bits(lanes), self.dtype.itemsize), lanes)

    def load_words(self, f: Function, place: str, mask: str = "") -> str:
        """One register of steps from values that are neighbours along k; under a mask of values, as
        load_masked is, if there is one."""
        if self.tile.group == 1:
            return self.load_masked(f, place, mask) if mask else self.load_vector(f, place)
        count = self.tile.values
        kind = self._bits(count)
        if mask:
            callee, bits = f"@llvm.masked.load.v{count}{self._bits(1)}.p0", f"<{count} x i1>"
            f.module.declare(f"declare {kind} {callee}(ptr, i32, {bits}, {kind})")
            arguments = (f"ptr {place}", f"i32 {self.dtype.itemsize}", f"{bits} {mask}")
            value = f.call(kind, callee, *arguments, f"{kind} zeroinitializer")
        else:
            value = f.load(place, kind, self.dtype.itemsize)
        if not self.same:
            op, wide = "sext" if self.dtype.is_signed else "zext", f"<{count} x i16>"
            value, kind = f.let(f"{op} {kind} {value} to {wide}"), wide
        return f.let(f"bitcast {kind} {value} to {self.tile.vector}")

    def load_masked(self, f: Function, place: str, mask: str) -> str:
        """The lanes of a mask, the others zero; memory outside the mask is not touched."""
        lanes = self.tile.lanes
        kind, bits = self._bits(lanes), f"<{lanes} x i1>"
        callee = f"@llvm.masked.load.{self._suffix()}.p0"
        f.module.declare(f"declare {kind} {callee}(ptr, i32, {bits}, {kind})")
        arguments = (f"ptr {place}", f"i32 {self.dtype.itemsize}", f"{bits} {mask}")
        value = f.call(kind, callee, *arguments, f"{kind} zeroinitializer")
        return self._convert(f, value, lanes)

    def gather(self, f: Function, place: str, offsets: str, mask: str) -> str:
        """The lanes of a mask, each at its own (typed) offset in elements; the others zero."""
        lanes = self.tile.lanes
        kind, bits = self._bits(lanes), f"<{lanes} x i1>"
        callee = f"@llvm.masked.gather.{self._suffix()}.v{lanes}p0"
        f.module.declare(f"declare {kind} {callee}(<{lanes} x ptr>, i32, {bits}, {kind})")
        places = f.let(f"getelementptr {self.element}, ptr {place}, {offsets}")
        arguments = (f"<{lanes} x ptr> {places}", f"i32 {self.dtype.itemsize}", f"{bits} {mask}")
        value = f.call(kind, callee, *arguments, f"{kind} zeroinitializer")
        return self._convert(f, value, lanes)

    def _suffix(self) -> str:
        element = {"float": "f32", "double": "f64"}.get(self._bits(1), self._bits(1))
        return f"v{self.tile.lanes}{element}"


def store_masked(f: Function, tile: Tile, value: str, place: str, mask: str) -> None:
    """Stores the lanes of a mask."""
    callee = f"@llvm.masked.store.v{tile.lanes}{tile.accumulator}.p0"
    bits = f"<{tile.lanes} x i1>"
    f.module.declare(f"declare void {callee}({tile.vector}, ptr, i32, {bits})")
    arguments = (f"{tile.vector} {value}", f"ptr {place}", f"i32 {tile.bytes}", f"{bits} {mask}")
    f.call("void", callee, *arguments)


def store_words_masked(f: Function, tile: Tile, words: str, place: str, mask: str) -> None:
    """Stores the values of a mask from a register of steps."""
    if tile.group == 1:
        store_masked(f, tile, words, place, mask)
        return
    element = tile.value_element
    kind, bits = f"<{tile.values} x {element}>", f"<{tile.values} x i1>"
    callee = f"@llvm.masked.store.v{tile.values}{element}.p0"
    f.module.declare(f"declare void {callee}({kind}, ptr, i32, {bits})")
    words = f.let(f"bitcast {tile.vector} {words} to {kind}")
    arguments = (f"{kind} {words}", f"ptr {place}", f"i32 {tile.value_bytes}", f"{bits} {mask}")
    f.call("void", callee, *arguments)


def first_lanes(f: Function, tile: Tile, count: Value) -> str:
    """A mask of the first `count` lanes (all if count is larger, none if it is not positive)."""
    return _first(f, tile.lanes, count)


def first_values(f: Function, tile: Tile, count: Value) -> str:
    """A mask of the first `count` values of a register of steps."""
    return _first(f, tile.values, count)


def _first(f: Function, lanes: int, count: Value) -> str:
    numbers = lane_numbers(lanes, "i64")
    first = f.let(f"insertelement <{lanes} x i64> poison, i64 {count}, i64 0")
    splat = f"shufflevector <{lanes} x i64> {first}, <{lanes} x i64> poison"
    all_counts = f.let(f"{splat}, <{lanes} x i32> zeroinitializer")
    return f.let(f"icmp slt <{lanes} x i64> {numbers}, {all_counts}")


@contextmanager
def packed_vectors(
    f: Function, tile: Tile, columns: Value, steps: Value, first: Value = 0
) -> Iterator[tuple[Value, str, Value]]:
    """A loop over a block's vectors of columns, from the `first` on: yields (first column, address,
    elements per step).

    The layout is that of `gemm.panels` for packed operands. A panel's heads are written when the
    block ends.
    """
    wide, heads = tile.vectors, tile.step.heads
    rows = f.add(steps, heads)
    vectors = f.floordiv(f.add(columns, tile.lanes - 1), tile.lanes)
    rest = f.mod(vectors, wide)
    whole = f.sub(vectors, rest)
    two = f.cmp("sge", rest, 2)
    with f.loop(first, vectors) as index:
        over = f.sub(index, whole)
        full = f.cmp("slt", over, 0)
        pair = f.let(f"and i1 {two}, {f.cmp('slt', over, 2)}")
        width = choose(f, full, wide, choose(f, pair, 2, 1))
        start = choose(f, pair, whole, index)
        start = choose(f, full, f.sub(index, f.mod(index, wide)), start)
        offset = f.add(f.mul(start, rows), f.sub(index, start))
        to, pitch = f.gep("%to", f.mul(offset, tile.lanes), tile.element), f.mul(width, tile.lanes)
        start = f.gep(to, f.mul(pitch, heads), tile.element)
        yield f.mul(index, tile.lanes), start, pitch
        if heads:
            sums = f.carry_loop(0, steps, 1, [(tile.vector, tile.zero())])
            at = f.gep(start, f.mul(sums.index, pitch), tile.element)
            words = f.load(at, tile.vector, tile.bytes)
            (total,) = sums.close([tile.head(f, words, sums.values[0])])
            f.store(total, tile.vector, to, tile.bytes)


@contextmanager
def packed_panels(
    f: Function, tile: Tile, columns: Value, steps: Value
) -> Iterator[tuple[Value, str, Value]]:
    """A loop over a block's panels: yields (first column, address, elements per step)."""
    wide = tile.vectors
    vectors = f.floordiv(f.add(columns, tile.lanes - 1), tile.lanes)
    rest = f.mod(vectors, wide)
    whole = f.floordiv(vectors, wide)
    count = f.add(whole, f.add(f.floordiv(rest, 2), f.mod(rest, 2)))
    with f.loop(0, count) as index:
        over = f.sub(index, whole)
        full = f.cmp("slt", over, 0)
        pair = f.let(f"and i1 {f.cmp('sge', rest, 2)}, {f.cmp('eq', over, 0)}")
        width = choose(f, full, wide, choose(f, pair, 2, 1))
        start = f.add(f.mul(whole, wide), f.mul(over, 2))
        start = f.mul(choose(f, full, f.mul(index, wide), start), tile.lanes)
        yield start, f.gep("%to", f.mul(start, steps), tile.element), f.mul(width, tile.lanes)


def emit_gemm_pack(module: Module, source: Source, kind: str) -> None:
    """Defines a packer for one source dtype, where a step of k is one value."""
    _PACKERS[kind](module, source)


@contextmanager
def left_tiles(
    f: Function, source: Source, base: str, row_stride: Value
) -> Iterator[tuple[list[str], str]]:
    """A loop over the tiles of a packed left operand: yields (where its rows begin, address)."""
    with f.loop(0, "%rows", MR) as row:
        left = f.sub("%rows", row)
        rows = [f.gep(base, f.mul(f.add("%m", row), row_stride), source.element)]
        for index in range(1, MR):
            step = choose(f, f.cmp("slt", index, left), row_stride, 0)
            rows.append(f.gep(rows[-1], step, source.element))
        yield rows, f.gep("%to", f.mul(row, "%steps"), source.tile.element)


def copy_step(f: Function, source: Source, rows: list[str], offset: Value, to: str) -> None:
    """One step of k: an element of each row."""
    tile, offset = source.tile, f.opaque(offset)  # LLVM takes long to find a pointer for each
    for index, place in enumerate(rows):
        value = source.load(f, f.gep(place, offset, source.element))
        f.store(value, tile.element, f.gep(to, index, tile.element), tile.bytes)


def _emit_pack_left(module: Module, source: Source) -> None:
    f = module.function(f"void @graphc_pack_left_{source.name}({LEFT_PARAMETERS})")
    d = Descriptor(f, "%d")
    row_stride, stride, segment, jump = d.read(
        Word.LEFT_M, Word.LEFT_K, Word.SEGMENT, Word.LEFT_SEGMENT
    )
    end = f.add("%k", "%steps")
    length = f.smax(segment, 1)
    first = f.sdiv("%k", length)
    last = f.sdiv(f.add(end, f.sub(length, 1)), length)
    with (
        left_tiles(f, source, "%base", row_stride) as (rows, tile),
        f.loop(first, last) as index,
    ):
        start = f.mul(index, length)
        low, high = f.smax(start, "%k"), f.smin(f.add(start, length), end)
        shift = f.mul(index, jump)
        with f.loop(low, high) as k:
            offset = f.add(shift, f.mul(f.sub(k, start), stride))
            to = f.gep(tile, f.mul(f.sub(k, "%k"), MR), source.tile.element)
            copy_step(f, source, rows, offset, to)
    f.ret()


def _copy_panels(f: Function, source: Source, base: str, stride: Value) -> Value:
    """Copies the panels of full width a row at a time, so that no line is read twice: lines of rows
    that are a power of two apart would not stay in the first cache. Returns how many vectors that
    was."""
    tile = source.tile
    whole = f.floordiv("%columns", tile.columns)
    with f.loop(0, whole) as panel:
        column = f.mul(panel, tile.columns)
        place, to = f.gep(base, column, source.element), f.gep(
            "%to", f.mul(column, "%steps"), tile.element
        )
        with f.loop(0, "%steps") as step:
            at = f.gep(place, f.mul(step, stride), source.element)
            into = f.gep(to, f.mul(step, tile.columns), tile.element)
            for index in range(tile.vectors):
                part = index * tile.lanes
                value = source.load_vector(f, f.gep(at, part, source.element))
                f.store(value, tile.vector, f.gep(into, part, tile.element), tile.bytes)
    return f.mul(whole, tile.vectors)


def _emit_pack_rows(module: Module, source: Source) -> None:
    """n has stride 1: vectors are copied."""
    f = module.function(f"void @graphc_pack_rows_{source.name}({RIGHT_PARAMETERS})")
    tile = source.tile
    d = Descriptor(f, "%d")
    stride = d[Word.RIGHT_K]
    base = f.gep("%base", f.add(f.mul("%k", stride), "%n"), source.element)
    first = _copy_panels(f, source, base, stride) if source.shares_lines else 0
    with packed_vectors(f, tile, "%columns", "%steps", first) as (column, to, pitch):
        place = f.gep(base, column, source.element)
        left = f.sub("%columns", column)
        mask = first_lanes(f, tile, left)
        whole, part, done = f.label("whole"), f.label("part"), f.label("done")
        f.cond_br(f.cmp("sge", left, tile.lanes), whole, part)
        for label in (whole, part):
            f.block(label)
            with f.loop(0, "%steps") as step:
                at = f.gep(place, f.mul(step, stride), source.element)
                if label == whole:
                    value = source.load_vector(f, at)
                else:
                    value = source.load_masked(f, at, mask)
                f.store(value, tile.vector, f.gep(to, f.mul(step, pitch), tile.element), tile.bytes)
            f.br(done)
        f.block(done)
    f.ret()


def transpose_symbol(tile: Tile) -> str:
    """The register transpose: void (ptr from, i64 row bytes, ptr to, i64 row bytes)."""
    return f"@graphc_transpose_{tile.name}"


def declare_transpose(module: Module, tile: Tile) -> None:
    """Declares the transpose for packers that call it."""
    module.declare(f"declare void {transpose_symbol(tile)}(ptr, i64, ptr, i64)")


def emit_transpose(module: Module, tile: Tile) -> None:
    """Defines a transpose of lanes x lanes elements, log2(lanes) exchanges of register pairs."""
    symbol = transpose_symbol(tile)
    f = module.function(f"void {symbol}(ptr %from, i64 %pitch, ptr %to, i64 %to_pitch)")
    lanes, place = tile.lanes, "%from"
    rows = []
    for _ in range(lanes):
        rows.append(f.load(place, tile.vector, tile.bytes))
        place = f.let(f"getelementptr i8, ptr {place}, i64 %pitch")
    bit = 1
    while bit < lanes:
        low = [q if not q & bit else (q ^ bit) + lanes for q in range(lanes)]
        high = [q | bit if not q & bit else q + lanes for q in range(lanes)]
        masks = [
            f"<{lanes} x i32> <{', '.join(f'i32 {q}' for q in order)}>" for order in (low, high)
        ]
        for row in range(lanes):
            if not row & bit:
                a, b = rows[row], rows[row | bit]
                rows[row], rows[row | bit] = (
                    f.let(f"shufflevector {tile.vector} {a}, {tile.vector} {b}, {mask}")
                    for mask in masks
                )
        bit *= 2
    place = "%to"
    for value in rows:
        f.store(value, tile.vector, place, tile.bytes)
        place = f.let(f"getelementptr i8, ptr {place}, i64 %to_pitch")
    f.ret()


def transpose_part(
    f: Function, tile: Tile, buffers: Sequence[str], rows: Value, load: Callable[[Value], str],
    count: Value, target: str, pitch: Value,
) -> None:
    """Transposes so many rows, each a register that `load` gives, through two buffers of a square;
    so many of the results are stored, `pitch` elements apart."""
    square = tile.lanes * tile.bytes
    with f.loop(0, rows) as row:
        value = load(row)
        f.store(value, tile.vector, f.gep(buffers[0], row, tile.vector), tile.bytes)
    arguments = (f"ptr {buffers[0]}", f"i64 {square}", f"ptr {buffers[1]}")
    f.call("void", transpose_symbol(tile), *arguments, f"i64 {square}")
    with f.loop(0, count) as row:
        value = f.load(f.gep(buffers[1], row, tile.vector), tile.vector, tile.bytes)
        at = f.gep(target, f.mul(row, pitch), tile.element)
        f.store(value, tile.vector, at, tile.bytes)


def _emit_pack_columns(module: Module, source: Source) -> None:
    """k has stride 1: squares are transposed, ragged or converted ones through a buffer."""
    f = module.function(f"void @graphc_pack_columns_{source.name}({RIGHT_PARAMETERS})")
    tile = source.tile
    lanes = tile.lanes
    declare_transpose(module, tile)
    d = Descriptor(f, "%d")
    stride = d[Word.RIGHT_N]
    stride_bytes = f.mul(stride, source.dtype.itemsize)
    buffers = [f.alloca(tile.vector, lanes) for _ in range(2)]
    # columns that are not there are multiplied, too: what this memory held may be subnormal, which
    # takes an Intel CPU some 150 cycles
    for row in range(lanes):
        f.store(tile.zero(), tile.vector, f.gep(buffers[0], row, tile.vector), tile.bytes)
    base = f.gep("%base", f.add(f.mul("%n", stride), "%k"), source.element)
    with packed_vectors(f, tile, "%columns", "%steps") as (column, to, pitch):
        first = f.gep(base, f.mul(column, stride), source.element)
        rows = f.smin(f.sub("%columns", column), lanes)
        pitch_bytes = f.mul(pitch, tile.bytes)
        with f.loop(0, "%steps", lanes) as step:
            place = f.gep(first, step, source.element)
            target = f.gep(to, f.mul(step, pitch), tile.element)
            steps = f.smin(f.sub("%steps", step), lanes)
            whole = f.cmp("eq", f.add(rows, steps), 2 * lanes) if source.same else "false"
            fast, slow, done = f.label("fast"), f.label("slow"), f.label("done")
            f.cond_br(whole, fast, slow)
            f.block(fast)
            arguments = (f"ptr {place}", f"i64 {stride_bytes}", f"ptr {target}")
            f.call("void", transpose_symbol(tile), *arguments, f"i64 {pitch_bytes}")
            f.br(done)
            f.block(slow)
            mask = first_lanes(f, tile, steps)

            def load(row: Value, place: str = place, mask: str = mask) -> str:
                at = f.gep(place, f.mul(row, stride), source.element)
                return source.load_masked(f, at, mask)

            transpose_part(f, tile, buffers, rows, load, steps, target, pitch)
            f.br(done)
            f.block(done)
    f.ret()


def _emit_pack_strided(module: Module, source: Source) -> None:
    """Any strides, element by element."""
    f = module.function(f"void @graphc_pack_strided_{source.name}({RIGHT_PARAMETERS})")
    tile = source.tile
    d = Descriptor(f, "%d")
    k_stride, n_stride = d.read(Word.RIGHT_K, Word.RIGHT_N)
    start = f.add(f.mul("%k", k_stride), f.mul("%n", n_stride))
    base = f.gep("%base", start, source.element)
    with packed_vectors(f, tile, "%columns", "%steps") as (column, to, pitch):
        rows = f.smin(f.sub("%columns", column), tile.lanes)
        first = f.gep(base, f.mul(column, n_stride), source.element)
        with f.loop(0, rows) as lane:
            place = f.gep(first, f.mul(lane, n_stride), source.element)
            target = f.gep(to, lane, tile.element)
            with f.loop(0, "%steps") as step:
                value = source.load(f, f.gep(place, f.mul(step, k_stride), source.element))
                at = f.gep(target, f.mul(step, pitch), tile.element)
                f.store(value, tile.element, at, tile.bytes)
    f.ret()


_PACKERS = {
    "left": _emit_pack_left, "rows": _emit_pack_rows, "columns": _emit_pack_columns,
    "strided": _emit_pack_strided,
}


def right_packer(k_stride: object, n_stride: object) -> str:
    """Which packer suits the strides of a right operand: "rows", "columns" or "strided"."""
    if n_stride == 1:
        return "rows"
    return "columns" if k_stride == 1 else "strided"
