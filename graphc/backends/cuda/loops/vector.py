"""A vector loop: lanes by thread, `width` adjacent ones at a time.

With a width of more than 1 the body becomes pieces. Serial loops inside go around such pieces.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from graphc.backends.cuda.loops.ordering import bound
from graphc.backends.cuda.loops.shapes import all_names, names
from graphc.backends.cuda.scalar import c_type
from graphc.backends.cuda.statements.lanes import (
    LaneAccess,
    is_pack,
    lane_accesses,
    names_of_lanes,
)
from graphc.backends.cuda.statements.pieces import FIRST, LANE, Piece, Pieces
from graphc.backends.cuda.statements.steps import divides
from graphc.ir import dtypes
from graphc.ir.kernel import (
    Carry,
    Check,
    Let,
    Load,
    Loop,
    Stmt,
    Store,
    walk,
)

if TYPE_CHECKING:
    from graphc.backends.cuda.loops.stage import StageFunction

_STRIDES = 16  # of a group, up to which a loop counts them
_UNROLLED = 256  # scalars in an unrolled body
_STRIDE = "stride_"  # what the C name means here


class VectorLoop(Pieces):
    """Writes one into its stage."""

    def __init__(self, stage: StageFunction, loop: Loop, width: int) -> None:
        apart = _apart(loop, stage.locals)
        super().__init__(stage.scalars, loop.var, width, names_of_lanes(loop), apart)
        self.stage, self.loop = stage, loop
        self.group = stage.mapping.group
        self.thread = "thread_" if self.group > 1 else "0"
        self.has_tail = False

    def is_pack(self, access: LaneAccess) -> bool:
        return is_pack(access, self.var, self.width, self.inner)

    def whole(self, place: str) -> str:
        buffer = place.split(" ", 1)[0]
        aligned = "true"
        if any(param.name == buffer for param in self.stage.kernel.params):
            self.stage.aligned[buffer] = None
            aligned = "aligned_"
        if not self.has_tail:
            return aligned
        return f"{aligned} && left_ >= {self.width}, left_"

    def write(self) -> None:
        """All of it."""
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
                self.scalars.bind(stmt)
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

    # Several lanes

    def _pieces(self, body: tuple[Stmt, ...], carries: tuple[Carry, ...]) -> None:
        parts = _cut(body, carries)
        for part in parts:
            if isinstance(part, Loop):
                self._serial(part)
            else:
                others = [other for other in parts if other is not part]
                self.piece(part, _bound_here(part.body) & _used(others))

    def _serial(self, loop: Loop) -> None:
        """A serial loop that all of the thread's lanes go through together."""
        for carry in loop.carries:
            if carry.dtype is dtypes.i64:
                self.indices.unknown(carry.name)
            self.lines.emit(f"{c_type(carry.dtype)} {carry.name}[{self.width}];")
        self.open_lanes()
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


def _apart(loop: Loop, local: Collection[str]) -> frozenset[str]:
    """Locals that a loop writes and touches besides: lane by lane, as the text says."""
    found = [a for a in lane_accesses(loop) if a.buffer in local]
    written = {a.buffer for a in found if a.write}
    touched = [a.buffer for a in found]
    return frozenset(name for name in written if touched.count(name) > 1)


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
