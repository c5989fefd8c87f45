"""The tile kernels of a matrix unit: two by two of its tiles of sums, up to 32 rows and columns.

The unit is whole when a kernel begins and when it ends. To change its configuration takes as long
as a few multiplications of tiles, and loses what is in them: so only what is ragged does. Fewer
rows have a configuration of their own; words of k that fill no tile have one, too, in a second pass
that goes on with the sums of the first.
"""

from graphc.backends.llvm.matrix_unit import (
    LEFT,
    RIGHT,
    ROWS,
    SUMS,
    UNIT_PARAMETER,
    WORDS,
    MatrixUnit,
)
from graphc.backends.llvm.microkernel import Tile, kernel_parameters
from graphc.backends.llvm.text import Module, Value


def emit_matrix_kernels(module: Module, tile: Tile) -> None:
    """Defines the kernels "tile" for every row class and width. A row of A has its words side by
    side."""
    for rows in tile.row_classes:
        for width in tile.widths:
            _Kernel(module, tile, rows, width).emit()


class _Kernel:
    """One kernel, for 32 rows, for 17 to 31, or for 1 to 16."""

    def __init__(self, module: Module, tile: Tile, rows: int, width: int) -> None:
        symbol = f"@graphc_tile_{rows}x{width}_{tile.name}"
        parameters = kernel_parameters() + UNIT_PARAMETER
        self.f = module.function(f"void {symbol}({parameters})", "internal")
        self.tile, self.unit = tile, MatrixUnit(self.f, tile, "%unit")
        self.whole_rows, self.high, self.width = rows == 2 * ROWS, 2 if rows > ROWS else 1, width
        self.pitch = self.f.mul("%pitch", tile.bytes)

    def emit(self) -> None:
        """Defines the function."""
        f, unit = self.f, self.unit
        first = ROWS if self.high == 2 else "%rows"
        second = f.sub("%rows", ROWS) if self.high == 2 else "%rows"
        whole = f.mul(f.floordiv("%steps", WORDS), WORDS)
        rest = f.sub("%steps", whole)
        if not self.whole_rows:
            unit.configure(first, second, WORDS)
        fresh, more, begun = f.label("fresh"), f.label("more"), f.label("begun")
        f.cond_br(f.cmp("ne", "%accumulate", 0), more, fresh)
        f.block(fresh)
        for number in self._sums():
            unit.zero(number)
        f.br(begun)
        f.block(more)
        self._load_sums()
        f.br(begun)
        f.block(begun)
        with f.loop(0, whole, WORDS) as step:
            self._multiply(step)
        self._store_sums()
        ragged = f.cmp("sgt", rest, 0)
        with f.when(ragged):
            unit.configure(first, second, rest)
            self._load_sums()
            self._multiply(whole)
            self._store_sums()
        if self.whole_rows:
            with f.when(ragged):
                unit.configure_whole()
        else:
            unit.configure_whole()
        f.ret()

    def _sums(self) -> list[int]:
        return [SUMS[2 * row + column] for row in range(self.high) for column in range(self.width)]

    def _place(self, number: int) -> str:
        """Where a tile of sums lies."""
        f, (row, column) = self.f, divmod(SUMS.index(number), 2)
        below = f.gep("%c", f.mul(f.mul(row, ROWS), "%pitch"), self.tile.element)
        return f.gep(below, column * WORDS, self.tile.element)

    def _load_sums(self) -> None:
        for number in self._sums():
            self.unit.load(number, self._place(number), self.pitch)

    def _store_sums(self) -> None:
        for number in self._sums():
            self.unit.store(number, self._place(number), self.pitch)

    def _multiply(self, step: Value) -> None:
        """A tile's words of k, from a step on."""
        f, unit = self.f, self.unit
        a = f.gep("%a", f.mul(step, "%a_step"), "i8")
        b = f.gep("%b", f.mul(step, "%b_step"), "i8")
        for row in range(self.high):
            unit.load(LEFT[row], f.gep(a, f.mul(row * ROWS, "%a_row"), "i8"), "%a_row")
        for column in range(self.width):
            unit.load(RIGHT[column], f.gep(b, column * WORDS, self.tile.element), "%b_step")
        for row in range(self.high):
            for column in range(self.width):
                unit.multiply_add(SUMS[2 * row + column], LEFT[row], RIGHT[column])
