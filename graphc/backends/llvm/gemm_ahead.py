"""What a product asks the memory for while it computes.

A right operand that the second cache does not hold comes from the memory, or the shared cache, as
the first tile of a chunk meets it, while the others find it near. So each step of the first tiles
asks for lines of what is multiplied next: the block of k below in the same columns, or, behind the
last, the first one of the next columns. (Panels of constants, 24 layers of 128 rows, Zen 5: 232 and
250 GFLOP/s, of 265.) Where the third cache is far away, so does what chunks pack: for the block
that is packed next, where it lies.

Rows of a left operand that are read where they lie are short runs, far from one another, which no
CPU asks for by itself. Where the tiling `asks_left`, the last panels of a tile of rows ask for the
next ones, a row each: each step for what is multiplied in the same step of the next tile. (Zen 3,
blocks of 256 steps, of a left operand that the second cache does not hold: 0.89 and 0.94 of the
most multiply-adds; of 64 steps, 4096 rows by 4096 columns: 0.74 and 0.82.)
"""

from graphc.backends.llvm.gemm_descriptor import Descriptor, Word
from graphc.backends.llvm.gemm_plan import choose, round_up
from graphc.backends.llvm.gemm_stages import Block
from graphc.backends.llvm.microkernel import LINE, Tile, lines_asked
from graphc.backends.llvm.right_memory import right_bytes
from graphc.backends.llvm.text import Value


