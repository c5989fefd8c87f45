"""Tiles of dot products: both operands contiguous along k, so nothing is packed or transposed.

For few rows or columns, and for weight gradients of convolutions with few channels, where the
packing of B would cost more than the product.
"""

from graphc.backends.llvm.gemm_descriptor import Descriptor, Word
from graphc.backends.llvm.gemm_pack import RIGHT_PARAMETERS, RIGHT_TYPES, Source, first_values
from graphc.backends.llvm.microkernel import (
    MR,
    ROW_CLASSES,
    Tile,
    emit_table,
    kernel_parameters,
    row_addresses,
)
from graphc.backends.llvm.text import Function, Module, Value

# What a_step points to: k is segments of lines of elements; distances are in bytes.
A_SEGMENT, B_SEGMENT, LINES, LENGTH, A_LINE, B_LINE = range(6)
SHAPE_WORDS = 6


def dot_table(tile: Tile) -> str:
    """The symbol of the table of all dot kernels."""
    return f"@graphc_dots_{tile.name}"


def dot_symbol(tile: Tile, rows: int) -> str:
    """A kernel "dot"."""
    return f"@graphc_dot_{rows}_{tile.name}"


def point_columns(tile: Tile) -> str:
    """The symbol of a pack_right that stores pointers to the columns of a matrix."""
    return f"@graphc_point_columns_{tile.name}"


def declare_point_columns(module: Module, tile: Tile) -> str:
    """Declares and returns point_columns."""
    module.declare(f"declare void {point_columns(tile)}({RIGHT_TYPES})")
    return point_columns(tile)


def emit_dots(module: Module, tile: Tile) -> None:
    """Defines all kernels "dot" and their table."""
    for rows in ROW_CLASSES:
        emit_dot(module, tile, rows, "internal")
    kernels = [dot_symbol(tile, rows) for rows in ROW_CLASSES for _ in tile.widths]
    emit_table(module, dot_table(tile), kernels)


def emit_dot(module: Module, tile: Tile, rows: int, linkage: str = "") -> None:
    """Defines a kernel "dot".

    b holds one pointer per column, to which b_step is added; a_step is the address of the words
    above, and `steps` counts segments.
    """
    _Dot(module, tile, rows, linkage).emit()


def _groups(tile: Tile, rows: int) -> tuple[int, ...]:
    """How many columns are gone along at a time, the most first: as many as accumulators allow,
    since memory gives more to many streams (16.5 GB/s to 4, 25 to 16, of 31 to one long read); few
    columns go by fewer."""
    few = min(tile.vectors, tile.lanes)
    many = few
    while 2 * many <= min(tile.lanes, 8) and 2 * many * rows <= MR * tile.vectors:
        many *= 2
    return (many, few) if many > few else (few,)


