"""How a product is cut: which tile a block computes, and in how many pieces k is summed.

A plan follows from dtypes and sizes alone. The order of a sum is that of k within a piece, and the
pieces in order: it depends on the number of pieces, which one nominal parallelism decides for every
model of a device, and not on the tile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from graphc.backends.cuda.source import OLDEST, Target
from graphc.ir.dim import Size, ceil_div
from graphc.ir.dtypes import DType
from graphc.ir.record import replaced

Engine = Literal["mma", "wgmma", "simt", "tf32", "dots"]
Along = Literal["depth", "rows"]  # what the lines of an operand go along: k, or m (n)

BLOCKS = 128  # that a launch should have
THIN_BLOCKS = 512  # ... where rows are few, and all that counts is how much is being read at a time
LARGE = 1024  # what an extent that is not known counts as
_MOST_PIECES = 32
_LEAST_STEPS = 4  # of a piece
_LEAST_TILE = 64  # whose sides no product is too small for


@dataclass(frozen=True, slots=True)
class Tile:
    """What a block computes at a time: `m` by `n` sums, `k` of each in one step. "mma", "tf32": a
    warp has a tile of `warp_m` by `warp_n`; "wgmma": so has a group of four warps; "simt": a thread
    has `own` by `own` sums; "dots": a warp has `own` columns."""

    engine: Engine
    m: int
    n: int
    k: int
    threads: int
    stages: int = 2
    warp_m: int = 0
    warp_n: int = 0
    own: int = 0

    @property
    def pitch(self) -> int:
        """Of a row of sums in shared memory: fragments are written without bank conflicts."""
        return self.n + 8

    def __str__(self) -> str:
        who = _OWNERS[self.engine]
        rows = self.m if self.engine == "dots" else self.warp_m or self.own
        inner = f"{rows} x {self.warp_n or self.own} a {who}"
        return (
            f"{self.engine} {self.m} x {self.n} x {self.k}, {inner}, {self.threads} threads, "
            f"{self.stages} stages"
        )


_OWNERS = {"mma": "warp", "tf32": "warp", "wgmma": "warpgroup", "simt": "thread", "dots": "warp"}

# Large, then small; by the bits of an element.
TILES: dict[int, tuple[Tile, Tile]] = {
    16: (
        Tile("mma", 128, 128, 64, 128, 3, warp_m=64, warp_n=64),
        Tile("mma", 64, 64, 64, 128, 3, warp_m=32, warp_n=32),
    ),
    32: (Tile("simt", 128, 128, 16, 256, own=8), Tile("simt", 64, 64, 16, 256, own=4)),
    64: (Tile("simt", 64, 64, 16, 256, own=4), Tile("simt", 64, 64, 16, 256, own=4)),
}


# Of floats that may be rounded to TF32.
NARROWED = (
    Tile("tf32", 128, 128, 32, 128, 3, warp_m=64, warp_n=64),
    Tile("tf32", 64, 64, 32, 128, 3, warp_m=32, warp_n=32),
)


# On sm_90a in place of the large tile of halves: where there are enough of the first, else the
# second.
WARPGROUPS = (
    Tile("wgmma", 128, 256, 64, 256, 4, warp_m=64, warp_n=256),
    Tile("wgmma", 128, 128, 64, 256, 4, warp_m=64, warp_n=128),
)


# Of halves, where there are no more rows: each weight is read once, by as many threads as there are
# columns, many steps ahead.
THIN = Tile("mma", 16, 64, 64, 128, 6, warp_m=16, warp_n=16)

# The same for what has no such units: by the bits of an element; a step is what a warp reads of a
# line at a time.
DOTS: dict[int, Tile] = {
    32: Tile("dots", 8, 32, 128, 256, own=4), 64: Tile("dots", 8, 32, 64, 256, own=4),
}


# What no rule takes, and timing may (max-autotune): by the bits of an element.
OTHERS: dict[int | str, tuple[Tile, ...]] = {
    16: (
        Tile("mma", 128, 256, 64, 256, 3, warp_m=64, warp_n=64),
        Tile("mma", 128, 128, 64, 256, 4, warp_m=64, warp_n=32),
        Tile("mma", 128, 64, 64, 128, 3, warp_m=64, warp_n=32),
        Tile("mma", 64, 128, 64, 128, 3, warp_m=32, warp_n=64),
    ),
    32: (Tile("simt", 128, 64, 16, 128, own=8), Tile("simt", 64, 128, 16, 128, own=8)),
    64: (Tile("simt", 128, 64, 16, 512, own=4), Tile("simt", 32, 64, 16, 128, own=4)),
    "tf32": (
        Tile("tf32", 128, 64, 32, 128, 3, warp_m=64, warp_n=32),
        Tile("tf32", 64, 128, 32, 128, 3, warp_m=32, warp_n=64),
    ),
}


@dataclass(frozen=True, slots=True)
class Plan:
    """A product's tile, and the `pieces` in which k is summed; a piece has `piece` steps of k."""

    tile: Tile
    pieces: int
    piece: Size

    def __str__(self) -> str:
        return f"{self.tile}; k in {self.pieces} pieces of {self.piece}"


