"""`plan(kernel)`: how a kernel's loops are shared out to threads. Pure: it reads shapes alone.

A *group* of threads makes one iteration of a stage's parallel loop, its lanes the iterations of the
vector loops inside. Up to 32 threads are (part of) a warp, and a block has several groups; more are
the block. A thread takes `width` adjacent lanes, then those of the next stride of the group: what
they touch is then one access of up to 16 bytes. What a Local keeps by lane lies in registers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from graphc.backends.cuda.loops import tiles
from graphc.backends.cuda.loops.ordering import locals_of
from graphc.backends.cuda.loops.reductions import slot_bytes
from graphc.backends.cuda.loops.shapes import is_dear, variables
from graphc.backends.cuda.loops.tiles import Tile, find_tile
from graphc.backends.cuda.source import OLDEST, Target
from graphc.backends.cuda.statements.indices import Indices
from graphc.backends.cuda.statements.lanes import (
    LaneAccess,
    Lanes,
    is_own,
    is_pack,
    lane_accesses,
    names_of_lanes,
    vector_loops,
)
from graphc.backends.cuda.statements.steps import divides, step
from graphc.ir.dim import Dim, Size, ceil_div, maximum, minimum, product, unwrap
from graphc.ir.kernel import (
    Check,
    Kernel,
    Let,
    Load,
    Local,
    Loop,
    Scalar,
    Stmt,
    Store,
    walk,
)

WARP = 32
_BLOCK = 256  # threads of a block of several groups; of a group with a pack for each
_GROUP_MOST = 512  # threads of a group
_BLOCKS = 512  # while there are fewer blocks, one has fewer groups
_FEW_BLOCKS = 1024  # that fill a GPU
_MANY_BLOCKS = 1 << 14  # from which on a block takes several iterations: to begin one costs, too
_BLOCK_LEAST = 64  # threads of a block of several groups
_THREADS = 1 << 16  # groups get wider while there are fewer threads
_ELEMENTS = 32  # of a row, in a thread of a warp
_WIDE_ELEMENTS = 16  # in a thread of a block
_BYTES = 16  # of one access
_COLUMNS = 1 << 18  # columns, from which on a thread takes several of them
SCALARS = 256  # bytes of shared memory for what one warp computes for its block
_KEPT = 64  # words of Locals in a thread's registers


@dataclass(frozen=True, slots=True)
class StageMapping:
    """Of one stage. `widths`: of its vector loops, in order; `kept`: how many elements of a Local
    a thread has in registers; `spilled`: the Locals that a block has no room for, which lie in
    global memory: `spill` bytes for each group. `tile`: what a block takes instead of iterations,
    in any order."""

    group: int
    groups: int
    blocks: Size
    widths: tuple[int, ...]
    kept: Mapping[str, int]
    tile: Tile | None = None
    spilled: frozenset[str] = frozenset()
    spill: int = 0

    @property
    def threads(self) -> int:
        """Of a block."""
        return self.group * self.groups

    @property
    def spilled_bytes(self) -> Size:
        """Of a launch, whose grid is never empty."""
        return unwrap(maximum(1, self.blocks) * self.groups * self.spill)

    def __str__(self) -> str:
        widths = " ".join(map(str, self.widths)) or "no lanes"
        kept = f", in registers: {' '.join(sorted(self.kept))}" if self.kept else ""
        kept += f", in global memory: {' '.join(sorted(self.spilled))}" if self.spilled else ""
        kept += f", {self.tile}" if self.tile else ""
        return (
            f"{self.blocks} blocks of {self.groups} x {self.group} threads, widths {widths}{kept}"
        )


def plan(kernel: Kernel, target: Target = OLDEST) -> tuple[StageMapping, ...]:
    """The mapping of a kernel of loops."""
    return tuple(_Plan(kernel, body, target.shared).mapping() for body in kernel.stages)


class _Plan:
    """Of one stage."""

    def __init__(self, kernel: Kernel, body: tuple[Stmt, ...], room: int) -> None:
        self.kernel, self.body, self.room = kernel, body, room
        self.lanes = tuple(vector_loops(body, Indices()))
        parallel = [s for s in body if isinstance(s, Loop) and s.kind == "parallel"]
        self.spread = bool(parallel)
        self.iterations: Size = parallel[0].extent if parallel else 1
        self.sizes = {p.name: p.dtype.itemsize for p in kernel.params}
        self.sizes |= {local.name: local.dtype.itemsize for local in locals_of(body)}

    def mapping(self) -> StageMapping:
        tile = find_tile(self.kernel, self.body, self.room)
        if tile is not None:
            blocks = unwrap(product(tile.counts))
            return StageMapping(tiles.WARP, tiles.ROWS, blocks, (tile.width,), {}, tile)
        own = frozenset(local.name for local in locals_of(self.body))
        alone = [_width(each, self.sizes, self.iterations, own) for each in self.lanes]
        widths = _shared_widths(self.lanes, alone, own)
        if isinstance(self.iterations, int) and not self.lanes and self.iterations <= 1:
            return StageMapping(1, 1, 1, (), {})
        group = self._group(widths)
        groups = self._groups(group)
        kept = _kept(self.body, self.lanes, widths, group)
        spilled, spill = self._spilled(group, groups, kept)
        blocks = self._blocks(groups)
        if spilled:
            blocks = minimum(blocks, _FEW_BLOCKS)
        return StageMapping(group, groups, blocks, tuple(widths), kept, None, spilled, spill)

    def _is_loose(self) -> bool:
        """Whether threads have nothing to wait for: all that is stored is a lane's, and no other
        thread's."""
        if len(self.lanes) != 1 or any(not isinstance(s, (Let, Loop)) for s in self.body):
            return False
        (each,) = self.lanes
        around = [s for s in walk.statements(self.body) if s is not each.loop]
        inside = list(walk.statements(each.loop.body))
        apart = [s for s in around if not any(s is other for other in inside)]
        plain = all(isinstance(s, Let) or (isinstance(s, Loop) and not s.carries) for s in apart)
        serial = any(isinstance(s, Loop) and s.kind == "serial" for s in apart)
        if not plain or serial or each.loop.carries:
            return False
        stored = {s.buffer for s in inside if isinstance(s, Store)}
        read = {part.buffer for part in walk.parts(_scalars(apart)) if isinstance(part, Load)}
        return not read & stored and not _tangled(each.loop, lane_accesses(each.loop))

    def _spilled(
        self, group: int, groups: int, kept: Mapping[str, int]
    ) -> tuple[frozenset[str], int]:
        """The largest Locals, as long as others and partial results of reductions do not fit into
        shared memory; their bytes."""
        sizes = {
            local.name: tile_bytes(local) for local in locals_of(self.body)
            if local.name not in kept
        }
        room = self.room
        if group > WARP:
            room -= 2 * max((slot_bytes(each.loop.carries) for each in self.lanes), default=0)
        spilled: list[str] = []
        while sizes and sum(sizes.values()) * groups > room - SCALARS:
            spilled.append(max(sizes, key=lambda name: (sizes[name], name)))
            del sizes[spilled[-1]]
        named = [local for local in locals_of(self.body) if local.name in spilled]
        return frozenset(spilled), sum(map(tile_bytes, named))

    def _blocks(self, groups: int) -> Size:
        """Of a grid: so many that a group makes one iteration, unless that is more than a GPU
        begins at once, or each block has to compute first what takes long."""
        most = _FEW_BLOCKS if is_dear(self.body) else _MANY_BLOCKS
        return minimum(ceil_div(self.iterations, groups), most)

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
        if not self.spread or (group > WARP and not self._is_loose()):
            return 1
        groups = max(1, _BLOCK // group)
        if isinstance(self.iterations, int):
            while groups > max(1, _BLOCK_LEAST // group) and self.iterations < _BLOCKS * groups:
                groups //= 2
            while group == 1 and groups > WARP and self.iterations <= groups // 2:
                groups //= 2
        kept = sum(map(tile_bytes, locals_of(self.body)))
        while groups > 1 and groups * group > WARP and groups * kept > min(self.room, 48 << 10):
            groups //= 2
        return groups


def _scalars(body: Iterable[Stmt]) -> list[Scalar]:
    return [scalar for stmt in body for scalar in walk.scalars(stmt)]


def tile_bytes(local: Local) -> int:
    """Of a Local, the next one aligned."""
    return -(-local.size * local.dtype.itemsize // 16) * 16


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
    return _widest(loop, found, sizes, everything, inner)


def _widest(
    loop: Loop, found: Sequence[LaneAccess], sizes: dict[str, int],
    everything: Sequence[LaneAccess], inner: frozenset[str],
) -> int:
    """So many lanes that what they walk are packs, of which the widest is one access; but for what
    is the same for all of a pack."""
    walked = [a for a in found if loop.var in variables(a.index)]
    if not walked:
        return 1
    width = min(8, _BYTES // min(sizes[a.buffer] for a in walked))
    while width > 1:
        steps = [step(a.index, loop.var, width) for a in walked]
        packs = [a for a, by in zip(walked, steps, strict=True) if by != 0]
        most = max((sizes[a.buffer] for a in packs), default=_BYTES)
        room = max(_BYTES // most, 4 if any(sizes[a.buffer] < 8 for a in packs) else 2)
        even = divides(width, loop.extent) or _has_tail(loop, everything, inner, width)
        whole = all(is_pack(a, loop.var, width, inner) for a in packs)
        if packs and width <= room and even and whole and not _shares_stores(walked, steps):
            return width
        width //= 2
    return 1


def _shares_stores(walked: Sequence[LaneAccess], steps: Sequence[int | None]) -> bool:
    """Whether lanes of a pack write one place."""
    return any(by == 0 and a.write for a, by in zip(walked, steps, strict=True))


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
        is_pack(a, loop.var, width, inner)
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