class Ahead:
    """Where what is next lies, made in a function's entry. `panels`, `in_place`: whether the right
    operand lies in panels, and whether it is read in rows; `left_in_place`: whether the left is."""

    def __init__(
        self, d: Descriptor, tile: Tile, panels: str, in_place: str, left_in_place: str
    ) -> None:
        f = d.function
        self.f, self.d, self.tile = f, d, tile
        self.shared = ""
        far = tile.tiling.far is not None
        if far:
            self.shared = f.let(f"icmp ne ptr {d.pointer_at(Word.RIGHT_PACKED)}, null")
            panels = f.let(f"or i1 {panels}, {self.shared}")
        self.panels = panels
        self.left_in_place = left_in_place
        d.read(Word.PANEL, Word.BLOCKS, Word.BLOCK_K)
        dense = f.let(f"and i1 {in_place}, {f.cmp('eq', d[Word.POINTER_COLUMNS], 0)}")
        size = f.mul(f.mul(d[Word.K], d[Word.N]), right_bytes(tile))
        large = f.cmp("sgt", size, tile.tiling.in_place_bytes)
        dense = f.let(f"and i1 {dense}, {large}")
        self.packs = packs = self._packs(large, in_place) if far else ""
        if packs:
            dense = f.let(f"or i1 {dense}, {packs}")
        self.asks = f.let(f"or i1 {panels}, {dense}")
        width = tile.columns * right_bytes(tile)
        self.row = choose(f, panels, width, f.mul(d[Word.RIGHT_K], right_bytes(tile)))
        # rows that begin anywhere end in a line more, which is the next columns' first
        self.inside = choose(f, panels, 0, LINE - 1)

    def _packs(self, large: str, in_place: str) -> str:
        """Whether each chunk packs rows of a large right operand, which lie side by side."""
        f, d = self.f, self.d
        lies = f.let(f"or i1 {in_place}, {self.panels}")
        dense = f.let(f"and i1 {f.cmp('ne', d[Word.RIGHT_DIRECT], 0)}, "
                      f"{f.cmp('eq', d[Word.POINTER_COLUMNS], 0)}")
        packs = f.let(f"and i1 {f.let(f'xor i1 {lies}, true')}, {dense}")
        return f.let(f"and i1 {packs}, {large}")

    def read_from(self, b: str, direct: str) -> str:
        """Where a panel is read that is multiplied at b: at `direct` where it is packed."""
        return self.f.let(f"select i1 {self.packs}, ptr {direct}, ptr {b}") if self.packs else b

    def after(self, count: Value, block: Block, last: str) -> Value:
        """How far behind a panel of a block, in bytes, begins what takes its place; `count`: the
        columns that the block is multiplied with, `last`: whether no block is below. Threads go
        along neighbouring chunks."""
        f, tile = self.f, self.tile
        panel = f.sub(f.floordiv(count, tile.columns), 1)  # its end is the next one's beginning
        panel = f.mul(f.mul(panel, self.d[Word.PANEL]), right_bytes(tile))
        below = f.mul(block.rows, self.row)
        back = f.sub(f.mul(count, right_bytes(tile)), f.mul(block.k, self.row))
        beside = choose(f, self.panels, f.add(below, f.smax(panel, 0)), back)
        if self.shared:  # all columns of a block, then those of the next
            row = f.mul(round_up(f, self.d[Word.N], tile.lanes), tile.bytes)
            below = choose(f, self.shared, f.mul(block.rows, row), below)
            beside = choose(f, self.shared, 0, beside)
        return f.add(choose(f, last, beside, below), self.inside)

    def left(
        self, a: str, m: Value, panel: tuple[Value, Value], strides: tuple[Value, Value, Value]
    ) -> tuple[str, Value, str] | None:
        """Where the next tile's rows begin, how far each step goes on, and whether they are asked
        for: a tile whose first row, m, begins at a is multiplied with a panel, which begins at a
        column of so many. Strides in bytes: of rows, of steps, of rows from tile to tile."""
        f, tile = self.f, self.tile
        if not tile.tiling.asks_left:
            return None
        row, step, apart = strides
        first, count = panel
        panels = f.sdiv(f.sub(f.sub(count, 1), first), tile.columns)  # behind this one
        start = f.add(f.mul(apart, tile.rows), f.mul(panels, row))
        more = f.cmp("slt", f.add(m, tile.rows), "%m_end")
        asks = f.let(f"and i1 {more}, {f.cmp('slt', panels, tile.rows)}")
        asks = f.let(f"and i1 {asks}, {self.left_in_place}")
        return f.gep(a, start, "i8"), step, asks

    def of(
        self, m: Value, b: str, after: Value, block: Block, left: tuple[str, Value, str] | None,
        source: str,
    ) -> tuple[str, str]:
        """The arguments `ahead` and `ahead_step` of a tile whose first row is m and whose panel
        begins at b: the first tiles of a chunk ask for some lines of each step, all others for what
        is there. Of a panel, which lies in one piece, each asks for a part of its own, a line a
        step where there are so many tiles: that is as fast as a memory gives them."""
        f, tile = self.f, self.tile
        lines = tile.columns * right_bytes(tile) // LINE  # of a step
        index, tiles = (
            f.sdiv(x, tile.rows) for x in (
                f.sub(m, "%m"), f.add(f.sub("%m_end", "%m"), tile.rows - 1)
            )
        )
        many = f.let(f"and i1 {self.panels}, {f.cmp('sge', tiles, lines)}")
        each = choose(f, many, 1, lines_asked(tile))
        first = f.mul(index, each)
        asks = f.let(f"and i1 {self.asks}, {f.cmp('slt', first, lines)}")
        apart = choose(f, self.panels, f.mul(block.rows, LINE), LINE)
        start = f.add(after, f.mul(first, apart))
        step = choose(f, self.panels, f.mul(each, LINE), self.row)
        place = f.gep(b, choose(f, asks, start, 0), "i8")
        if self.packs:
            place = f.let(f"select i1 {asks}, ptr {f.gep(source, start, 'i8')}, ptr {place}")
        beside: Value = 0
        if left is not None:
            rows, along, others = left
            others = f.let(f"and i1 {others}, {f.let(f'xor i1 {asks}, true')}")
            place = f.let(f"select i1 {others}, ptr {rows}, ptr {place}")
            beside = choose(f, others, along, 0)
        return f"ptr {place}", f"i64 {choose(f, asks, step, beside)}"
