"""Launches of one kernel that do not wait for each other, side by side: for a machine on which a
launch costs more than what many of them do (updates of parameters, casts, counters).

Two steps depend on each other where they touch the same bytes and one of them writes. Buffers of
the arena lie where offsets and sizes say, and where these are symbolic, those meet of which it is
not seen that they never do (`ruler.py`); others are apart, but an output that is written in place
is its input (an input that is written shares memory with no other: whoever calls sees to it).
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ...dim import Dim, Size, substitute, unwrap
from ...kernel import BufferRef, Kernel, Launch, Program, ProgramStep
from .ruler import Rows, Ruler
from .step import has_check

Batch = tuple[ProgramStep, ...]  # one step, or Launches of one kernel that are independent


def together(program: Program, dims: Mapping[str, int]) -> list[Batch]:
    """The steps of a program in an order that keeps their dependencies, with launches of one kernel
    gathered: for these dims, or for any where they are not given. All steps but launches stay where
    they are, and launches whose places depend on where a loop ended; no step that writes what the
    user sees comes before one that can fail."""
    found: list[Batch] = []
    stretch: list[Launch] = []
    known = {*dims, *program.dims}
    for step in program.steps:
        if isinstance(step, Launch) and _names(step) <= known:
            stretch.append(step)
        else:
            found += [*_gathered(program, stretch, dims), (step,)]
            stretch = []
    return found + _gathered(program, stretch, dims)


def _names(step: Launch) -> frozenset[str]:
    """The variables of its sizes and places."""
    sizes = (*(ref.offset for ref in step.buffers), *step.dims)
    return frozenset().union(*(size.variables() for size in sizes if isinstance(size, Dim)))


class _Span(NamedTuple):
    """Bytes that a step touches."""

    start: Size
    stop: Size
    written: bool


def _spans(
    program: Program, step: Launch, dims: Mapping[str, int]
) -> Iterable[tuple[tuple[str, int], _Span]]:
    """What a launch touches, by the memory that it is in."""
    sizes = dict(zip(step.kernel.dims, step.dims, strict=True))
    for ref, param in zip(step.buffers, step.kernel.params, strict=True):
        start = unwrap(substitute(ref.offset, dims))
        elements = substitute(substitute(param.size, sizes), dims)
        stop = unwrap(start + elements * param.dtype.itemsize)
        yield _memory(program, ref), _Span(start, stop, param.access != "in")


def _memory(program: Program, ref: BufferRef) -> tuple[str, int]:
    if ref.space == "output" and ref.index in program.outputs_in_place:
        return "input", program.outputs_in_place[ref.index]
    return ref.space, ref.index


class _Touched:
    """What the steps so far touch of one memory."""

    def __init__(self, ruler: Ruler) -> None:
        self.ruler = ruler
        width = len(ruler.row(0))
        self.starts, self.stops = (np.empty((16, width)) for _ in range(2))
        self.written, self.steps = np.empty(16, bool), np.empty(16, np.int64)
        self.count = 0

    def before(self, span: _Span) -> Iterable[int]:
        """The steps that one which touches this has to wait for."""
        start, stop = self.ruler.row(span.start), self.ruler.row(span.stop)
        here = slice(self.count)
        apart = self._none_less(start - self.stops[here]) | self._none_less(
            self.starts[here] - stop
        )
        meet = ~apart if span.written else ~apart & self.written[here]
        found: list[int] = self.steps[here][meet].tolist()
        return found

    def _none_less(self, rows: Rows) -> Rows:
        found: Rows = self.ruler.least(rows) >= 0
        return found

    def add(self, span: _Span, step: int) -> None:
        if self.count == len(self.steps):
            for name in ("starts", "stops", "written", "steps"):
                old = getattr(self, name)
                setattr(self, name, np.concatenate((old, np.empty_like(old))))
        self.starts[self.count] = self.ruler.row(span.start)
        self.stops[self.count] = self.ruler.row(span.stop)
        self.written[self.count], self.steps[self.count] = span.written, step
        self.count += 1


def _needs(
    program: Program, steps: Sequence[Launch], dims: Mapping[str, int]
) -> list[set[int]]:
    """Of each launch, those that have to run before it."""
    touched = [list(_spans(program, step, dims)) for step in steps]
    ruler = Ruler(size for spans in touched for _, span in spans for size in span[:2])
    memories: defaultdict[tuple[str, int], _Touched] = defaultdict(lambda: _Touched(ruler))
    found: list[set[int]] = []
    failing: list[int] = []
    for number, (step, spans) in enumerate(zip(steps, touched, strict=True)):
        needs = {i for memory, span in spans for i in memories[memory].before(span)}
        if any(_is_seen(memory) and span.written for memory, span in spans):
            needs.update(failing)
        if has_check(step.kernel):
            failing.append(number)
        found.append(needs)
        for memory, span in spans:
            memories[memory].add(span, number)
    return found


def _is_seen(memory: tuple[str, int]) -> bool:
    """Whether a caller sees what a call that fails has written there."""
    return memory[0] == "input"


def _batchable(kernel: Kernel) -> bool:
    """Not what may fail, which is reported with the place of its step."""
    return kernel.template is None and not has_check(kernel)


def _groups(steps: Sequence[Launch], needs: Sequence[set[int]]) -> list[Hashable]:
    """Of each launch, which it may run with: those of its kernel that come after as many others of
    it, for these do not wait for each other."""
    above: list[int] = []  # all that come before, as bits
    mine: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)  # (launch, how many before)
    suits = {id(step.kernel): _batchable(step.kernel) for step in steps}
    found: list[Hashable] = []
    for number, step in enumerate(steps):
        bits = 0
        for i in needs[number]:
            bits |= above[i] | 1 << i
        above.append(bits)
        kernel = id(step.kernel)
        depth = 1 + max((d for i, d in mine[kernel] if bits >> i & 1), default=-1)
        mine[kernel].append((number, depth))
        found.append((kernel, depth) if suits[kernel] else number)
    return found


def _gathered(
    program: Program, steps: Sequence[Launch], dims: Mapping[str, int]
) -> list[Batch]:
    needs = _needs(program, steps, dims)
    batches = _ordered(needs, _groups(steps, needs))
    return [tuple(steps[i] for i in batch) for batch in batches]


def _ordered(needs: Sequence[set[int]], groups: Sequence[Hashable]) -> Iterable[Sequence[int]]:
    """Batches in order. A group waits until all of it may run; where all wait, the largest part of
    one goes."""
    users: list[list[int]] = [[] for _ in needs]
    for number, sources in enumerate(needs):
        for i in sources:
            users[i].append(number)
    missing = [len(sources) for sources in needs]
    left = Counter(groups)
    waiting: defaultdict[Hashable, list[int]] = defaultdict(list)
    whole: list[tuple[int, int, Hashable]] = []  # groups that may run, by their first launch

    def offer(number: int) -> None:
        group = groups[number]
        waiting[group].append(number)
        if len(waiting[group]) == left[group]:
            heapq.heappush(whole, (min(waiting[group]), id(group), group))

    for number, count in enumerate(missing):
        if not count:
            offer(number)
    while waiting:
        if whole:
            group = heapq.heappop(whole)[-1]
        else:
            group = max(waiting, key=lambda g: (len(waiting[g]), -min(waiting[g])))
        batch = sorted(waiting.pop(group))
        left[group] -= len(batch)
        yield batch
        for number in batch:
            for user in users[number]:
                missing[user] -= 1
                if not missing[user]:
                    offer(user)
