"""A stage in tiles: what goes across is loaded along its own loop, all wait, lanes compute and
store, all wait, and what they left to go across is stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from graphc.backends.cuda.loops.shapes import invariants, names, variables
from graphc.backends.cuda.loops.tiles import ROWS, Tile, place_of
from graphc.backends.cuda.loops.vector import VectorLoop
from graphc.backends.cuda.scalar import c_type
from graphc.backends.cuda.statements.pieces import FIRST, LANE, Piece
from graphc.ir.dim import Size, product, unwrap
from graphc.ir.kernel import Let, Load, Loop, Stmt, Store, walk

if TYPE_CHECKING:
    from graphc.backends.cuda.loops.stage import StageFunction

# What C names of loops mean here: the tile's number, its first iteration and lane, how many places
# the digit has from there on, and the place and lane of a thread in it.
_AT, _START, _LANES, _LEFT, _ROW, _ALONG = "at_", "start_", "lanes_", "left_", "row_", "along_"
_UNROLLED = 256  # scalars in an unrolled body


class TileText:
    """Writes a stage."""

    def __init__(self, stage: StageFunction, tile: Tile) -> None:
        self.stage, self.tile = stage, tile
        self.lines, self.indices = stage.lines, stage.indices
        self.lets = [stmt for stmt in tile.parallel.body if isinstance(stmt, Let)]
        self.inside = [stmt for stmt in tile.loop.body if isinstance(stmt, Let)]
        self.tiles: dict[int, str] = {}  # tile names, by the ids of loads and stores
        self.pitch: dict[str, int] = {}

    def write(self) -> None:
        stage, lines = self.stage, self.lines
        self._declare()
        stage.once([stmt for stmt in stage.body if isinstance(stmt, Let)])
        lets = invariants(stage.body)
        number = unwrap(product(self.tile.counts))
        kind = "int" if self.indices.fits(number) else "i64"
        end = self.indices.text(number, kind)
        if lets:
            lines.emit(f"if (blockIdx.x >= {end}) return;")
            stage.once(lets)
            self.lets = [let for let in self.lets if not any(let is each for each in lets)]
        first, by = f"({kind})blockIdx.x", f"({kind})gridDim.x"
        lines.open(f"for ({kind} {_AT} = {first}; {_AT} < {end}; {_AT} += {by}) {{")
        self._place(kind)
        for load in self.tile.loads:
            self._load(load)
        lines.emit("__syncthreads();")
        self._compute()
        lines.emit("__syncthreads();")
        for store in self.tile.stores:
            self._store(store)
        lines.close()

    def _declare(self) -> None:
        """The tiles, in shared memory."""
        types = {param.name: param.dtype for param in self.stage.kernel.params}
        for number, access in enumerate(self.tile.accesses):
            dtype = types[access.buffer]
            name = f"tile_{number}"
            kind = c_type(dtype)
            start = self.stage.shared
            self.lines.emit(f"{kind}* const {name} = ({kind}*)(shared + {start});")
            self.tiles[id(access)] = name
            self.pitch[name] = self.tile.pitch(dtype.itemsize)
            self.stage.shared += self.tile.bytes(dtype.itemsize)

    def _place(self, kind: str) -> None:
        """Where the tile lies: `kind` is that of its number."""
        _, along, below, across = self.tile.counts
        digit, side = self.tile.digit, self.tile.side
        rest = _AT
        for name, count in (("x_", across), ("below_", below), ("y_", along)):
            if count == 1:
                self.lines.emit(f"const {kind} {name} = 0;")
                continue
            text = self.indices.text(count, kind if self.indices.fits(count) else "i64")
            self.lines.emit(f"const {kind} {name} = {rest} % {text};")
            rest = f"({rest} / {text})"
        places = self.indices.text(digit.count, "i64")
        self.lines.emit(f"const i64 {_LEFT} = {places} - (i64)y_ * {side};")
        first = f"({rest} * {places} + (i64)y_ * {side}) * {self._below('i64')} + below_"
        self.lines.emit(f"const i64 {_START} = {first};")
        self.lines.emit(f"const i64 {_LANES} = (i64)x_ * {side};")

    def _below(self, kind: str) -> str:
        return self.indices.text(self.tile.digit.below, kind)

    # Loads and stores along the digit

    def _load(self, load: Load) -> None:
        name = self.tiles[id(load)]
        with self._across(load):
            if self.tile.width == 1:
                place = self.cell(name, _ALONG, _ROW)
                self.lines.emit(f"{place} = {self.stage.scalars.scalar(load)};")
            else:
                width, kind = self.tile.width, c_type(load.dtype)
                place = self._global(load.buffer, load.index)
                self.lines.emit(
                    f"const Pack<{kind}, {width}> pack_ = load_pack<{width}>({place}, aligned_);"
                )
                cell = self.cell(name, f"{_ALONG} + {LANE}", _ROW)
                self._each(f"{cell} = pack_.x[{LANE}];")

    def _store(self, store: Store) -> None:
        name = self.tiles[id(store)]
        with self._across(store):
            if self.tile.width == 1:
                place = self.stage.scalars.place(store.buffer, store.index)
                self.lines.emit(f"{place} = {self.cell(name, _ALONG, _ROW)};")
            else:
                self.lines.emit(f"Pack<{c_type(store.value.dtype)}, {self.tile.width}> pack_;")
                cell = self.cell(name, f"{_ALONG} + {LANE}", _ROW)
                self._each(f"pack_.x[{LANE}] = {cell};")
                place = self._global(store.buffer, store.index)
                self.lines.emit(f"store_pack({place}, pack_, aligned_);")

    def _each(self, line: str) -> None:
        self.lines.emit("#pragma unroll")
        self.lines.emit(f"for (int {LANE} = 0; {LANE} < {self.tile.width}; {LANE}++) {line}")

    def cell(self, tile: str, along: str, lane: str) -> str:
        """An element of a tile: lanes are adjacent."""
        return f"{tile}[({along}) * {self.pitch[tile]} + {lane}]"

    def _global(self, buffer: str, index: Size) -> str:
        self.stage.aligned[buffer] = None
        return f"{buffer} + {self.indices.place(index, self.stage.scalars.sizes[buffer])}"

    @contextmanager
    def _across(self, access: Load | Store) -> Iterator[None]:
        """A thread has a place of the digit, and goes along lanes."""
        lines, tile = self.lines, self.tile
        needed = self._needed(access)
        with self.indices.loop(tile.parallel) as outer, self.indices.loop(tile.loop) as kind:
            lines.open("{")
            lines.emit(f"const int {_ALONG} = thread_ * {tile.width};")
            with self._at_place(outer, _ALONG):
                self._bind([let for let in self.lets if let.name in needed])
                self._open_rows(tile.side)
                lines.emit(f"const {kind} {tile.loop.var} = ({kind}){_LANES} + {_ROW};")
                lines.open(f"if ({tile.loop.var} < {self._extent()}) {{")
                self._bind([let for let in self.inside if let.name in needed])
                yield
                lines.close()
                lines.close()
            lines.close()

    def _open_rows(self, unrolled: int) -> None:
        """The rows of the tile that are a warp's."""
        count = self.tile.side // ROWS
        self.lines.emit(f"#pragma unroll {max(1, min(count, unrolled))}")
        self.lines.open(f"for (int turn_ = 0; turn_ < {count}; turn_++) {{")
        self.lines.emit(f"const int {_ROW} = turn_ * {ROWS} + group_;")

    @contextmanager
    def _at_place(self, kind: str, along: str) -> Iterator[None]:
        """What the tile's place is an iteration of, if it is one."""
        lines, tile = self.lines, self.tile
        lines.open(f"if ({along} < {_LEFT}) {{")
        step = "" if tile.digit.below == 1 else f" * {self._below(kind)}"
        var, total = tile.parallel.var, tile.parallel.extent
        lines.emit(f"const {kind} {var} = ({kind}){_START} + {along}{step};")
        inside = unwrap(tile.counts[0] * tile.digit.count * tile.digit.below) == total
        if not inside:
            lines.open(f"if ({var} < {self.indices.text(total, 'i64')}) {{")
        yield
        if not inside:
            lines.close()
        lines.close()

    def _extent(self) -> str:
        extent = self.tile.loop.extent
        return self.indices.text(extent, "int" if self.indices.fits(extent) else "i64")

    def _bind(self, lets: Sequence[Let]) -> None:
        for let in lets:
            self.stage.scalars.bind(let)

    def _needed(self, access: Load | Store) -> set[str]:
        """The names that it takes to know where."""
        found = set(variables(access.index)) | variables(self.tile.loop.extent)
        if isinstance(access, Load):
            found |= names((access,))
        for let in (*reversed(self.inside), *reversed(self.lets)):
            if let.name in found:
                found |= names((let.value,))
        return found

    # Lanes

    def _compute(self) -> None:
        """What the stage says, but for where some things are."""
        lines, tile = self.lines, self.tile
        places = {place_of(load): self.tiles[id(load)] for load in tile.loads}
        with self.indices.loop(tile.parallel) as outer:
            scalars = sum(1 for _ in walk.evaluated((tile.loop,))) * tile.width
            self._open_rows(_UNROLLED // max(1, scalars))
            with self._at_place(outer, _ROW):
                self._bind(self.lets)
                TileLanes(self.stage, tile.loop, self, places).write()
            lines.close()


class TileLanes(VectorLoop):
    """The lanes of a tile's row."""

    def __init__(
        self, stage: StageFunction, loop: Loop, text: TileText,
        places: dict[tuple[str, Size, int], str],
    ) -> None:
        super().__init__(stage, loop, text.tile.width)
        self.text, self.places = text, places

    def write(self) -> None:
        width, first = self.width, FIRST if self.width > 1 else self.loop.var
        with self.indices.loop(self.loop) as kind:
            at = f"({kind}){_LANES} + thread_" + (f" * {width}" if width > 1 else "")
            self.lines.emit(f"const {kind} {first} = {at};")
            self.lines.open(f"if ({first} < {self._extent()}) {{")
            if width > 1:
                self._pieces(self.loop.body, ())
            else:
                self.scalars.loaded.update(self._turned(self.loop.body))
                self._plain(self.loop.body, ())
                self.scalars.loaded.clear()
            self.lines.close()
        self._forget()

    def put(self, stmt: Store) -> None:
        name = self.text.tiles.get(id(stmt))
        if name is None:
            super().put(stmt)
            return
        self.lines.emit(f"{self._cell(name)} = {self.scalars.scalar(stmt.value)};")

    def _cell(self, name: str) -> str:
        lane = f"thread_ * {self.width} + {LANE}" if self.width > 1 else "thread_"
        return self.text.cell(name, _ROW, lane)

    def loads(self, piece: Piece) -> dict[int, str]:
        return super().loads(piece) | self._turned(piece.body)

    def _turned(self, body: Sequence[Stmt]) -> dict[int, str]:
        """The loads that are in a tile, by their ids."""
        found = {}
        for part in walk.parts([s for stmt in body for s in walk.scalars(stmt)]):
            if isinstance(part, Load) and place_of(part) in self.places:
                found[id(part)] = self._cell(self.places[place_of(part)])
        return found
