"""How attention is cut: tiles by the class of a head's width alone, so that one text is for many
shapes and the order of sums is the same on every device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from graphc.ir.dim import ceil_div
from graphc.ir.kernel import Attention

SHARED = 99 << 10  # bytes: what a block may have on every architecture from sm_80 on
LINE = 128  # bytes of a row in a panel of a tile
_FRAGMENT_ROWS = 16  # of a tensor core's product
_HELD_WIDTH = 128  # up to which a warp's rows stay in registers
_MOST_SUMS = 256  # columns that a block sums at a time
FEW = 8  # queries, at most: their keys are shared out
FEW_KEYS = 256  # of a block, where they are


@dataclass(frozen=True, slots=True)
class Tiles:
    """A block has `rows` (queries, or keys) to itself and walks along tiles of `columns`, of which
    `stages` are in shared memory at a time. `e` and `f` are widths of heads, rounded up; `tensor`:
    products are those of tensor cores, whose warps have 16 rows each."""

    tensor: bool
    itemsize: int
    rows: int
    columns: int
    stages: int
    e: int
    f: int

    @property
    def threads(self) -> int:
        """Of a block."""
        return self.rows // _FRAGMENT_ROWS * 32 if self.tensor else 256

    @property
    def thread_rows(self) -> int:
        """Rows of which a thread has elements."""
        return 2 if self.tensor else self.rows // 16

    @property
    def thread_columns(self) -> int:
        """Elements of a tile that a thread has in each of its rows."""
        return self.columns // (4 if self.tensor else 16)

    @property
    def sharing(self) -> int:
        """By how much a row's width is divided among threads."""
        return 4 if self.tensor else 16

    @property
    def held(self) -> bool:
        """Whether queries stay in registers along all keys."""
        return self.tensor and self.e <= _HELD_WIDTH

    def tile(self, rows: int, width: int) -> int:
        """Bytes of so many rows: panels of lines."""
        return -(-width * self.itemsize // LINE) * LINE * rows

    @property
    def pitch(self) -> int:
        """Elements of a row of probabilities in shared memory: rows of a warp's halves begin 16
        banks apart."""
        return self.columns + 16 // self.thread_rows

    @property
    def probabilities(self) -> int:
        """Bytes of shared memory through which probabilities go from thread to thread."""
        return 0 if self.tensor else self.rows * self.pitch * 4

    def places(self, both: bool, values: int) -> Places:
        """Where things lie in shared memory. `both`: rows have a tile as wide as f, too; `values`:
        floats of each column besides its tiles."""
        left_f = self.tile(self.rows, self.e)
        stage = left_f + both * self.tile(self.rows, self.f)
        right_f = self.tile(self.columns, self.e)
        beside = right_f + self.tile(self.columns, self.f)
        size = beside + -(-values * self.columns * 4 // LINE) * LINE
        through = stage + self.stages * size
        return Places(left_f, stage, size, right_f, beside, through, through + self.probabilities)


class Places(NamedTuple):
    """Offsets in shared memory, and its size: the rows' second tile, the stages, of each of which
    its second tile and the values, and what probabilities go through."""

    left_f: int
    stage: int
    stage_size: int
    right_f: int
    values: int
    through: int
    size: int


# (rows, columns, stages): the first that fits is taken.
_CUTS = {
    True: ((64, 64, 2), (64, 32, 2), (64, 16, 2)),
    False: ((64, 64, 2), (64, 32, 2), (64, 32, 1), (32, 32, 1), (32, 16, 1), (16, 16, 1)),
}
_FEW_CUTS = {
    True: ((16, 64, 2), (16, 32, 2), (16, 16, 2)),
    False: ((16, 64, 1), (16, 32, 1), (16, 16, 1)),
}
# Of tensor cores, by columns: the widest heads, e and f together for a gradient, without and with
# a burden, that leave registers for so many scores. Found by what ptxas spills.
_WIDEST = {64: (128, 32), 32: (256, 128), 16: (256, 256)}
_WIDEST_SUMS = {64: (128, 64), 32: (256, 128), 16: (512, 512)}


def forward_tiles(t: Attention, few: bool) -> tuple[Tiles, Places]:
    """Queries along keys."""
    for tiles in _tiles(t, _FEW_CUTS if few else _CUTS):
        places = tiles.places(False, 0)
        light = max(tiles.e, tiles.f) <= _WIDEST[tiles.columns][_burdened(t)]
        if (light or not tiles.tensor) and places.size <= SHARED:
            return tiles, places
    raise AssertionError(f"no tiles for heads of {t.e} and {t.f}")


def backward_tiles(t: Attention, values: int) -> tuple[Tiles, Places]:
    """Queries along keys, or keys along queries, each of which has `values` besides."""
    for tiles in _tiles(t, _CUTS):
        places = tiles.places(True, values)
        light = tiles.e + tiles.f <= _WIDEST_SUMS[tiles.columns][_burdened(t)]
        if (light or not tiles.tensor) and places.size <= SHARED:
            return tiles, places
    raise AssertionError(f"no tiles for heads of {t.e} and {t.f}")


def _burdened(t: Attention) -> bool:
    """Whether scores need registers besides their own: for dropout, or a mask that is added."""
    mask = t.optional("mask")
    return t.dropout > 0 or (mask is not None and mask.dtype.is_float)


def _tiles(t: Attention, cuts: Mapping[bool, Sequence[tuple[int, int, int]]]) -> Iterator[Tiles]:
    """In order of preference, for the class of a head's width."""
    size = t.dtype.itemsize
    tensor = size == 2
    quantum = 32 if tensor else 64
    e, f = (ceil_div(width, quantum) * quantum for width in (t.e, t.f))
    assert isinstance(e, int) and isinstance(f, int)
    for rows, columns, stages in cuts[tensor]:
        yield Tiles(tensor, size, rows, columns, stages, e, f)


def sums_together(tiles: Tiles) -> bool:
    """Whether dk and dv are summed by one block: their sums fit a thread's registers."""
    return not tiles.tensor or tiles.e + tiles.f <= _MOST_SUMS
