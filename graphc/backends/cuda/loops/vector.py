"""A vector loop: lanes by thread, `width` adjacent ones at a time.

With a width of more than 1 the body becomes pieces: a piece loads what it can as packs, makes its
statements for each of the thread's lanes in turn, and stores packs. What lives from one piece to
another is an array with an element for each lane. Serial loops inside go around such pieces.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphc.backends.cuda.loops.lanes import (
    LaneAccess,
    is_pack,
    lane_accesses,
    load_access,
    names_of_lanes,
)
from graphc.backends.cuda.loops.ordering import bound
from graphc.backends.cuda.loops.shapes import all_names, names
from graphc.backends.cuda.loops.steps import divides
from graphc.backends.cuda.scalar import c_type, literal
from graphc.ir import dtypes
from graphc.ir.dim import Size, substitute
from graphc.ir.kernel import (
    Carry,
    Check,
    IndexValue,
    Let,
    Literal,
    Load,
    Loop,
    Scalar,
    Stmt,
    Store,
    walk,
)

if TYPE_CHECKING:
    from graphc.backends.cuda.loops.stage import StageFunction

_STRIDES = 16  # of a group, up to which a loop counts them
_UNROLLED = 256  # scalars in an unrolled body
FIRST, LANE, _STRIDE = "first_", "lane_", "stride_"  # what C names of loops mean here


@dataclass(frozen=True, slots=True)
class Piece:
    """Statements without loops, and what is carried on behind them."""

    body: tuple[Stmt, ...]
    carries: tuple[Carry, ...] = ()


class VectorLoop:
    """Writes one into its stage."""

    def __init__(self, stage: StageFunction, loop: Loop, width: int) -> None:
        self.stage, self.loop, self.width = stage, loop, width
        self.lines, self.indices, self.scalars = stage.lines, stage.indices, stage.scalars
        self.group = stage.mapping.group
        self.thread = "thread_" if self.group > 1 else "0"
        self.inner = names_of_lanes(loop)
        self.lets: dict[str, Size] = {}
        self.bound: dict[str, Scalar] = {}
        self.apart = self._apart()
        self.has_tail = False

    def _apart(self) -> frozenset[str]:
        """Locals that the loop writes and touches besides: lane by lane, as the text says."""
        found = [a for a in lane_accesses(self.loop) if a.buffer in self.stage.locals]
        written = {a.buffer for a in found if a.write}
        touched = [a.buffer for a in found]
        return frozenset(name for name in written if touched.count(name) > 1)

    def write(self) -> None:
        loop, stride = self.loop, self.width * self.group
        with self.indices.loop(loop) as kind:
            kept = self._kept()
            self.has_tail = self.width > 1 and not divides(self.width, loop.extent)
            extent = loop.extent
            if isinstance(extent, int) and (kept or -(-extent // stride) <= _STRIDES):
                self._strides(kept)
            else:
                self._walk(kind)
            for name in kept:
                del self.scalars.kept[name]
        self._forget()

    def _forget(self) -> None:
        """The names of lanes mean nothing any more."""
        for name in bound(self.loop.body) | {self.loop.var}:
            self.indices.spelled.pop(name, None)

    def _kept(self) -> list[str]:
        """The Locals in registers that the loop touches."""
        buffers = {
            part.buffer
            for _, part in walk.evaluated((self.loop,)) if isinstance(part, Load)
        }
        buffers |= {s.buffer for s in walk.statements(self.loop.body) if isinstance(s, Store)}
        kept = sorted(buffers & self.stage.mapping.kept.keys())
        for name in kept:
            lane = f"{_STRIDE} * {self.width} + {LANE}" if self.width > 1 else _STRIDE
            self.scalars.kept[name] = f"{name}[{lane}]"
        return kept

    def _strides(self, kept: Sequence[str]) -> None:
        """A known number of strides."""
        extent, stride = self.loop.extent, self.width * self.group
        assert isinstance(extent, int)
        count = -(-extent // stride)
        unrolled = count if kept else self._unrolled(count)
        if count > 1:
            self.lines.emit(f"#pragma unroll {unrolled}")
            self.lines.open(f"for (int {_STRIDE} = 0; {_STRIDE} < {count}; {_STRIDE}++) {{")
        else:
            self.lines.open("{")
            self.lines.emit(f"const int {_STRIDE} = 0;")
        first = f"({_STRIDE} * {self.group} + {self.thread}) * {self.width}"
        self.lines.emit(f"const int {self._first()} = {first};")
        if count * stride != extent:
            self.lines.open(f"if ({self._first()} < {extent}) {{")
        self._body()
        if count * stride != extent:
            self.lines.close()
        self.lines.close()

    def _unrolled(self, count: int) -> int:
        scalars = sum(1 for _ in walk.evaluated((self.loop,))) * self.width
        return max(1, min(count, _UNROLLED // max(1, scalars)))

    def _walk(self, kind: str) -> None:
        """Strides to an end that is known at run time, or far."""
        extent, first = self._extent(), self._first()
        start = f"({kind}){self.thread} * {self.width}"
        self.lines.open(
            f"for ({kind} {first} = {start}; {first} < {extent}; "
            f"{first} += {self.width * self.group}) {{"
        )
        self._body()
        self.lines.close()

    def _extent(self) -> str:
        fits = self.indices.fits(self.loop.extent)
        return self.indices.text(self.loop.extent, "int" if fits else "i64")

    def _first(self) -> str:
        """The name of the first lane's number."""
        return FIRST if self.width > 1 else self.loop.var

    # One lane at a time

    def _body(self) -> None:
        if self.width > 1:
            if self.has_tail:
                self.lines.emit(f"const i64 left_ = {self._extent()} - {FIRST};")
            self._pieces(self.loop.body, self.loop.carries)
        else:
            self._plain(self.loop.body, self.loop.carries)

    def _plain(self, body: Iterable[Stmt], carries: tuple[Carry, ...]) -> None:
        """Statements of one lane, then what is carried on; a Check encloses what follows it."""
        opened = 0
        for stmt in body:
            if isinstance(stmt, Let):
                self.stage.bind(stmt)
            elif isinstance(stmt, Store):
                self.put(stmt)
            elif isinstance(stmt, Loop):
                self.stage.start(stmt)
                with self.indices.loop(stmt) as kind:
                    self.lines.open(self.stage.head(stmt, kind))
                    self._plain(stmt.body, stmt.carries)
                    self.lines.close()
            elif isinstance(stmt, Check):
                self.stage.open_check(stmt)
                opened += 1
        self.scalars.update(carries)
        for _ in range(opened):
            self.lines.close()

    def put(self, stmt: Store) -> None:
        """A lane's store."""
        self.stage.put(stmt)

    # Several lanes

    def _pieces(self, body: tuple[Stmt, ...], carries: tuple[Carry, ...]) -> None:
        parts = _cut(body, carries)
        for part in parts:
            if isinstance(part, Loop):
                self._serial(part)
            else:
                others = [other for other in parts if other is not part]
                self._piece(part, _bound_here(part.body) & _used(others))

    def _serial(self, loop: Loop) -> None:
        """A serial loop that all of the thread's lanes go through together."""
        for carry in loop.carries:
            if carry.dtype is dtypes.i64:
                self.indices.unknown(carry.name)
            self.lines.emit(f"{c_type(carry.dtype)} {carry.name}[{self.width}];")
        self._open_lanes()
        for carry in loop.carries:
            text = self.scalars.scalar(carry.init)
            self.lines.emit(f"{carry.name}[{LANE}] = {text};")
        self.lines.close()
        for carry in loop.carries:
            self.indices.spelled[carry.name] = f"{carry.name}[{LANE}]"
        with self.indices.loop(loop) as kind:
            self.lines.open(self.stage.head(loop, kind))
            self._pieces(loop.body, loop.carries)
            self.lines.close()

    def _open_lanes(self) -> None:
        self.lines.emit("#pragma unroll")
        self.lines.open(f"for (int {LANE} = 0; {LANE} < {self.width}; {LANE}++) {{")
        kind = "int" if self.loop.var in self.indices.ints else "i64"
        self.lines.emit(f"const {kind} {self.loop.var} = {FIRST} + {LANE};")

    def _piece(self, piece: Piece, living: frozenset[str]) -> None:
        """`living`: what other pieces read of it."""
        for stmt in piece.body:
            if isinstance(stmt, Let) and stmt.name in living:
                kind = c_type(stmt.value.dtype)
                self.lines.emit(f"{kind} {stmt.name}[{self.width}];")
        packs = self._load_packs(piece)
        stores = self._stores(piece)
        self._open_lanes()
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
            self.lines.emit(f"store_pack({to}, {name}, {self._whole(to)});")

    def _let(self, stmt: Let, living: bool) -> None:
        if not living:
            self.stage.bind(stmt)
            return
        text = self.scalars.scalar(stmt.value)
        if stmt.value.dtype is dtypes.i64:
            self.indices.let(stmt)
            self.indices.ints.discard(stmt.name)  # its array is of i64
        self.lines.emit(f"{stmt.name}[{LANE}] = {text};")
        self.indices.spelled[stmt.name] = f"{stmt.name}[{LANE}]"

    # Packs

    def _load_packs(self, piece: Piece) -> dict[int, str]:
        """The loads of a piece that are packs: what is read of them, by their ids."""
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
            if not isinstance(load, Load) or load.buffer in self.apart | self.scalars.kept.keys():
                continue
            access = load_access(load, self.lets, self.bound, self.inner)
            if not is_pack(access, self.loop.var, self.width, self.inner):
                continue
            mask = "" if access.mask is None else self._mask(access.mask)
            key = load.buffer, access.index, mask
            name = made.get(key)
            if name is None:
                name = made[key] = self.lines.fresh("pack")
                kind = f"Pack<{c_type(load.dtype)}, {self.width}>"
                text = self._loaded_pack(load, access.index, mask)
                self.lines.emit(f"const {kind} {name} = {text};")
            found[id(load)] = f"{name}.x[{LANE}]"
        return found

    def _mask(self, mask: Scalar) -> str:
        """The condition of a pack: that of its first lane."""
        self.indices.spelled[self.loop.var] = FIRST
        text = self.scalars.scalar(mask)
        del self.indices.spelled[self.loop.var]
        return text

    def _loaded_pack(self, load: Load, index: Size, mask: str) -> str:
        place = self._pack_place(load.buffer, index)
        text = f"load_pack<{self.width}>({place}, {self._whole(place)})"
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
            if not isinstance(stmt, Store) or stmt.buffer in self.apart | self.scalars.kept.keys():
                continue
            index = substitute(stmt.index, self.lets)
            plain = stmt.mask is None and not stmt.combine
            access = LaneAccess(stmt.buffer, index, True, plain)
            if is_pack(access, self.loop.var, self.width, self.inner):
                name = self.lines.fresh("pack")
                self.lines.emit(f"Pack<{c_type(stmt.value.dtype)}, {self.width}> {name};")
                found[id(stmt)] = name, self._pack_place(stmt.buffer, index)
        return found

    def _pack_place(self, buffer: str, index: Size) -> str:
        self.indices.spelled[self.loop.var] = FIRST
        text = self.indices.place(index, self.scalars.sizes[buffer])
        del self.indices.spelled[self.loop.var]
        if any(param.name == buffer for param in self.stage.kernel.params):
            self.stage.aligned[buffer] = None
        return f"{buffer} + {text}"

    def _whole(self, place: str) -> str:
        """When a pack is one access; then, where there may be none, how many lanes are left."""
        own = place.split(" ", 1)[0] in self.stage.aligned
        aligned = "aligned_" if own else "true"
        if not self.has_tail:
            return aligned
        return f"{aligned} && left_ >= {self.width}, left_"


def _cut(body: tuple[Stmt, ...], carries: tuple[Carry, ...]) -> list[Piece | Loop]:
    """Loops, and the pieces between them; what is carried on is behind the last."""
    parts: list[Piece | Loop] = []
    piece: list[Stmt] = []
    for stmt in body:
        if not isinstance(stmt, Loop):
            piece.append(stmt)
            continue
        if piece:
            parts.append(Piece(tuple(piece)))
            piece = []
        parts.append(stmt)
    if piece or carries:
        parts.append(Piece(tuple(piece), carries))
    return parts


def _bound_here(body: Iterable[Stmt]) -> frozenset[str]:
    return frozenset(stmt.name for stmt in body if isinstance(stmt, Let))


def _used(parts: Iterable[Piece | Loop]) -> frozenset[str]:
    """The names that are read in pieces and loops."""
    found: set[str] = set()
    for part in parts:
        found |= all_names((part,) if isinstance(part, Loop) else part.body)
        if isinstance(part, Piece):
            found |= names([carry.next for carry in part.carries])
    return frozenset(found)
