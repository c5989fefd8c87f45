"""The lanes of a vector loop: what they touch, and which of it is a pack, adjacent places that
adjacent lanes touch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from graphc.backends.cuda.statements.indices import Indices
from graphc.backends.cuda.statements.masks import is_uniform, spelled_out
from graphc.backends.cuda.statements.steps import divides, pack_start, step
from graphc.ir.dim import Dim, Size, substitute
from graphc.ir.kernel import IndexValue, Let, Literal, Load, Loop, Scalar, Stmt, Store, walk

_UNKNOWN = 1024  # lanes that are expected where their number is symbolic


@dataclass(frozen=True, slots=True)
class Lanes:
    """A vector loop. `most`: an upper bound of its iterations; `exact`: their number, if known."""

    loop: Loop
    most: int | None
    serial: tuple[str, ...]  # variables of serial loops inside

    @property
    def exact(self) -> int | None:
        return self.loop.extent if isinstance(self.loop.extent, int) else None

    @property
    def expected(self) -> int:
        return _UNKNOWN if self.most is None else max(self.most, 1)


def vector_loops(body: Iterable[Stmt], indices: Indices) -> Iterator[Lanes]:
    """In order, with what is known of their extents."""
    for stmt in body:
        if isinstance(stmt, Let) and stmt.value.dtype.name == "i64":
            indices.let(stmt)
        elif isinstance(stmt, Loop) and stmt.kind == "vector":
            inside = tuple(s.var for s in walk.statements(stmt.body) if isinstance(s, Loop))
            yield Lanes(stmt, indices.most(stmt.extent), inside)
        elif isinstance(stmt, Loop):
            with indices.loop(stmt):
                yield from vector_loops(stmt.body, indices)


@dataclass(frozen=True, slots=True)
class LaneAccess:
    """In a vector loop; `index` without the names of integers that are bound inside."""

    buffer: str
    index: Size
    write: bool
    plain: bool  # neither masked nor combining
    mask: Scalar | None = None  # of a load, spelled out, if what else it gives is a number


def lane_accesses(loop: Loop) -> list[LaneAccess]:
    """In the order of the text, a store behind what it reads."""
    lets: dict[str, Size] = {}
    bound: dict[str, Scalar] = {}
    inner = names_of_lanes(loop)
    found: list[LaneAccess] = []
    for stmt, scalar in _in_order(loop):
        if isinstance(stmt, Let):
            bound.setdefault(stmt.name, stmt.value)
        if isinstance(scalar, Load):
            found.append(load_access(scalar, lets, bound, inner))
        elif scalar is None and isinstance(stmt, Store):
            plain = stmt.mask is None and not stmt.combine
            found.append(LaneAccess(stmt.buffer, substitute(stmt.index, lets), True, plain))
        elif isinstance(scalar, IndexValue) and isinstance(stmt, Let) and stmt.value is scalar:
            lets[stmt.name] = substitute(scalar.index, lets)
    return found


def load_access(
    load: Load, lets: Mapping[str, Size], bound: Mapping[str, Scalar], inner: frozenset[str]
) -> LaneAccess:
    """A load, in a vector loop where these are bound."""
    index, mask = substitute(load.index, lets), None
    if load.mask is not None and (load.other is None or isinstance(load.other, Literal)):
        mask = spelled_out(load.mask, bound, lets, inner)
    return LaneAccess(load.buffer, index, False, load.mask is None, mask)


def _in_order(loop: Loop) -> Iterator[tuple[object, object]]:
    for stmt in loop.body:
        for scalar in walk.parts(walk.scalars(stmt)):
            yield stmt, scalar
        if isinstance(stmt, Store):
            yield stmt, None
        elif isinstance(stmt, Loop):
            yield from _in_order(stmt)
    for carry in loop.carries:
        for scalar in walk.parts((carry.next,)):
            yield carry, scalar


def names_of_lanes(loop: Loop) -> frozenset[str]:
    """Of scalars that are bound inside of a vector loop and are no variables of serial ones."""
    names: set[str] = set()
    for stmt in walk.statements(loop.body):
        if isinstance(stmt, Let):
            names.add(stmt.name)
        elif isinstance(stmt, Loop):
            names |= {carry.name for carry in stmt.carries}
    return frozenset(names)


def is_pack(access: LaneAccess, var: str, width: int, inner: frozenset[str]) -> bool:
    """Whether adjacent lanes touch adjacent places, from a multiple of `width` on. `inner`: names
    that differ between lanes."""
    alike = access.mask is not None and is_uniform(access.mask, var, width)
    if not (access.plain or alike) or step(access.index, var, width) != 1:
        return False
    first = pack_start(access.index, var, width)
    if isinstance(first, Dim) and first.variables() & inner:
        return False
    return divides(width, first)


def is_own(access: LaneAccess, loop: Loop, own: frozenset[str]) -> bool:
    """Whether a lane touches its own place of a Local, which no other lane does."""
    return access.buffer in own and access.index == Dim.var(loop.var)
