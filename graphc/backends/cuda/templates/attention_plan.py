"""How attention is cut: tiles by the class of a head's width alone, so that one text is for many
shapes and the order of sums is the same on every device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from graphc.backends.cuda.source import Target
from graphc.ir.dim import Size, ceil_div
from graphc.ir.kernel import Attention

Engine = Literal["mma", "wgmma", "ffma"]

SHARED = 99 << 10  # bytes: what a block may have on every architecture from sm_80 on
LINE = 128  # bytes of a row in a panel of a tile
_REPEATS = 8 * LINE  # after so many bytes a swizzle is as it was: where tiles of wgmma begin
_FRAGMENT_ROWS = 16  # of a tensor core's product
_HELD_WIDTH = 128  # up to which a warp's rows stay in registers
_MOST_SUMS = 256  # columns that a block sums at a time
_FEW = 16  # queries, at most, that have tiles of their own
_LEAST_KEYS = 256  # of a block, where keys are shared out
_SHORT_OF_BLOCKS = 64  # tiles of queries, below which keys are shared out in any case
_BLOCKS = {16: 1024, 64: 256}  # that there should be then, by rows of a tile
_FEW_ROWS = 64  # for which no warpgroup is called


@dataclass(frozen=True, slots=True)
class Tiles:
    """A block has `rows` (queries, or keys) to itself and walks along tiles of `columns`, of which
    `stages` are in shared memory at a time. `e` and `f` are widths of heads, rounded up; `at_once`:
    blocks that a multiprocessor should have registers for."""

    engine: Engine
    itemsize: int
    rows: int
    columns: int
    stages: int
    e: int
    f: int
    at_once: int

    @property
    def tensor(self) -> bool:
        """Whether products are those of tensor cores, whose warps have 16 rows each."""
        return self.engine != "ffma"

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
        return self.engine == "mma" and self.e <= _HELD_WIDTH

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
        unit = _REPEATS if self.engine == "wgmma" else LINE
        size = beside + -(-values * self.columns * 4 // unit) * unit
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


# The same of wgmma, for the widest of both: columns of queries without a burden, with dropout that
# is drawn alone, and with any other; of queries' gradients, and of keys'.
_GROUP_COLUMNS = {64: (128, 128, 64), 128: (128, 128, 64), 256: (64, 32, 32)}
_GROUP_COLUMNS_OF_SUMS = {64: (64, 64), 128: (64, 48), 256: (32, 32)}
_GROUP_ROWS = 128


def keys_of_block(t: Attention) -> Size | None:
    """How many keys a block has of all, where there are too few tiles of queries for a device; None
    where it has all of them. Parts of a row are put together afterwards, in their order."""
    few = _few(t)
    if not (isinstance(t.batch, int) and isinstance(t.m, int) and isinstance(t.n, int)):
        return _LEAST_KEYS if few else None
    rows = 16 if few else 64
    blocks = t.batch * -(-t.m // rows)
    if not few and (blocks >= _SHORT_OF_BLOCKS or t.n < 4 * _LEAST_KEYS):
        return None
    parts = min(-(-_BLOCKS[rows] // max(blocks, 1)), -(-t.n // _LEAST_KEYS))
    keys = -(-t.n // parts // _LEAST_KEYS) * _LEAST_KEYS
    return keys if keys < t.n else None


def _few(t: Attention) -> bool:
    """Whether queries have smaller tiles: there are few, and keys for several blocks."""
    many_keys = not isinstance(t.n, int) or t.n > _LEAST_KEYS
    return isinstance(t.m, int) and t.m <= _FEW and many_keys


def forward_tiles(t: Attention, target: Target) -> tuple[Tiles, Places]:
    """Queries along keys."""
    few = _few(t)
    if keys_of_block(t) is None and by_warpgroups(t, target):
        mask = t.optional("mask") is not None or t.optional("kept") is not None
        columns = _for_widest(t, _GROUP_COLUMNS)[2 if mask else t.dropout > 0]
        tiles = _group_tiles(t, columns, 2)
        return tiles, tiles.places(False, 0)
    for tiles in _tiles(t, _FEW_CUTS if few else _CUTS):
        places = tiles.places(False, 0)
        light = max(tiles.e, tiles.f) <= _WIDEST[tiles.columns][_burdened(t)]
        if (light or not tiles.tensor) and places.size <= SHARED:
            return tiles, places
    raise AssertionError(f"no tiles for heads of {t.e} and {t.f}")


def backward_tiles(t: Attention, values: int, target: Target) -> tuple[Tiles, Places]:
    """Queries along keys, or keys along queries, each of which has `values` besides."""
    if by_warpgroups(t, target):
        columns = _for_widest(t, _GROUP_COLUMNS_OF_SUMS)[values > 0]
        tiles = _group_tiles(t, columns, 3)
        return tiles, tiles.places(True, values)
    for tiles in _tiles(t, _CUTS):
        places = tiles.places(True, values)
        light = tiles.e + tiles.f <= _WIDEST_SUMS[tiles.columns][_burdened(t)]
        if (light or not tiles.tensor) and places.size <= SHARED:
            return tiles, places
    raise AssertionError(f"no tiles for heads of {t.e} and {t.f}")


def by_warpgroups(t: Attention, target: Target) -> bool:
    """Whether wgmma multiplies: there are rows for a block's two warpgroups."""
    enough = all(not isinstance(size, int) or size > _FEW_ROWS for size in (t.m, t.n))
    return target.architecture == "sm_90a" and t.dtype.itemsize == 2 and enough


def _burdened(t: Attention) -> bool:
    """Whether scores need registers besides their own: for dropout, or a mask that is added."""
    mask = t.optional("mask")
    return t.dropout > 0 or (mask is not None and mask.dtype.is_float)


def _tiles(t: Attention, cuts: Mapping[bool, Sequence[tuple[int, int, int]]]) -> Iterator[Tiles]:
    """In order of preference, for the class of a head's width."""
    size = t.dtype.itemsize
    tensor = size == 2
    e, f = _widths(t, 32 if tensor else 64)
    for rows, columns, stages in cuts[tensor]:
        engine: Engine = "mma" if tensor else "ffma"
        yield Tiles(engine, size, rows, columns, stages, e, f, 2 if tensor else 1)


def _for_widest(t: Attention, table: Mapping[int, tuple[int, ...]]) -> tuple[int, ...]:
    """What a table has for the narrowest class of heads that e and f are of."""
    return table[min(width for width in table if max(_widths(t, 1)) <= width)]


def _group_tiles(t: Attention, columns: int, stages: int) -> Tiles:
    e, f = _widths(t, 32)
    return Tiles("wgmma", t.dtype.itemsize, _GROUP_ROWS, columns, stages, e, f, 1)


def _widths(t: Attention, quantum: int) -> tuple[int, int]:
    e, f = (ceil_div(width, quantum) * quantum for width in (t.e, t.f))
    assert isinstance(e, int) and isinstance(f, int)
    return e, f


def sums_together(tiles: Tiles) -> bool:
    """Whether dk and dv are summed by one block: their sums fit a thread's registers."""
    return not tiles.tensor or tiles.e + tiles.f <= _MOST_SUMS
