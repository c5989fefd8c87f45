"""What a product with a constant asks the memory for while it computes.

A constant lies in panels, each of which the tiles of a chunk go through one after the other. The
first tile would wait for the memory, which is idle while the others compute: they ask for the next
panel meanwhile (24 layers of 128 rows, Zen 5: 232 and 250 GFLOP/s, of 265).
"""

from __future__ import annotations

from graphc.backends.llvm.gemm_descriptor import Descriptor, Word
from graphc.backends.llvm.gemm_plan import choose
from graphc.backends.llvm.gemm_stages import Block
from graphc.backends.llvm.microkernel import LINE, Tile
from graphc.backends.llvm.text import Function, Value


def next_panel(
    d: Descriptor, tile: Tile, columns: tuple[Value, Value], block: Block, last: str
) -> Value:
    """How far behind a panel of a block of k, in bytes, begins what takes its place: the next block
    of k, or, where that was the last one, the panel of the columns or of the chunk that this thread
    is next at. `columns`: the block's first one, and how many."""
    f, (n, count) = d.function, columns
    d.read(Word.CHUNK_N, Word.SPLIT_M)
    chunks = f.smax(f.sdiv(d[Word.WORKERS], d[Word.SPLIT_M]), 1)
    inside = f.cmp("slt", f.add(n, count), "%n_end")
    further = choose(f, inside, count, f.mul(d[Word.CHUNK_N], chunks))
    further = f.mul(f.sub(f.sdiv(further, tile.columns), 1), d[Word.PANEL])
    further = choose(f, last, f.mul(f.smax(further, 0), tile.bytes), 0)
    return f.add(f.mul(block.rows, tile.columns * tile.bytes), further)


def asked_for(
    f: Function, tile: Tile, panels: str, block: Block, where: tuple[Value, str, Value]
) -> tuple[str, str]:
    """The arguments `ahead` and `ahead_step` of a tile: the first tiles of a chunk ask for a line
    in each step, all others for one that is there. `where`: the tile's first row, its panel, and
    how far behind that the next one begins."""
    m, b, after = where
    lines = tile.columns * tile.bytes // LINE  # of a step
    tiles = f.sdiv(f.sub(m, "%m"), tile.rows)
    asks = f.let(f"and i1 {panels}, {f.cmp('slt', tiles, lines)}")
    start = f.add(after, f.mul(tiles, f.mul(block.rows, LINE)))
    place = f.gep(b, choose(f, asks, start, 0), "i8")
    return f"ptr {place}", f"i64 {choose(f, asks, LINE, 0)}"
