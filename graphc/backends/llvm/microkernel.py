"""The register tile of every contraction: C[rows, columns] += A[rows, k] * B[k, columns].

A tile has `MR` rows of up to `vectors` registers. Its accumulators stay in registers over the
whole k loop; every step broadcasts one element per row and loads one vector per column group.
"""

import functools
from collections.abc import Sequence
from typing import Literal, cast

from graphc.backends.llvm.right_memory import load_right, right_bytes, right_element
from graphc.backends.llvm.target import Target
from graphc.backends.llvm.text import Function, Module, Value
from graphc.ir.kernel.steps import STEPS, Step, machine_of
from graphc.ir.machine import Machine, Tiling
from graphc.ir.record import record

Accumulator = Literal["f32", "f64", "i32", "i64"]

ACCUMULATORS: tuple[Accumulator, ...] = ("f32", "f64", "i32", "i64")

# Instructions that multiply and add words of several values, and what they take these for. That for
# bytes has one operand without signs and one with them.
_PRODUCTS = {
    "bf16": ("avx512bf16.dpbf16ps", "bfloat"),
    "i16": ("avx512.vpdpwssd", "i16"),
    **dict.fromkeys(("u8i8", "i8u8", "i8i8"), ("avx512.vpdpbusd", "i8")),
}
# by bytes of a register: the same of "i16" without what it is added to
_PAIRS = {32: "avx2.pmadd.wd", 64: "avx512.pmaddw.d.512"}
_SIGNS = -0x7F7F7F80  # of the four bytes of a word

LINE = 64  # bytes of the caches' lines
RUN_STEPS = 32  # beside a tile of more steps its call is little
MR = 6  # rows of the full tile
ROW_CLASSES = (6, 4, 2, 1)  # a tile of 5 rows runs the kernel of 6, its last row computed twice
MATRIX_CLASSES = (32, 31, 16)  # a matrix unit's: all rows, 17 at least, 16 at most
_LEAST, _MATRIX_LEAST = (5, 3, 2, 1), (32, 17, 1)  # rows that each is for

_ELEMENTS = {"f32": "float", "f64": "double", "i32": "i32", "i64": "i64"}