# The arguments of plan_product and plans.
Planned: TypeAlias = tuple[Size, Size, Size, Size, DType, Target, tuple[Along, Along], bool]


def plan_product(
    batch: Size, m: Size, n: Size, k: Size, dtype: DType, target: Target = OLDEST,
    lines: tuple[Along, Along] = ("rows", "rows"), tf32: bool = False,
) -> Plan:
    """The plan of a product of such operands, whose `lines` go so. The pieces are the same for
    every target, and every engine of tensor cores adds in the same order."""
    large, small = tiles_of(dtype, tf32)
    few = any(isinstance(size, int) and size <= small.m for size in (m, n))  # half would be empty
    tile, blocks = small if few or _tiles(large, batch, m, n) < BLOCKS else large, BLOCKS
    thin = _thin(m, dtype, lines, tf32)
    if thin is not None:
        tile, blocks = thin, THIN_BLOCKS
    plan = _cut(tile, k, blocks // max(_tiles(tile, batch, m, n), 1))
    if dtype.bits == 16 and tile is large and target.architecture == "sm_90a":
        wide, narrow = WARPGROUPS
        tile = wide if _tiles(wide, batch, m, n) >= BLOCKS else narrow
    return replaced(plan, tile=tile)


def plans(
    batch: Size, m: Size, n: Size, k: Size, dtype: DType, target: Target = OLDEST,
    lines: tuple[Along, Along] = ("rows", "rows"), tf32: bool = False,
) -> list[Plan]:
    """What may be timed: that of `plan_product`, then other tiles that are not mostly empty, with k
    in as many pieces, in as many as leave each tile's blocks enough to do, and in one."""
    usual = plan_product(batch, m, n, k, dtype, target, lines, tf32)
    tiles = [usual.tile, *tiles_of(dtype, tf32), *OTHERS["tf32" if tf32 else dtype.bits]]
    if dtype.bits == 16 and target.architecture == "sm_90a":
        tiles += WARPGROUPS
    found = [usual]
    for tile in tiles:
        high, wide = (max(2 * _known(size), _LEAST_TILE + 1) for size in (m, n))
        if tile is usual.tile or (tile.m < high and tile.n < wide):
            enough = BLOCKS // max(_tiles(tile, batch, m, n), 1)
            found += [_cut(tile, k, pieces) for pieces in (usual.pieces, enough, 1)]
    return list(dict.fromkeys(found))


def _thin(
    m: Size, dtype: DType, lines: tuple[Along, Along], tf32: bool
) -> Tile | None:
    """The tile of few rows, where these are."""
    thin = DOTS.get(dtype.bits, THIN)
    in_depth = lines == ("depth", "depth") or (thin is THIN and lines[0] == "depth")
    return thin if in_depth and isinstance(m, int) and m <= thin.m and not tf32 else None


def _cut(tile: Tile, k: Size, wanted: int) -> Plan:
    """About so many pieces, each of which has enough to do."""
    steps = -(-_known(k) // tile.k)
    pieces = max(1, min(wanted, _MOST_PIECES, steps // _LEAST_STEPS))
    return Plan(tile, pieces, ceil_div(ceil_div(k, tile.k), pieces) * tile.k)


def tiles_of(dtype: DType, tf32: bool) -> tuple[Tile, Tile]:
    """Large, then small, for operands of a type."""
    return NARROWED if tf32 else TILES[dtype.bits]


def _known(size: Size) -> int:
    return size if isinstance(size, int) else LARGE


def _tiles(tile: Tile, batch: Size, m: Size, n: Size) -> int:
    return _known(batch) * -(-_known(m) // tile.m) * -(-_known(n) // tile.n)
