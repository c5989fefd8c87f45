"""Statements for several neighbours at a time. A piece, statements without loops, loads what it can
as packs, makes its statements for each of a thread's lanes in turn, and stores packs. What lives
from one piece to another is an array with an element for each lane."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from graphc.backends.cuda.scalar import c_type, literal
from graphc.backends.cuda.statements.expressions import Expressions
from graphc.backends.cuda.statements.lanes import LaneAccess, load_access
from graphc.ir import dtypes
from graphc.ir.dim import Size, substitute
from graphc.ir.kernel import Carry, IndexValue, Let, Literal, Load, Scalar, Stmt, Store, walk

FIRST, LANE = "first_", "lane_"  # the number of the first lane; a lane's, from there


@dataclass(frozen=True, slots=True)
class Piece:
    """Statements without loops, and what is carried on behind them."""

    body: tuple[Stmt, ...]
    carries: tuple[Carry, ...] = ()


class Pieces:
    """Writes pieces for `width` lanes along a variable. `inner`: names that differ between lanes;
    `apart`: buffers that are touched lane by lane, as the text says."""

    def __init__(
        self, scalars: Expressions, var: str, width: int, inner: frozenset[str],
        apart: frozenset[str] = frozenset(),
    ) -> None:
        self.scalars, self.lines, self.indices = scalars, scalars.lines, scalars.indices
        self.var, self.width, self.inner, self.apart = var, width, inner, apart
        self.lets: dict[str, Size] = {}
        self.bound: dict[str, Scalar] = {}

    # What depends on who walks along the lanes

    def is_pack(self, access: LaneAccess) -> bool:
        """Whether adjacent lanes touch adjacent places."""
        raise NotImplementedError

    def whole(self, place: str) -> str:
        """When a pack at an address is one access; then, where there may be none, how many lanes
        are left."""
        raise NotImplementedError

    def put(self, stmt: Store) -> None:
        """A lane's store."""
        self.scalars.put(stmt)

    def loads(self, piece: Piece) -> dict[int, str]:
        """Makes the loads of a piece that are packs: what is read of them, by their ids."""
        made: dict[tuple[str, Size, str], str] = {}
        found: dict[int, str] = {}
        roots = [s for stmt in piece.body for s in walk.scalars(stmt)]
        roots += [carry.next for carry in piece.carries]
        for stmt in piece.body:
            if isinstance(stmt, Let):
                self.bound.setdefault(stmt.name, stmt.value)
            if isinstance(stmt, Let) and isinstance(stmt.value, IndexValue):
                self.lets[stmt.name] = substitute(stmt.value.index, self.lets)
        for load in walk.parts(roots):
            if not isinstance(load, Load) or self._is_apart(load.buffer):
                continue
            access = load_access(load, self.lets, self.bound, self.inner)
            if not self.is_pack(access):
                continue
            mask = "" if access.mask is None else self._mask(access.mask)
            key = load.buffer, access.index, mask
            name = made.get(key)
            if name is None:
                name = made[key] = self.lines.fresh("in")
                kind = f"Pack<{c_type(load.dtype)}, {self.width}>"
                text = self._loaded_pack(load, access.index, mask)
                self.lines.emit(f"const {kind} {name} = {text};")
            found[id(load)] = f"{name}.x[{LANE}]"
        return found

    # Lanes

    def piece(
        self, piece: Piece, living: Collection[str] = (), own: Sequence[str] = ()
    ) -> None:
        """Writes one. `living`: what other pieces read of it; `own`: what each lane begins with."""
        for stmt in piece.body:
            if isinstance(stmt, Let) and stmt.name in living:
                kind = c_type(stmt.value.dtype)
                self.lines.emit(f"{kind} {stmt.name}[{self.width}];")
        packs = self.loads(piece)
        stores = self._stores(piece)
        self.open_lanes()
        for line in own:
            self.lines.emit(line)
        self.scalars.loaded.update(packs)
        for stmt in piece.body:
            if isinstance(stmt, Store) and id(stmt) in stores:
                value = self.scalars.scalar(stmt.value)
                self.lines.emit(f"{stores[id(stmt)][0]}.x[{LANE}] = {value};")
            elif isinstance(stmt, Store):
                self.put(stmt)
            elif isinstance(stmt, Let):
                self._let(stmt, stmt.name in living)
        self.scalars.update(piece.carries)
        self.scalars.loaded.clear()
        self.lines.close()
        for name, to in stores.values():
            self.lines.emit(f"store_pack({to}, {name}, {self.whole(to)});")

    def open_lanes(self) -> None:
        """A loop over the lanes."""
        self.lines.emit("#pragma unroll")
        self.lines.open(f"for (int {LANE} = 0; {LANE} < {self.width}; {LANE}++) {{")
        kind = "int" if self.var in self.indices.ints else "i64"
        self.lines.emit(f"const {kind} {self.var} = {FIRST} + {LANE};")

    def _let(self, stmt: Let, living: bool) -> None:
        if not living:
            self.scalars.bind(stmt)
            return
        text = self.scalars.scalar(stmt.value)
        if stmt.value.dtype is dtypes.i64:
            self.indices.let(stmt)
            self.indices.ints.discard(stmt.name)  # its array is of i64
        self.lines.emit(f"{stmt.name}[{LANE}] = {text};")
        self.indices.spelled[stmt.name] = f"{stmt.name}[{LANE}]"

    # Packs

    def _is_apart(self, buffer: str) -> bool:
        return buffer in self.apart or buffer in self.scalars.kept

    def _mask(self, mask: Scalar) -> str:
        """The condition of a pack: that of its first lane."""
        self.indices.spelled[self.var] = FIRST
        text = self.scalars.scalar(mask)
        del self.indices.spelled[self.var]
        return text

    def _loaded_pack(self, load: Load, index: Size, mask: str) -> str:
        place = self._place(load.buffer, index)
        text = f"load_pack<{self.width}>({place}, {self.whole(place)})"
        if not mask:
            return text
        kind = c_type(load.dtype)
        other = literal(0, load.dtype)
        if isinstance(load.other, Literal):
            other = literal(load.other.value, load.dtype)
        return f"{mask} ? {text} : filled_pack<{self.width}, {kind}>({other})"

    def _stores(self, piece: Piece) -> dict[int, tuple[str, str]]:
        """The stores that are packs: the pack's name, and where it goes."""
        found: dict[int, tuple[str, str]] = {}
        for stmt in piece.body:
            if not isinstance(stmt, Store) or self._is_apart(stmt.buffer):
                continue
            index = substitute(stmt.index, self.lets)
            plain = stmt.mask is None and not stmt.combine
            if self.is_pack(LaneAccess(stmt.buffer, index, True, plain)):
                name = self.lines.fresh("out")
                self.lines.emit(f"Pack<{c_type(stmt.value.dtype)}, {self.width}> {name};")
                found[id(stmt)] = name, self._place(stmt.buffer, index)
        return found

    def _place(self, buffer: str, index: Size) -> str:
        self.indices.spelled[self.var] = FIRST
        text = self.indices.place(index, self.scalars.sizes.get(buffer))
        del self.indices.spelled[self.var]
        return f"{buffer} + {text}"
