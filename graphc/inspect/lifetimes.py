"""Who lives where in a program's arena, and from which step to which."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from graphc.inspect.touched import Span, covered, known, touched
from graphc.ir.dim import Dim, as_dim
from graphc.ir.kernel import Branch, BufferRef, Leaf, Program, ProgramStep, Repeat

_UNKNOWN = 2  # assumed iterations of a loop whose count only the data knows


@dataclass
class Lifetime:
    """A stretch of the arena, in bytes, that holds a value from the step `first`, which writes it,
    to the step `last`, which reads it for the last time. `maker`: the first."""

    start: int
    stop: int
    first: int
    last: int
    maker: Leaf

    @property
    def size(self) -> int:
        """Bytes."""
        return self.stop - self.start


class _Place(NamedTuple):
    """A leaf, and the loops around it: (variable, iterations), the outermost first; `body`: the
    steps of the outermost one, first and last."""

    step: Leaf
    loops: tuple[tuple[str, int], ...]
    body: tuple[int, int] | None


def lifetimes(program: Program, dims: Mapping[str, int]) -> list[Lifetime]:
    """In the order in which they begin. Steps are numbered as `leaves` has them. What a loop makes
    in one iteration and reads in another lives as long as the loop; what it fills row by row, too,
    and has the size of all rows."""
    found: list[Lifetime] = []
    open_: list[Lifetime] = []
    for number, place in enumerate(_places(program.steps, dims)):
        for (start, stop), access, moves in sorted(_in_arena(place, dims), key=_reads_first):
            if start >= stop:
                continue
            first, last = place.body if moves and place.body else (number, number)
            if access in ("in", "inout"):
                meant = [each for each in open_ if each.start < stop and start < each.stop]
                if not meant:  # of the iteration before
                    meant = [Lifetime(start, stop, *(place.body or (number, number)), place.step)]
                    open_ += meant
                    found += meant
                for each in meant:
                    before = place.body is not None and each.first < place.body[0]
                    until = place.body[1] if before and place.body else last
                    each.last = max(each.last, until)
            elif not (moves and _extends(open_, start, stop, last)):
                open_ = [each for each in open_ if each.stop <= start or stop <= each.start]
                open_.append(Lifetime(start, stop, first, last, place.step))
                found.append(open_[-1])
    return sorted(found, key=lambda each: (each.first, each.start))


def live(found: Sequence[Lifetime], steps: int) -> list[int]:
    """Bytes that are in use at each step."""
    changes: list[list[tuple[int, int]]] = [[] for _ in range(steps)]
    for each in found:
        for step in range(each.first, each.last + 1):
            changes[step].append((each.start, each.stop))
    return [covered(spans) for spans in changes]


def _extends(open_: list[Lifetime], start: int, stop: int, last: int) -> bool:
    """Whether a row is written into a value that is there already, which then lives on."""
    for each in open_:
        if each.start <= start and stop <= each.stop:
            each.last = max(each.last, last)
            return True
    return False


def _reads_first(touch: tuple[Span, str, bool]) -> bool:
    return touch[1] in ("out", "scratch")


def _places(
    steps: Sequence[ProgramStep], dims: Mapping[str, int],
    loops: tuple[tuple[str, int], ...] = (), body: tuple[int, int] | None = None, first: int = 0,
) -> Iterator[_Place]:
    """Every leaf, with the loops around it."""
    for step in steps:
        count = _leaves(step)
        if isinstance(step, Repeat):
            around = body or (first, first + count - 1)
            inside = (*loops, (step.var, _iterations(step, dims)))
            yield from _places((*step.test, *step.steps), dims, inside, around, first)
        elif isinstance(step, Branch):
            yield from _places((*step.then, *step.otherwise), dims, loops, body, first)
        else:
            yield _Place(step, loops, body)
        first += count


def _leaves(step: ProgramStep) -> int:
    if isinstance(step, Repeat):
        return sum(map(_leaves, (*step.test, *step.steps)))
    if isinstance(step, Branch):
        return sum(map(_leaves, (*step.then, *step.otherwise)))
    return 1


def _iterations(step: Repeat, dims: Mapping[str, int]) -> int:
    if step.count is None or as_dim(step.count).variables() - dims.keys():
        return _UNKNOWN
    return max(known(step.count, dims), 1)


def _in_arena(
    place: _Place, dims: Mapping[str, int]
) -> Iterator[tuple[Span, str, bool]]:
    """The stretches of the arena that a step touches, how, and whether they are others in other
    iterations: then all of them together."""
    for ref, size, access in touched(place.step, dims):
        yield from _span(ref, size, access, place, dims)


def _span(
    ref: BufferRef, size: int, access: str, place: _Place, dims: Mapping[str, int]
) -> Iterator[tuple[Span, str, bool]]:
    if ref.space != "arena" or not size:
        return
    variables = ref.offset.variables() if isinstance(ref.offset, Dim) else frozenset()
    moving = [(name, count) for name, count in place.loops if name in variables]
    # offsets grow with a loop's number, or are taken in turns: the ends and their neighbours do
    turns = [sorted({0, min(1, count - 1), count - 1}) for _, count in moving]
    starts = [
        known(ref.offset, {**dims, **dict(zip((name for name, _ in moving), at, strict=True))})
        for at in itertools.product(*turns)
    ]
    yield (min(starts), max(starts) + size), access, len(set(starts)) > 1