class _Dot:
    """One kernel: groups of columns, and for each the loops over segments, lines and elements."""

    def __init__(self, module: Module, tile: Tile, rows: int, linkage: str) -> None:
        self.tile, self.rows = tile, rows
        symbol = dot_symbol(tile, rows)
        self.f = module.function(f"void {symbol}({kernel_parameters()})", linkage)

    def emit(self) -> None:
        """Defines the function."""
        f = self.f
        self.places = row_addresses(f, self.rows)
        shape = f.let("inttoptr i64 %a_step to ptr")
        words = [f.load(f.gep(shape, index, "i64"), "i64", 8) for index in range(SHAPE_WORDS)]
        self.a_segment, self.b_segment, self.lines, self.length, self.a_line, self.b_line = words
        values = self.tile.values
        self.whole = f.mul(f.floordiv(self.length, values), values)
        self.mask = first_values(f, self.tile, f.sub(self.length, self.whole))
        self.has_tail = f.cmp("sgt", self.length, self.whole)
        *larger, smallest = _groups(self.tile, self.rows)
        first: Value = 0
        for group in larger:
            whole = f.mul(f.floordiv("%columns", group), group)
            self._columns(first, whole, group)
            first = whole
        self._columns(first, "%columns", smallest)
        f.ret()

    def _columns(self, first: Value, end: Value, group: int) -> None:
        """Columns from `first` to before `end`, `group` at a time; in the last group, the last one
        stands in for those that are missing."""
        f = self.f
        self.group, last = group, f.sub(end, 1)
        with f.loop(first, end, group) as column:
            self.columns = []
            for index in range(group):
                at = f.smin(f.add(column, index), last)
                pointer = f.load(f.gep("%b", at, "ptr"), "ptr", 8)
                self.columns.append(f.gep(pointer, "%b_step", "i8"))
            self._store(self._segments(), column)

    def _segments(self) -> list[str]:
        """The accumulators, row by row, after all of k."""
        f, tile = self.f, self.tile
        zeros = [(tile.vector, tile.zero())] * (self.rows * self.group)
        outer = f.carry_loop(0, "%steps", 1, [("i64", "0"), ("i64", "0"), *zeros])
        a, b, *sums = outer.values
        start = [("i64", a), ("i64", b), *((tile.vector, total) for total in sums)]
        line = f.carry_loop(0, self.lines, 1, start)
        a_at, b_at, *sums = line.values
        sums = self._line(a_at, b_at, sums)
        moved = [str(f.add(a_at, self.a_line)), str(f.add(b_at, self.b_line))]
        sums = line.close([*moved, *sums])[2:]
        moved = [str(f.add(a, self.a_segment)), str(f.add(b, self.b_segment))]
        return outer.close([*moved, *sums])[2:]

    def _line(self, a: str, b: str, sums: list[str]) -> list[str]:
        """One line: whole registers, then a masked one if elements are left."""
        f, tile = self.f, self.tile
        # or LLVM keeps a pointer per row and column and advances them all on every line
        a, b = f.opaque(a), f.opaque(b)
        rows = [f.gep(place, a, "i8") for place in self.places]
        columns = [f.gep(place, b, "i8") for place in self.columns]
        loop = f.carry_loop(0, self.whole, tile.values, [(tile.vector, total) for total in sums])
        sums = loop.close(self._step(rows, columns, loop.index, loop.values, ""))
        before, tail, after = f.current, f.label("tail"), f.label("after")
        f.cond_br(self.has_tail, tail, after)
        f.block(tail)
        more = self._step(rows, columns, self.whole, sums, self.mask)
        f.br(after)
        f.block(after)
        pairs = zip(sums, more, strict=True)
        return [f.phi(tile.vector, ((old, before), (new, tail))) for old, new in pairs]

    def _step(
        self, rows: list[str], columns: list[str], index: Value, sums: list[str], mask: str
    ) -> list[str]:
        """Registers at `index` of all rows times those of all columns, under the mask if any."""
        f, tile = self.f, self.tile
        source = Source(tile.step.left, tile)

        def load(place: str) -> str:
            return source.load_words(f, f.gep(place, index, source.element), mask)

        right = [load(place) for place in columns]
        result = []
        for row, place in enumerate(rows):
            value = load(place)
            for column, other in enumerate(right):
                total = sums[row * self.group + column]
                result.append(tile.multiply_add(f, value, other, total))
        return result

    def _store(self, sums: list[str], column: Value) -> None:
        """Adds up the lanes and stores one short vector per row."""
        f, tile, group = self.f, self.tile, self.group
        kind = f"<{group} x {tile.element}>"
        more = f.let("icmp ne i64 %accumulate, 0")
        for row in range(self.rows):
            total = sum_lanes(f, tile, sums[row * group : (row + 1) * group])
            place = f.gep("%c", f.add(f.mul("%pitch", row), column), tile.element)
            old = f.load(place, kind, tile.bytes)
            old = f.let(f"select i1 {more}, {kind} {old}, {kind} zeroinitializer")
            op = "fadd" if tile.accumulator[0] == "f" else "add"
            f.store(f.let(f"{op} {kind} {total}, {old}"), kind, place, tile.bytes)


def sum_lanes(f: Function, tile: Tile, vectors: list[str]) -> str:
    """A vector of the sums over lanes of 1, 2, 4, ... vectors, in a fixed order."""
    op = "fadd" if tile.accumulator[0] == "f" else "add"
    lanes, count = tile.lanes, len(vectors)

    def shuffle(a: str, b: str, order: list[int], kind: str) -> str:
        mask = ", ".join(f"i32 {lane}" for lane in order)
        return f.let(f"shufflevector {kind} {a}, {kind} {b}, <{len(order)} x i32> <{mask}>")

    while lanes > count:
        kind, half = f"<{lanes} x {tile.element}>", f"<{lanes // 2} x {tile.element}>"
        halves = [
            [shuffle(v, v, list(range(at, at + lanes // 2)), kind) for at in (0, lanes // 2)]
            for v in vectors
        ]
        vectors = [f.let(f"{op} {half} {a}, {b}") for a, b in halves]
        lanes //= 2
    kind = f"<{lanes} x {tile.element}>"
    width = 1  # neighbouring lanes that belong to one vector's partial sums
    while len(vectors) > 1:
        pairs = list(zip(vectors[::2], vectors[1::2], strict=True))
        # the second vector's lanes go where the first one's have this bit set
        order = [(q ^ width) + lanes if q & width else q for q in range(lanes)]
        vectors = [
            f.let(
                f"{op} {kind} {shuffle(a, b, order, kind)}, "
                f"{shuffle(a, b, [lane + width for lane in order], kind)}"
            )
            for a, b in pairs
        ]
        width *= 2
    return vectors[0]


def emit_point_columns(module: Module, tile: Tile) -> None:
    """Defines the filling of pointers for a matrix."""
    f = module.function(f"void {point_columns(tile)}({RIGHT_PARAMETERS})")
    stride = Descriptor(f, "%d")[Word.RIGHT_N]
    with f.loop(0, "%columns") as column:
        place = f.gep("%base", f.mul(f.add("%n", column), stride), tile.value_element)
        f.store(place, "ptr", f.gep("%to", column, "ptr"), 8)
    f.ret()