@record
class Tile:
    """The shape of the register tile for one type of values on one target.

    Its operands are words as wide as a sum: a value each, or neighbours along k.
    """

    name: str  # of a Step
    target: Target

    @property
    def accumulator(self) -> Accumulator:
        """What is summed in."""
        return cast(Accumulator, self.step.sums.name)

    @property
    def step(self) -> Step:
        """A step of k."""
        return STEPS[self.name]

    @property
    def group(self) -> int:
        """Values of a word, neighbours along k: a step of k."""
        return self.step.group

    @property
    def value_bytes(self) -> int:
        """Bytes of one value, of either operand."""
        return self.bytes // self.group

    @property
    def value_element(self) -> str:
        """LLVM's type of a value in memory."""
        return self.element if self.group == 1 else f"i{8 * self.value_bytes}"

    @property
    def values(self) -> int:
        """Values of a register of steps."""
        return self.lanes * self.group

    @property
    def element(self) -> str:
        """LLVM's scalar type."""
        return _ELEMENTS[self.accumulator]

    @property
    def bytes(self) -> int:
        """Bytes of one element."""
        return 4 if self.accumulator in ("f32", "i32") else 8

    @property
    def lanes(self) -> int:
        """Elements of one register."""
        return self.target.lanes(self.bytes)

    @property
    def vector(self) -> str:
        """LLVM's vector type of one register."""
        return f"<{self.lanes} x {self.element}>"

    @property
    def machine(self) -> Machine:
        """What contractions are planned for."""
        return _machine(self)

    @property
    def tiling(self) -> Tiling:
        """Its part on templates."""
        assert self.machine.tiling is not None
        return self.machine.tiling

    @property
    def rows(self) -> int:
        """Rows of the full tile."""
        return self.tiling.rows

    @property
    def row_classes(self) -> tuple[int, ...]:
        """Kernels by their rows, the full one first."""
        return MATRIX_CLASSES if self.step.matrix else ROW_CLASSES

    @property
    def least_rows(self) -> tuple[int, ...]:
        """The fewest rows that each of them is for."""
        return _MATRIX_LEAST if self.step.matrix else _LEAST

    @property
    def vectors(self) -> int:
        """Registers per row of the full tile."""
        return self.tiling.vectors

    @property
    def columns(self) -> int:
        """Columns of the full tile."""
        return self.lanes * self.vectors

    @property
    def unrolled(self) -> int:
        """Steps of an iteration. Beside multiply-adds of two instructions a loop's own have room,
        and several steps of them would take more registers."""
        fused = self.group == 1 and self.accumulator[0] == "f" and self.target.has_fma
        return self.tiling.unrolled if fused else 1

    @property
    def widths(self) -> tuple[int, ...]:
        """Widths in registers for which there is a kernel, the full one first."""
        return tuple(width for width in (4, 2, 1) if width <= self.vectors)

    def zero(self) -> str:
        """A vector of zeros."""
        return "zeroinitializer"

    def add(self, f: Function, a: str, b: str) -> str:
        """a + b on vectors."""
        op = "fadd" if self.accumulator[0] == "f" else "add"
        return f.let(f"{op} {self.vector} {a}, {b}")

    def multiply_add(self, f: Function, a: str, b: str, c: str) -> str:
        """a * b + c on vectors; rounded once where the target can."""
        kind = self.vector
        if self.group > 1:
            return self._multiply_add_words(f, a, b, c)
        if self.accumulator[0] == "i":
            return f.let(f"add {kind} {f.let(f'mul {kind} {a}, {b}')}, {c}")
        name = "fma" if self.target.has_fma else "fmuladd"
        callee = f"@llvm.{name}.v{self.lanes}{self.accumulator}"
        f.module.declare(f"declare {kind} {callee}({kind}, {kind}, {kind})")
        return f.call(kind, callee, f"{kind} {a}", f"{kind} {b}", f"{kind} {c}")

    def _multiply_add_words(self, f: Function, a: str, b: str, c: str) -> str:
        """c + a[0] * b[0] + a[1] * b[1] ... for each lane's words. Of bfloat16, the instruction
        rounds to nearest even and takes and gives 0 for what is denormal, whatever MXCSR says."""
        name, element = _PRODUCTS[self.name]
        words, callee = f"<{self.values} x {element}>", f"@llvm.x86.{name}.512"
        a, b = (f.let(f"bitcast {self.vector} {x} to {words}") for x in (a, b))
        if self.name == "i16" and not self.target.adds_pairs:
            callee = f"@llvm.x86.{_PAIRS[self.target.vector_bytes]}"
            f.module.declare(f"declare {self.vector} {callee}({words}, {words})")
            return self.add(f, c, f.call(self.vector, callee, f"{words} {a}", f"{words} {b}"))
        f.module.declare(f"declare {self.vector} {callee}({self.vector}, {words}, {words})")
        if self.name == "i8u8":
            a, b = b, a
        return f.call(self.vector, callee, f"{self.vector} {c}", f"{words} {a}", f"{words} {b}")

    def of_left(self, f: Function, words: str, lanes: int) -> str:
        """The left operand's words, so many, as they are packed: a byte x as x + 128 where the step
        is centred."""
        if not self.step.centred:
            return words
        kind, signs = ("i32", str(_SIGNS)) if lanes == 1 else (self.vector, f"splat (i32 {_SIGNS})")
        return f.let(f"xor {kind} {words}, {signs}")

    def head(self, f: Function, words: str, sums: str) -> str:
        """Less what `of_left` adds too much to a register of sums, for these words of the right
        operand."""
        ones = f"splat (i32 {_SIGNS})"
        added = self.multiply_add(f, ones, words, "zeroinitializer")
        return f.let(f"sub {self.vector} {sums}, {added}")

    def splat(self, f: Function, scalar: str) -> str:
        """A scalar in every lane."""
        first = f.let(f"insertelement {self.vector} poison, {self.element} {scalar}, i64 0")
        mask = f"<{self.lanes} x i32> zeroinitializer"
        return f.let(f"shufflevector {self.vector} {first}, {self.vector} poison, {mask}")


@functools.cache
def _machine(tile: Tile) -> Machine:
    return machine_of(tile.target.machine, tile.step)


def kernel_parameters() -> str:
    """Parameters of a tile kernel; strides are in bytes.

    b begins with the heads of its panel, if it has any.
    c has rows that are `pitch` columns apart: a block of its own, of which `columns` are wanted, or
    where the result lies. If `accumulate` is not 0 the product is added to c, else it replaces c.
    Each step asks the memory for the lines at `ahead`, which `ahead_step` is then added to.
    """
    return (
        "i64 %steps, ptr noalias readonly %a, i64 %a_row, i64 %a_step, "
        "ptr noalias readonly %b, i64 %b_step, ptr noalias %c, i64 %rows, i64 %accumulate, "
        "i64 %columns, i64 %pitch, ptr %ahead, i64 %ahead_step"
    )


