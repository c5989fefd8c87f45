"""Which threads of a group touch what, and where they have to wait for each other.

A group of threads makes one iteration of a parallel loop. What all of it computes alike is stored
by its first thread; what lies in a vector loop is done by the thread that has the lane. A thread
waits only where it might touch a place that another thread has touched since the last wait, and
one of the two writes: where that cannot be told from the indices, it waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from graphc.ir.dim import Dim, Size, substitute, unwrap
from graphc.ir.kernel import IndexValue, Let, Load, Local, Loop, Scalar, Stmt, Store, walk
from graphc.ir.record import replaced

LANE = "lane "  # stands for a vector loop's variable; no name of a kernel has a space
ALL, FIRST = 0, -1  # threads that touch what has no lane


@dataclass(frozen=True, slots=True)
class Access:
    """Of a buffer, at an index. Lanes: `width` adjacent ones are a thread's, `most` is what the
    variable stays below (None: not known). `width` may also be ALL threads or the FIRST."""

    buffer: str
    index: Size
    write: bool
    width: int
    most: int | None = None


def conflict(a: Access, b: Access) -> bool:
    """Whether different threads may touch one place by these, and it makes a difference."""
    if a.buffer != b.buffer or not (a.write or b.write):
        return False
    if a.width != b.width:
        return True
    return a.width == ALL or (a.width > 0 and not _same_lane(a, b))


def _same_lane(a: Access, b: Access) -> bool:
    """Whether equal places are those of equal lanes: the indices differ, but for the lane, by a
    multiple of more than the lanes reach."""
    by = _coefficient(a.index)
    if not by or by != _coefficient(b.index):
        return False
    lane = Dim.var(LANE)
    gap = unwrap((a.index - by * lane) - (b.index - by * lane))
    if gap == 0:
        return True
    if a.most is None or b.most is None or LANE in _variables(gap):
        return False
    reach = abs(by) * (max(a.most, b.most) - 1)
    numbers = [gap] if isinstance(gap, int) else [c for _, c in gap.terms]
    divisor = 0
    for number in numbers:
        divisor = _common(divisor, abs(number))
    return divisor > reach


def _common(a: int, b: int) -> int:
    while b:
        a, b = b, a % b
    return a


def _variables(index: Size) -> frozenset[str]:
    return index.variables() if isinstance(index, Dim) else frozenset()


def _coefficient(index: Size) -> int:
    """Of the lane; 0 where it is not there, or not so."""
    return coefficient(index, LANE) or 0


def coefficient(index: Size, name: str) -> int | None:
    """c where the index is c * name + what has no name in it; None where it is not so."""
    if isinstance(index, int) or name not in index.variables():
        return 0
    found = 0
    for monomial, number in index.terms:
        for atom, power in monomial:
            if atom.kind == "var" and atom.name == name:
                if len(monomial) > 1 or power > 1:
                    return None
                found = number
            elif atom.kind != "var" and any(name in arg.variables() for arg in atom.args):
                return None
    return found


class Order:
    """What was touched since the group last waited. `alone`: a group is one thread, which waits
    for nobody. `own`: buffers of which each thread has its part."""

    def __init__(self, alone: bool, own: frozenset[str] = frozenset()) -> None:
        self.alone, self.own = alone, own
        self.pending: list[Access] = []
        self._renamed = 0

    def needs_wait(self, accesses: Iterable[Access]) -> bool:
        """Whether to wait in front of these; they are pending from now on."""
        found = [] if self.alone else [a for a in accesses if a.buffer not in self.own]
        waits = any(conflict(old, new) for old in self.pending for new in found)
        if waits:
            self.pending.clear()
        self.pending += found
        return waits

    def waited(self) -> None:
        """All have, for another reason."""
        self.pending.clear()

    def forget(self, names: frozenset[str]) -> None:
        """Names have no meaning any more."""
        self.pending = self._apart(self.pending, names)

    def enter(self, accesses: Iterable[Access], names: frozenset[str]) -> list[Access]:
        """In front of a loop that is gone through again: what it touches is pending where it
        begins. Returns what is pending if it is not gone through."""
        before = list(self.pending)
        again = [] if self.alone else [a for a in accesses if a.buffer not in self.own]
        self.pending += self._apart(again, names)
        return before

    def leave(self, before: Sequence[Access], names: frozenset[str]) -> None:
        """Behind a loop, or what a condition encloses: its names have no meaning any more."""
        seen = dict.fromkeys((*before, *self._apart(self.pending, names)))
        self.pending = list(seen)

    def _apart(self, accesses: Iterable[Access], names: frozenset[str]) -> list[Access]:
        """The same, with names that are those of no other place."""
        self._renamed += 1
        new = {name: Dim.var(f"{name} {self._renamed}") for name in names}
        return [replaced(a, index=substitute(a.index, new)) for a in accesses]


def bound(body: Iterable[Stmt]) -> frozenset[str]:
    """The integers that are bound inside of statements."""
    names: set[str] = set()
    for stmt in walk.statements(body):
        if isinstance(stmt, Let):
            names.add(stmt.name)
        elif isinstance(stmt, Loop):
            names |= {stmt.var, *(carry.name for carry in stmt.carries)}
    return frozenset(names)


def reads(scalars: Iterable[Scalar], width: int = ALL) -> list[Access]:
    """What is loaded to compute scalars."""
    return [
        Access(part.buffer, part.index, False, width)
        for part in walk.parts(scalars) if isinstance(part, Load)
    ]


def store(stmt: Store) -> list[Access]:
    """What the first thread touches to store what all of a group would."""
    found = reads(walk.scalars(stmt), FIRST)
    if stmt.combine:
        found.append(Access(stmt.buffer, stmt.index, False, FIRST))
    return [*found, Access(stmt.buffer, stmt.index, True, FIRST)]


# A vector loop's width and bound, by its id.
Widths = Mapping[int, tuple[int, int | None]]


def accesses(body: Iterable[Stmt], widths: Widths) -> list[Access]:
    """All that statements touch."""
    found: list[Access] = []
    for stmt in body:
        if isinstance(stmt, Store):
            found += store(stmt)
            continue
        found += reads(walk.scalars(stmt))
        if isinstance(stmt, Loop) and stmt.kind == "vector":
            found += lanes(stmt, *widths[id(stmt)])
        elif isinstance(stmt, Loop):
            found += accesses(stmt.body, widths) + reads(carry.next for carry in stmt.carries)
    return found


def lanes(loop: Loop, width: int, most: int | None) -> list[Access]:
    """What a vector loop's lanes touch."""
    inside = accesses(loop.body, {}) + reads(carry.next for carry in loop.carries)
    lets: dict[str, Size] = {loop.var: Dim.var(LANE)}
    for stmt in walk.statements(loop.body):
        if isinstance(stmt, Let) and isinstance(stmt.value, IndexValue):
            lets[stmt.name] = substitute(stmt.value.index, lets)
    return [
        replaced(a, index=substitute(a.index, lets), width=width, most=most) for a in inside
    ]


def locals_of(body: Iterable[Stmt]) -> list[Local]:
    """The Locals of a stage."""
    return [stmt for stmt in walk.statements(body) if isinstance(stmt, Local)]
