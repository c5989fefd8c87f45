"""The lanes of a vector loop: what they touch, and which of it is a pack, adjacent places that
adjacent lanes touch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from graphc.backends.cuda.loops.indices import Indices
from graphc.ir.dim import Atom, Dim, Size, substitute, unwrap
from graphc.ir.kernel import IndexValue, Let, Load, Loop, Stmt, Store, walk

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


def lane_accesses(loop: Loop) -> list[LaneAccess]:
    """In the order of the text, a store behind what it reads."""
    lets: dict[str, Size] = {}
    found: list[LaneAccess] = []
    for stmt, scalar in _in_order(loop):
        if isinstance(scalar, Load):
            plain = scalar.mask is None
            found.append(LaneAccess(scalar.buffer, substitute(scalar.index, lets), False, plain))
        elif scalar is None and isinstance(stmt, Store):
            plain = stmt.mask is None and not stmt.combine
            found.append(LaneAccess(stmt.buffer, substitute(stmt.index, lets), True, plain))
        elif isinstance(scalar, IndexValue) and isinstance(stmt, Let) and stmt.value is scalar:
            lets[stmt.name] = substitute(scalar.index, lets)
    return found


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
    if not access.plain or step(access.index, var, width) != 1:
        return False
    first = pack_start(access.index, var, width)
    if isinstance(first, Dim) and first.variables() & inner:
        return False
    return divides(width, first)


def step(index: Size, var: str, width: int) -> int | None:
    """How far apart the places of adjacent lanes are, within a pack of `width` lanes that begins at
    a multiple of it; None where that is not the same all along."""
    if isinstance(index, int) or var not in index.variables():
        return 0
    total = 0
    for monomial, coefficient in index.terms:
        varying = [(atom, power) for atom, power in monomial if _has(atom, var)]
        if not varying:
            continue
        found = _atom_step(varying[0][0], var, width)
        if found is None or (found and (len(monomial) > 1 or varying[0][1] > 1)):
            return None
        if len(varying) > 1 and any(_atom_step(atom, var, width) != 0 for atom, _ in varying):
            return None
        total += coefficient * found
    return total


def _has(atom: Atom, var: str) -> bool:
    if atom.kind == "var":
        return atom.name == var
    return any(var in arg.variables() for arg in atom.args)


def _atom_step(atom: Atom, var: str, width: int) -> int | None:
    if atom.kind == "var":
        return 1
    first, second = map(unwrap, atom.args)
    by = step(first, var, width)
    if by is None or step(second, var, width) != 0:
        return None
    if by == 0:
        return 0
    if by < 0 or atom.kind not in ("floordiv", "mod"):
        return None
    reach = by * width  # a pack stays between two multiples of it
    if not (divides(reach, second) and divides(reach, pack_start(first, var, width))):
        return None
    return by if atom.kind == "mod" else 0


def pack_start(index: Size, var: str, width: int) -> Size:
    """Of a pack's first lane."""
    return unwrap(substitute(index, {var: width * Dim.var(var)}))


def divides(number: int, index: Size) -> bool:
    """Whether an index is a multiple of a number, whatever its variables are."""
    if isinstance(index, int):
        return index % number == 0
    return all(
        coefficient % number == 0 or any(_divides_atom(number, atom) for atom, _ in monomial)
        for monomial, coefficient in index.terms
    )


def _divides_atom(number: int, atom: Atom) -> bool:
    whole = atom.kind in ("min", "max", "mod")
    return whole and all(divides(number, unwrap(a)) for a in atom.args)


def is_own(access: LaneAccess, loop: Loop, own: frozenset[str]) -> bool:
    """Whether a lane touches its own place of a Local, which no other lane does."""
    return access.buffer in own and access.index == Dim.var(loop.var)
