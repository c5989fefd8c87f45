"""`plan(kernel)`: how a kernel's loops are shared out to threads. Pure: it reads shapes alone.

A *group* of threads makes one iteration of a stage's parallel loop, its lanes the iterations of the
vector loops inside. Up to 32 threads are (part of) a warp, and a block has several groups; more are
the block. A thread takes `width` adjacent lanes, then those of the next stride of the group: what
they touch is then one access of up to 16 bytes. What a Local keeps by lane lies in registers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from graphc.backends.cuda.loops.indices import Indices
from graphc.backends.cuda.loops.ordering import coefficient, locals_of
from graphc.backends.cuda.loops.shapes import is_dear, variables
from graphc.ir.dim import Atom, Dim, Size, ceil_div, minimum, substitute, unwrap
from graphc.ir.kernel import (
    Check,
    IndexValue,
    Kernel,
    Let,
    Load,
    Local,
    Loop,
    Stmt,
    Store,
    walk,
)

WARP = 32
_BLOCK = 256  # threads of a block of several groups; of a group with a pack for each
_GROUP_MOST = 512  # threads of a group
_BLOCKS = 512  # while there are fewer blocks, one has fewer groups
_FEW_BLOCKS = 1024  # that fill a GPU
_BLOCK_LEAST = 64  # threads of a block of several groups
_THREADS = 1 << 16  # groups get wider while there are fewer threads
_ELEMENTS = 32  # of a row, in a thread of a warp
_WIDE_ELEMENTS = 16  # in a thread of a block
_BYTES = 16  # of one access
_COLUMNS = 1 << 18  # columns, from which on a thread takes several of them
_KEPT = 64  # words of Locals in a thread's registers
_UNKNOWN = 1024  # lanes that are expected where their number is symbolic


@dataclass(frozen=True, slots=True)
class StageMapping:
    """Of one stage. `widths`: of its vector loops, in order; `kept`: how many elements of a Local
    a thread has in registers."""

    group: int
    groups: int
    blocks: Size
    widths: tuple[int, ...]
    kept: Mapping[str, int]

    @property
    def threads(self) -> int:
        """Of a block."""
        return self.group * self.groups

    def __str__(self) -> str:
        widths = " ".join(map(str, self.widths)) or "no lanes"
        kept = f", in registers: {' '.join(sorted(self.kept))}" if self.kept else ""
        return (
            f"{self.blocks} blocks of {self.groups} x {self.group} threads, widths {widths}{kept}"
        )


def plan(kernel: Kernel) -> tuple[StageMapping, ...]:
    """The mapping of a kernel of loops."""
    return tuple(_Plan(kernel, body).mapping() for body in kernel.stages)


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


class _Plan:
    """Of one stage."""

    def __init__(self, kernel: Kernel, body: tuple[Stmt, ...]) -> None:
        self.kernel, self.body = kernel, body
        self.lanes = tuple(vector_loops(body, Indices()))
        parallel = [s for s in body if isinstance(s, Loop) and s.kind == "parallel"]
        self.spread = bool(parallel)
        self.iterations: Size = parallel[0].extent if parallel else 1
        self.sizes = {p.name: p.dtype.itemsize for p in kernel.params}
        self.sizes |= {local.name: local.dtype.itemsize for local in locals_of(body)}

    def mapping(self) -> StageMapping:
        own = frozenset(local.name for local in locals_of(self.body))
        alone = [_width(each, self.sizes, self.iterations, own) for each in self.lanes]
        widths = _shared_widths(self.lanes, alone, own)
        if isinstance(self.iterations, int) and not self.lanes and self.iterations <= 1:
            return StageMapping(1, 1, 1, (), {})
        group = self._group(widths)
        groups = self._groups(group)
        return StageMapping(
            group, groups, self._blocks(groups), tuple(widths),
            _kept(self.body, self.lanes, widths, group),
        )

    def _blocks(self, groups: int) -> Size:
        """Of a grid: so many that a group makes one iteration, unless each block has to compute
        first what takes long."""
        blocks = ceil_div(self.iterations, groups)
        return minimum(blocks, _FEW_BLOCKS) if is_dear(self.body) else blocks

    def _group(self, widths: Sequence[int]) -> int:
        if not self.lanes:
            return 1
        wanted, best = 1, 1
        rows = any(each.loop.carries for each in self.lanes)
        for each, width in zip(self.lanes, widths, strict=True):
            packs = -(-each.expected // width)
            wanted = max(wanted, min(_GROUP_MOST, _power(packs)))
            best = max(best, _threads(packs, each.expected if rows else None))
        if isinstance(self.iterations, int):
            while best < wanted and self.iterations * best < _THREADS:
                best *= 2
        return best

    def _groups(self, group: int) -> int:
        """Of a block."""
        if group > WARP or not self.spread:
            return 1
        groups = _BLOCK // group
        if isinstance(self.iterations, int):
            while groups * group > _BLOCK_LEAST and self.iterations < _BLOCKS * groups:
                groups //= 2
            while group == 1 and groups > WARP and self.iterations <= groups // 2:
                groups //= 2
        kept = sum(local.size * local.dtype.itemsize for local in locals_of(self.body))
        while groups > 1 and groups * group > WARP and groups * kept > 48 << 10:
            groups //= 2
        return groups


def _power(number: int) -> int:
    """The least power of two that is no less."""
    return 1 << (number - 1).bit_length()


def _threads(packs: int, elements: int | None) -> int:
    """For so many packs of lanes, where there are iterations enough. `elements`: of a row that is
    reduced, whose threads have work enough with several; None: each lane is by itself."""
    if elements is not None:
        if elements > WARP * _ELEMENTS:
            return min(_GROUP_MOST, max(2 * WARP, _power(-(-elements // _WIDE_ELEMENTS))))
        most = min(WARP, _power(packs))
    else:
        most = min(_BLOCK, _power(packs))
    # fewer threads of which none is idle are better than many of which a third is
    sizes = [most]
    while sizes[-1] > 8:
        sizes.append(sizes[-1] // 2)
    return max(sizes, key=lambda size: (min(_used(packs, size), 0.75), size))


def _used(packs: int, threads: int) -> float:
    return packs / (-(-packs // threads) * threads)


# Widths


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


def is_pack(access: LaneAccess, loop: Loop, width: int, inner: frozenset[str]) -> bool:
    """Whether adjacent lanes touch adjacent places, from a multiple of `width` on. `inner`: names
    that differ between lanes."""
    if not access.plain or coefficient(access.index, loop.var) != 1:
        return False
    base = unwrap(access.index - Dim.var(loop.var))
    if isinstance(base, Dim) and base.variables() & inner:
        return False
    return divides(width, base)


def divides(number: int, index: Size) -> bool:
    """Whether an index is a multiple of a number, whatever its variables are."""
    if isinstance(index, int):
        return index % number == 0
    return all(
        coefficient % number == 0 or any(_divides_atom(number, atom) for atom, _ in monomial)
        for monomial, coefficient in index.terms
    )


def _divides_atom(number: int, atom: Atom) -> bool:
    return atom.kind in ("min", "max") and all(divides(number, unwrap(a)) for a in atom.args)


def is_own(access: LaneAccess, loop: Loop, own: frozenset[str]) -> bool:
    """Whether a lane touches its own place of a Local, which no other lane does."""
    return access.buffer in own and access.index == Dim.var(loop.var)


def _width(
    each: Lanes, sizes: dict[str, int], iterations: Size, own: frozenset[str]
) -> int | None:
    """How many adjacent lanes a thread takes; None: any number, as there is nothing to access but
    what a lane has to itself."""
    loop = each.loop
    everything = lane_accesses(loop)
    found = [access for access in everything if not is_own(access, loop, own)]
    inner = names_of_lanes(loop)
    if everything and not found and not each.serial and each.exact is not None:
        return None
    if any(isinstance(stmt, Check) for stmt in walk.statements(loop.body)) or _tangled(loop, found):
        return 1
    if any(a.write and not a.plain for a in found) or not _plain_loops(loop, inner):
        return 1
    if each.serial:
        many = isinstance(iterations, int) and isinstance(loop.extent, int)
        if not many or iterations * loop.extent < _COLUMNS:  # type: ignore[operator]
            return 1
    walked = [a for a in found if coefficient(a.index, loop.var) != 0]
    adjacent = [a for a in walked if coefficient(a.index, loop.var) == 1 and a.plain]
    if not adjacent or len(adjacent) < len(walked):
        return 1
    widest = max(sizes[a.buffer] for a in adjacent)
    width = min(8, max(_BYTES // widest, 4 if any(sizes[a.buffer] < 8 for a in adjacent) else 2))
    while width > 1:
        even = divides(width, loop.extent) or _has_tail(loop, everything, inner, width)
        if even and all(is_pack(a, loop, width, inner) for a in adjacent):
            return width
        width //= 2
    return 1


def _shared_widths(
    lanes: Sequence[Lanes], widths: Sequence[int | None], own: frozenset[str]
) -> list[int]:
    """Loops of one length that go along the same Locals have one width, so that each lane's places
    are one thread's."""
    touched = [
        {a.buffer for a in lane_accesses(each.loop) if is_own(a, each.loop, own)}
        for each in lanes
    ]
    found = []
    for each, names in zip(lanes, touched, strict=True):
        alike = [
            width for other, others, width in zip(lanes, touched, widths, strict=True)
            if other is each or (names & others and other.exact == each.exact)
        ]
        found.append(min((width for width in alike if width is not None), default=1))
    return found