def lines_asked(tile: Tile) -> int:
    """How many lines a step asks the memory for: two tiles of rows ask for a whole panel."""
    return max(tile.columns * tile.bytes // LINE // 2, 1)


def tile_symbol(tile: Tile, rows: int, width: int, kind: str = "tile") -> str:
    """A kernel "tile" or "window"."""
    return f"@graphc_{kind}_{rows}x{width}_{tile.name}"


def run_kernel_symbol(tile: Tile, rows: int) -> str:
    """A kernel "run"."""
    return f"@graphc_run_{rows}_{tile.name}"


def tiles_table(tile: Tile) -> str:
    """All kernels "tile" by [row class][width]."""
    return f"@graphc_tiles_{tile.name}"


def runs_table(tile: Tile) -> str:
    """All kernels "run" by row class."""
    return f"@graphc_runs_{tile.name}"


def kernel_types() -> str:
    """The types of a tile kernel's parameters."""
    return "i64, ptr, i64, i64, ptr, i64, ptr, i64, i64, i64, i64, ptr, i64"


def run_types() -> str:
    """The types of a run kernel's parameters."""
    return "i64, i64, ptr, i64, i64, ptr, i64, ptr, i64, i64"


def declare_table(module: Module, symbol: str) -> str:
    """Declares a table of another module and returns its name."""
    if module.count_use(symbol) == 1:
        module.globals.append(f"{symbol} = external constant ptr")
    return symbol


def emit_table(module: Module, symbol: str, kernels: Sequence[str], linkage: str = "") -> None:
    """A constant array of kernels."""
    array = f"[{len(kernels)} x ptr] [{', '.join(f'ptr {kernel}' for kernel in kernels)}]"
    module.globals.append(f"{symbol} = {linkage} constant {array}".replace("  ", " "))


def emit_kernel_table(module: Module, tile: Tile) -> None:
    """All kernels "tile" by [row class][width]."""
    kernels = [tile_symbol(tile, r, w) for r in tile.row_classes for w in tile.widths]
    emit_table(module, tiles_table(tile), kernels)


def emit_microkernels(module: Module, tile: Tile) -> None:
    """Defines the kernels "tile" for every row class and width."""
    for rows in ROW_CLASSES:
        for width in tile.widths:
            emit_kernel(module, tile, rows, width, linkage="internal")


def emit_kernel(
    module: Module, tile: Tile, rows: int, width: int, by_pointers: bool = False, linkage: str = ""
) -> None:
    """Defines a kernel "tile": B is dense, b_step apart.

    With by_pointers a kernel "window": b holds one pointer per register of columns, b_step is the
    address of a table of byte offsets, one per step, common to all columns.
    """
    symbol = tile_symbol(tile, rows, width, "window" if by_pointers else "tile")
    f = module.function(f"void {symbol}({kernel_parameters()})", linkage)
    places = row_addresses(f, rows)
    with f.when(f.cmp("ne", "%pitch", width * tile.lanes)):  # a block of its own is in the cache
        ask_for(f, result_rows(f, tile, rows, "%c"), width * tile.lanes * tile.bytes)
    b, starts = "%b", [tile.zero()] * width
    if tile.step.heads and not by_pointers:
        places_ = [f.gep("%b", index * tile.lanes, tile.element) for index in range(width)]
        starts = [f.load(place, tile.vector, tile.bytes) for place in places_]
        b = f.let("getelementptr i8, ptr %b, i64 %b_step")
    begin = [("i64", "0"), ("ptr", b), *[(tile.vector, start) for start in starts] * rows]
    if by_pointers:
        sums = _by_pointers(f, tile, places, width, begin)
    else:
        f.module.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        sums = _dense(f, tile, places, width, begin)
    # opaque, or the rows' addresses take registers from the loop
    c = f.let('call ptr asm "", "=r,0"(ptr %c)')
    emit_result(f, tile, result_rows(f, tile, rows, c), sums)


def _by_pointers(
    f: Function, tile: Tile, places: list[str], width: int, begin: list[tuple[str, str]]
) -> list[str]:
    """The sums of a kernel "window", which begin as that says, behind an offset and b."""
    pointers = [f.load(f.gep("%b", index, "ptr"), "ptr", 8) for index in range(width)]
    table = f.let("inttoptr i64 %b_step to ptr")
    loop = f.carry_loop(0, "%steps", 1, begin)
    offset, b, *sums = loop.values
    shift = f.load(f.gep(table, loop.index, "i64"), "i64", 8)
    at = [f.gep(pointer, shift, "i8") for pointer in pointers]
    columns = [f.load(place, tile.vector, tile.bytes) for place in at]
    sums = multiply_step(f, tile, (places, offset), columns, sums)
    offset = f.let(f"add i64 {offset}, %a_step")
    return loop.close([offset, b, *sums])[2:]


def _dense(
    f: Function, tile: Tile, places: list[str], width: int, begin: list[tuple[str, str]]
) -> list[str]:
    """The sums of a kernel "tile", which begin as that says, behind an offset and b: several steps
    an iteration where the right operand is packed, the left one dense along them, or packed, too,
    and what is asked for goes along with it, or is there; then the others."""
    panel = width * tile.lanes * right_bytes(tile)
    apart = [(tile.bytes, tile.unrolled)]
    if len(places) == MR and width == tile.vectors:  # half as many: code takes long to compile
        apart.append((MR * tile.bytes, tile.unrolled // 2))
    start: Value = 0
    if tile.unrolled > 1:
        packed, there = f.cmp("eq", "%b_step", panel), f.cmp("eq", "%ahead_step", 0)
        whole = f.let(f"and i64 %steps, {-tile.unrolled}")
        asked = f.let(f"select i1 {there}, ptr %a, ptr %ahead")
        for a_step, count in apart:
            along = f.let(f"or i1 {there}, {f.cmp('eq', '%ahead_step', a_step)}")
            here = f.let(f"and i1 {f.let(f'and i1 {packed}, {along}')}, "
                         f"{f.cmp('eq', '%a_step', a_step)}")
            end = f.let(f"select i1 {here}, i64 {whole}, i64 0")
            loop = f.carry_loop(0, end, count, begin)
            offset, b, *sums = loop.values
            _ask(f, tile, f.let(f"getelementptr i8, ptr {asked}, i64 {offset}"))
            for _ in range(count):
                step = _step(f, tile, places, width, (offset, b, sums), (a_step, panel))
                offset, b, sums = step
            sums = loop.close([offset, b, *sums])[2:]
            # said by itself, or the loop would work it out at each iteration
            (_, offset), (_, b) = begin[:2]
            offset = f.let(f"add i64 {offset}, {f.mul(end, a_step)}")
            b = f.gep(b, f.mul(end, panel), "i8")
            begin = [("i64", offset), ("ptr", b), *((tile.vector, each) for each in sums)]
            start = f.add(start, end)
    ahead = f.gep("%ahead", f.mul(start, "%ahead_step"), "i8")
    loop = f.carry_loop(start, "%steps", 1, [("ptr", ahead), *begin])
    ahead, offset, b, *sums = loop.values
    _ask(f, tile, ahead)
    ahead = f.let(f"getelementptr i8, ptr {ahead}, i64 %ahead_step")
    offset, b, sums = _step(f, tile, places, width, (offset, b, sums), ("%a_step", "%b_step"))
    return loop.close([ahead, offset, b, *sums])[3:]


def _ask(f: Function, tile: Tile, ahead: str) -> None:
    for line in range(lines_asked(tile)):
        asked = f.gep(ahead, line * LINE, "i8")
        f.call("void", "@llvm.prefetch.p0", f"ptr {asked}", "i32 0", "i32 2", "i32 1")


def _step(
    f: Function, tile: Tile, places: list[str], width: int, at: tuple[str, str, list[str]],
    strides: tuple[Value, Value],
) -> tuple[str, str, list[str]]:
    """A step from (an offset in rows, b, sums) to the next one, in bytes."""
    offset, b, sums = at
    a_step, b_step = strides
    parts = [f.gep(b, index * tile.lanes, right_element(tile)) for index in range(width)]
    columns = [load_right(f, tile, place) for place in parts]
    sums = multiply_step(f, tile, (places, offset), columns, sums)
    offset = f.let(f"add i64 {offset}, {a_step}")
    return offset, f.let(f"getelementptr i8, ptr {b}, i64 {b_step}"), sums


def run_parameters() -> str:
    """Parameters of a run kernel: those of a tile kernel, for `count` panels of full width, side by
    side where they lie in B, and one after the other, MR rows each, in c."""
    return (
        "i64 %count, i64 %steps, ptr noalias readonly %a, i64 %a_row, i64 %a_step, "
        "ptr noalias readonly %b, i64 %b_step, ptr noalias %c, i64 %rows, i64 %accumulate"
    )


def emit_run(module: Module, tile: Tile, rows: int, linkage: str = "") -> None:
    """Defines a kernel "run".

    Where few steps of many columns are multiplied at a time, a call per tile would cost more than
    the tile: memory is then read no faster than at half its speed.
    """
    symbol = run_kernel_symbol(tile, rows)
    f = module.function(f"void {symbol}({run_parameters()})", linkage)
    places = row_addresses(f, rows)
    more, width = f.let("icmp ne i64 %accumulate, 0"), tile.vectors
    zeros = [(tile.vector, tile.zero())] * (rows * width)
    panels = f.carry_loop(0, "%count", 1, [("ptr", "%b"), ("ptr", "%c")])
    b_start, c = panels.values
    loop = f.carry_loop(0, "%steps", 1, [("i64", "0"), ("ptr", b_start), *zeros])
    offset, b, *sums = loop.values
    at = [f.gep(b, index * tile.lanes, right_element(tile)) for index in range(width)]
    columns = [load_right(f, tile, place) for place in at]
    sums = multiply_step(f, tile, (places, offset), columns, sums)
    offset = f.let(f"add i64 {offset}, %a_step")
    b = f.let(f"getelementptr i8, ptr {b}, i64 %b_step")
    for index, total in enumerate(loop.close([offset, b, *sums])[2:]):
        place = f.gep(c, index * tile.lanes, tile.element)
        old = f.load(place, tile.vector, tile.bytes)
        added = tile.add(f, total, old)
        total = f.let(f"select i1 {more}, {tile.vector} {added}, {tile.vector} {total}")
        f.store(total, tile.vector, place, tile.bytes)
    next_c = f.gep(c, MR * tile.columns, tile.element)
    panels.close([f.gep(b_start, tile.columns, right_element(tile)), next_c])
    f.ret()


def row_addresses(f: Function, rows: int) -> list[str]:
    """One pointer per row; a class's last row may be missing, then the one before stands in."""
    return _rows_from(f, rows, "%a", "%a_row")


def result_rows(f: Function, tile: Tile, rows: int, c: str) -> list[str]:
    """Where rows of c begin: the row that stands in is stored twice, not beside the result."""
    return _rows_from(f, rows, c, f.mul("%pitch", tile.bytes))


def _rows_from(f: Function, rows: int, first: str, apart: Value) -> list[str]:
    places = [first]
    for row in range(1, rows):
        step = apart
        if row == rows - 1 and rows > 2:
            present = f.let(f"icmp eq i64 %rows, {rows}")
            step = f.let(f"select i1 {present}, i64 {apart}, i64 0")
        places.append(f.let(f"getelementptr i8, ptr {places[-1]}, i64 {step}"))
    return places


def ask_for(f: Function, rows: list[str], size: int) -> None:
    """Has the lines of a tile come while it is computed: stores that miss wait for memory."""
    f.module.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    for row in rows:
        for at in range(0, size, LINE):
            place = f.gep(row, at, "i8")
            f.call("void", "@llvm.prefetch.p0", f"ptr {place}", "i32 1", "i32 3", "i32 1")


def multiply_step(
    f: Function, tile: Tile, a: tuple[list[str], str], columns: list[str], sums: list[str]
) -> list[str]:
    """One step of k: an element of every row (at a byte offset) times the columns' registers."""
    places, offset = a
    result = []
    for row, place in enumerate(places):
        address = f.let(f"getelementptr i8, ptr {place}, i64 {offset}")
        # a word that is read where it lies begins at any value
        scalar = tile.splat(f, f.load(address, tile.element, tile.value_bytes))
        for index, column in enumerate(columns):
            total = sums[row * len(columns) + index]
            result.append(tile.multiply_add(f, scalar, column, total))
    return result


def emit_result(f: Function, tile: Tile, rows: list[str], sums: list[str]) -> None:
    """Stores the accumulators, added to what is there if the caller wants it."""
    width = len(sums) // len(rows)
    steps = [index * tile.lanes for index in range(width)]
    places = [f.gep(row, step, tile.element) for row in rows for step in steps]
    more, first = f.label("more"), f.label("first")
    f.cond_br(f.let("icmp ne i64 %accumulate, 0"), more, first)
    for label in (more, first):
        f.block(label)
        if label == more:  # all before the first store: a row may stand in for another
            old = [f.load(place, tile.vector, tile.bytes) for place in places]
            totals = [tile.add(f, a, b) for a, b in zip(sums, old, strict=True)]
        else:
            totals = sums
        for total, place in zip(totals, places, strict=True):
            f.store(total, tile.vector, place, tile.bytes)
        f.ret()
