"""`find_tile(body)`: what a stage walks across, and is better turned around in shared memory.

A lane's neighbours are neighbours in memory, or a warp's access falls apart into one for each lane.
Where loads or stores have their neighbours along another loop (a permuted copy), a block takes a
square of both: loads across are made along their own loop, into a tile in shared memory; lanes read
it, and what is stored across they leave in such a tile, from which it goes out along its loop. What
is loaded and stored is the same; only who does it is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from graphc.backends.cuda.loops.ordering import coefficient
from graphc.backends.cuda.loops.shapes import names, variables
from graphc.backends.cuda.statements.indices import Indices
from graphc.backends.cuda.statements.lanes import (
    LaneAccess,
    is_pack,
    names_of_lanes,
    vector_loops,
)
from graphc.backends.cuda.statements.steps import divides, step
from graphc.ir.dim import Dim, Size, ceil_div, substitute, unwrap
from graphc.ir.kernel import IndexValue, Kernel, Let, Load, Loop, Scalar, Stmt, Store, walk

ROWS = 8  # of threads: they take so many rows of a tile at once
WARP = 32
_LEAST = 16  # places along both loops, from which on half of a tile is used
_NEAR = 4  # from one place to the next, that an access of a warp is still worth it
_SHARED = 32 << 10  # bytes of tiles in a block: several fit beside each other
_EXPECTED = 1024  # places, where their number is symbolic


@dataclass(frozen=True, slots=True)
class Digit:
    """`name` is (p // below) % period, p of the parallel loop: neighbours are `below` apart. Tiles
    go along `count` of them: past the period where all neighbours of p are meant."""

    name: str
    below: Size
    period: Size
    count: Size


@dataclass(frozen=True, slots=True)
class Tile:
    """Squares of `width * 32` lanes by as many places of a digit, `loop` being the vector loop and
    `lanes` a bound of its extent. A thread has `width` neighbours. `loads` and `stores` go along
    the digit; loads of one place are one of them."""

    parallel: Loop
    loop: Loop
    digit: Digit
    lanes: Size
    width: int
    loads: tuple[Load, ...]
    stores: tuple[Store, ...]

    @property
    def accesses(self) -> tuple[Load | Store, ...]:
        """Each has a tile."""
        return (*self.loads, *self.stores)

    @property
    def side(self) -> int:
        return WARP * self.width

    def pitch(self, size: int) -> int:
        """Elements of this size from one row of a tile to the next: neither rows nor columns meet
        in a bank."""
        return self.side + max(1, 4 // (self.width * size))

    def bytes(self, size: int) -> int:
        return -(-self.side * self.pitch(size) * size // 16) * 16

    @property
    def counts(self) -> tuple[Size, Size, Size, Size]:
        """Tiles: digits above, along the digit, digits below, along the lanes."""
        digit, total = self.digit, self.parallel.extent
        above = ceil_div(total, unwrap(digit.below * digit.count))
        along, across = ceil_div(digit.count, self.side), ceil_div(self.lanes, self.side)
        return above, along, digit.below, across

    def __str__(self) -> str:
        buffers = dict.fromkeys([a.buffer for a in self.accesses])
        return f"tiles of {self.side} x {self.side} along {self.digit.name}: {' '.join(buffers)}"


def find_tile(kernel: Kernel, body: Sequence[Stmt], room: int) -> Tile | None:
    """The best of a stage, if there is one; `room`: bytes of shared memory that a block has."""
    *before, parallel = body
    if not isinstance(parallel, Loop) or parallel.kind != "parallel":
        return None
    *lets, loop = parallel.body
    if not isinstance(loop, Loop) or loop.kind != "vector" or loop.carries:
        return None
    outside, inside = [*before, *lets], list(loop.body)
    if not all(isinstance(s, Let) for s in outside):
        return None
    if not all(isinstance(s, (Let, Store)) for s in inside):
        return None
    around = [s for s in outside if isinstance(s, Let)]
    nest = _Nest(kernel, parallel, loop, around, min(_SHARED, room))
    lanes = nest.lanes()
    if lanes is None or _expected(lanes) < _LEAST:
        return None
    found = [tile for digit in nest.digits() if (tile := nest.tile(digit, lanes)) is not None]
    return max(found, key=nest.weight, default=None)


def _expected(size: Size) -> int:
    return size if isinstance(size, int) else _EXPECTED


class _Nest:
    """A vector loop in a parallel one, with Lets between them."""

    def __init__(
        self, kernel: Kernel, parallel: Loop, loop: Loop, lets: Sequence[Let], room: int
    ) -> None:
        self.parallel, self.loop, self.room = parallel, loop, room
        self.sizes = {param.name: param.dtype.itemsize for param in kernel.params}
        self.lets = {let.name: let.value for let in (*lets, *_lets(loop.body))}
        self.around = [let for let in lets if isinstance(let.value, IndexValue)]
        self.inner = {
            let.name: let.value.index
            for let in _lets(loop.body) if isinstance(let.value, IndexValue)
        }

    def lanes(self) -> Size | None:
        """A bound of the vector loop's extent that is the same for all blocks."""
        extent = self.loop.extent
        if not variables(extent) & (self.lets.keys() | {self.parallel.var}):
            return extent
        (lanes,) = vector_loops((self.parallel,), Indices())
        return lanes.most if self._is_free(extent) else None

    def digits(self) -> Iterator[Digit]:
        """Those of the parallel loop's variable that have a name, or it."""
        total = self.parallel.extent
        yield Digit(self.parallel.var, 1, total, total)
        for let in self.around:
            assert isinstance(let.value, IndexValue)
            digit = _digit(let.name, let.value.index, self.parallel.var, total)
            if digit is not None:
                yield digit

    def tile(self, digit: Digit, lanes: Size) -> Tile | None:
        """With all that goes along a digit; None if nothing does."""
        if _expected(digit.count) < _LEAST or _expected(digit.period) < _LEAST // 2:
            return None
        stored = {stmt.buffer for stmt in self.loop.body if isinstance(stmt, Store)}
        loads: dict[tuple[str, Size, int], Load] = {}
        for part in walk.parts([s for stmt in self.loop.body for s in walk.scalars(stmt)]):
            if not isinstance(part, Load) or part.buffer in stored:
                continue
            if self._is_across(part.index, digit) and self._is_free(part):
                loads[place_of(part)] = part
        stores = [
            stmt for stmt in self.loop.body
            if isinstance(stmt, Store) and stmt.mask is None and not stmt.combine
            and self._is_across(stmt.index, digit) and self._is_free(stmt.index)
        ]
        if len(stores) != len({stmt.buffer for stmt in stores}):
            stores = []  # one may have to come behind the other
        tile = Tile(self.parallel, self.loop, digit, lanes, 1, tuple(loads.values()), tuple(stores))
        while tile.loads and self._bytes(tile) > self.room:
            tile = self._with(tile, tile.loads[:-1], tile.stores)
        while tile.stores and self._bytes(tile) > self.room:
            tile = self._with(tile, tile.loads, tile.stores[:-1])
        if not tile.loads and not tile.stores:
            return None
        return self._widened(tile)

    def _with(
        self, tile: Tile, loads: tuple[Load, ...], stores: tuple[Store, ...], width: int = 1
    ) -> Tile:
        return Tile(self.parallel, self.loop, tile.digit, tile.lanes, width, loads, stores)

    def weight(self, tile: Tile) -> int:
        """Bytes of an iteration that are turned around."""
        return sum(self.sizes[a.buffer] for a in tile.accesses)

    def _bytes(self, tile: Tile) -> int:
        return sum(tile.bytes(self.sizes[a.buffer]) for a in tile.accesses)

    def _is_across(self, index: Size, digit: Digit) -> bool:
        """Whether lanes are far apart, and a digit's places neighbours."""
        index = substitute(index, self.inner)
        apart, near = coefficient(index, self.loop.var), coefficient(index, digit.name)
        if near is None or not 0 < abs(near) <= _NEAR:
            return False
        return apart is None or abs(apart) > _NEAR

    def _is_free(self, what: Load | Size) -> bool:
        """Whether it can be known where to load, or store, from sizes alone."""
        if isinstance(what, Load):
            if what.mask is not None and not all(
                self._is_free_scalar(part) for part in (what.mask, what.other) if part is not None
            ):
                return False
            what = what.index
        return self._are_free(variables(what))

    def _is_free_scalar(self, root: Scalar) -> bool:
        if any(isinstance(part, Load) for part in walk.parts((root,))):
            return False
        return self._are_free(names((root,)))

    def _are_free(self, found: frozenset[str]) -> bool:
        return all(
            self._is_free_scalar(self.lets[name]) for name in found if name in self.lets
        )

    # Several neighbours for a thread

    def _widened(self, tile: Tile) -> Tile:
        """With as many neighbours as make four bytes of what is turned around."""
        largest = max(self.sizes[a.buffer] for a in tile.accesses)
        width = max(1, 4 // largest)
        while width > 1:
            wide = self._with(tile, tile.loads, tile.stores, width)
            if self._is_whole(wide) and self._bytes(wide) <= self.room:
                return wide
            width //= 2
        return tile

    def _is_whole(self, tile: Tile) -> bool:
        """Whether lanes, digits and all that is walked come in packs of the tile's width."""
        width, digit, loop = tile.width, tile.digit, self.loop
        if not all(divides(width, n) for n in (loop.extent, digit.period, digit.count)):
            return False
        if any(load.mask is not None for load in tile.loads) or not self._is_alone(digit):
            return False
        inner = names_of_lanes(loop)
        across = {id(each) for each in tile.accesses}
        turned = {place_of(load) for load in tile.loads}
        for each in tile.accesses:
            index = substitute(each.index, self.inner)
            access = LaneAccess(each.buffer, index, False, True)
            if not is_pack(access, digit.name, width, inner):
                return False
        for stmt in loop.body:
            for part in walk.parts(walk.scalars(stmt)):
                turns = isinstance(part, Load) and place_of(part) in turned
                if isinstance(part, Load) and not turns and not self._suits(part, width, inner):
                    return False
            stays = isinstance(stmt, Store) and id(stmt) not in across
            if isinstance(stmt, Store) and stays and not self._suits(stmt, width, inner):
                return False
        return True

    def _suits(self, access: Load | Store, width: int, inner: frozenset[str]) -> bool:
        """Whether a pack of lanes has a pack of places, or one place to load."""
        index, var = substitute(access.index, self.inner), self.loop.var
        plain = access.mask is None and not (isinstance(access, Store) and access.combine)
        found = LaneAccess(access.buffer, index, isinstance(access, Store), plain)
        if not found.write and step(index, var, width) == 0:
            return True
        return is_pack(found, var, width, inner)

    def _is_alone(self, digit: Digit) -> bool:
        """Whether no other name changes within a pack of the digit's places."""
        if not isinstance(digit.below, int) or not isinstance(digit.period, int):
            return False
        if digit.name == self.parallel.var:
            return not self.around
        for let in self.around:
            assert isinstance(let.value, IndexValue)
            if let.name == digit.name:
                continue
            other = _digit(let.name, let.value.index, self.parallel.var, self.parallel.extent)
            if other is None or not isinstance(other.below, int):
                return False
            above = other.below % (digit.below * digit.period) == 0
            reach = other.below * other.period
            if not above and not (isinstance(reach, int) and digit.below % reach == 0):
                return False
        return True


def place_of(load: Load) -> tuple[str, Size, int]:
    """What equal loads have in common."""
    return load.buffer, load.index, id(load.mask)


def _lets(body: Sequence[Stmt]) -> list[Let]:
    return [stmt for stmt in body if isinstance(stmt, Let)]


def _digit(name: str, index: Size, var: str, total: Size) -> Digit | None:
    """An index as a digit of a variable that stays below `total`."""
    if index == Dim.var(var):
        return Digit(name, 1, total, total)
    parts = _call(index, "mod")
    if parts is None:
        parts = _call(index, "floordiv")
        if parts is None or parts[0] != Dim.var(var):
            return None
        count = ceil_div(total, parts[1])
        return Digit(name, parts[1], count, count)
    inside, count = parts
    if inside == Dim.var(var):
        return Digit(name, 1, count, total)
    parts = _call(inside, "floordiv")
    if parts is None or parts[0] != Dim.var(var):
        return None
    return Digit(name, parts[1], count, count)


def _call(index: Size, kind: str) -> tuple[Size, Size] | None:
    """The arguments of an index that is one such function."""
    if isinstance(index, int) or len(index.terms) != 1:
        return None
    ((monomial, number),) = index.terms
    if number != 1 or len(monomial) != 1 or monomial[0][1] != 1 or monomial[0][0].kind != kind:
        return None
    first, second = monomial[0][0].args
    return unwrap(first), unwrap(second)