def _tangled(loop: Loop, found: Sequence[LaneAccess]) -> bool:
    """Whether a buffer is touched after it was stored to, other than once."""
    stored: set[str] = set()
    nested = any(isinstance(stmt, Loop) for stmt in loop.body)
    for access in found:
        if access.buffer in stored:
            return True
        if access.write:
            stored.add(access.buffer)
    return nested and any(not a.write and a.buffer in stored for a in found)


def _plain_loops(loop: Loop, inner: frozenset[str]) -> bool:
    """Whether serial loops inside are as long in all lanes."""
    names = inner | {loop.var}
    return not any(
        isinstance(stmt.extent, Dim) and stmt.extent.variables() & names
        for stmt in walk.statements(loop.body) if isinstance(stmt, Loop)
    )


def _has_tail(
    loop: Loop, found: Sequence[LaneAccess], inner: frozenset[str], width: int
) -> bool:
    """Whether lanes behind the last may be computed like others: they touch nothing but packs."""
    if loop.carries or any(isinstance(stmt, Loop) for stmt in loop.body):
        return False
    return all(
        is_pack(a, loop, width, inner)
        or (not a.write and not variables(a.index) & (inner | {loop.var}))
        for a in found
    )


# Locals


def _kept(
    body: Sequence[Stmt], lanes: Sequence[Lanes], widths: Sequence[int], group: int
) -> dict[str, int]:
    """The Locals that every lane has to itself: they are touched in vector loops of one length and
    width, at the lane's own place."""
    kept: dict[str, int] = {}
    words = 0
    outside = {a.buffer for a in _outside(body)}
    for local in locals_of(body):
        shapes = set()
        own = local.name not in outside
        for each, width in zip(lanes, widths, strict=True):
            for access in lane_accesses(each.loop):
                if access.buffer == local.name:
                    own = own and access.index == Dim.var(each.loop.var)
                    shapes.add((each.exact, width))
        if not own or len(shapes) != 1:
            continue
        ((extent, width),) = shapes
        if extent is None:
            continue
        elements = -(-extent // (width * group)) * width
        size = elements * max(1, local.dtype.itemsize // 4)
        if words + size <= _KEPT:
            words += size
            kept[local.name] = elements
    return kept


def _outside(body: Iterable[Stmt]) -> Iterator[LaneAccess]:
    """What is touched outside of vector loops."""
    for stmt in body:
        if isinstance(stmt, Store):
            yield LaneAccess(stmt.buffer, stmt.index, True, True)
        scalars = list(walk.scalars(stmt)) if not isinstance(stmt, Local) else []
        if isinstance(stmt, Loop):
            if stmt.kind == "vector":
                scalars = [carry.init for carry in stmt.carries]
            else:
                scalars += [carry.next for carry in stmt.carries]
                yield from _outside(stmt.body)
        for part in walk.parts(scalars):
            if isinstance(part, Load):
                yield LaneAccess(part.buffer, part.index, False, True)
