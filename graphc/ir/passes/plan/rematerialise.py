"""Less memory for more work: values that are not needed for a while are let go and computed again.

It works on the steps in their order: where too much lives at once, a value that is there only to be
read later is dropped, and the kernel that made it runs once more right before that reader, on what
it ran on before (Chen et al. 2016, arXiv:1604.06174, had the idea for layers; choosing one value
after the other where the memory is fullest is that of XLA's HloRematerialization). The same kernel
on the same operands gives the same bits.

Chosen is what gives the most bytes back for its work, whatever has to run again with it included.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import NamedTuple

from ...machine import Machine
from ...record import record, replaced
from .arena import assign_offsets
from .step import Step, Storage

_CHAIN = 48  # steps that may run again for the sake of one value
_TRIED = 6  # choices that are looked at closely
_PLACES = 6  # of the fullest steps, where something to drop is looked for
_SMALL = 8  # a value is kept for another one's sake that is so many times larger
_STEP = 16  # the part of it by which the arena is to shrink at a time
_LONGER = 3  # times as many steps as there were, at most


@record
class Room:
    """How many bytes the arena may have, and what it costs to run a step once more."""

    bytes: int
    work: Callable[[Step], int]


def rematerialise(order: list[Step], room: Room, machine: Machine) -> list[Step]:
    """An order whose arena has room: with steps that run again, as few as are found to be enough.
    Where that is not to be had, the one that takes least of those that were tried."""
    size = assign_offsets(order, machine)
    if not isinstance(size, int) or size <= room.bytes:
        return order  # of a symbolic size, or there is room
    tried = _Tried(order, size)
    _descend(order, room.bytes, room.bytes, room, machine, tried)
    if tried.least > room.bytes:
        # a little less at a time, whatever the room: so the least that is found is found again
        _descend(order, size - size // _STEP, 0, room, machine, tried)
    return tried.order


class _Tried:
    """The order that takes least so far."""

    def __init__(self, order: list[Step], least: int) -> None:
        self.order, self.least = order, least


def _descend(
    order: list[Step], target: int, floor: int, room: Room, machine: Machine, tried: _Tried
) -> None:
    """Make do with `target` bytes, then with less, until the arena fits or nothing is left.
    `floor`: at least so many, unless the arena does not pack well."""
    longest = _LONGER * len(order)
    while True:
        found = _within(order, target, room.work, machine.alignment, longest)
        if found is order:
            return
        order = found
        size = assign_offsets(order, machine)
        assert isinstance(size, int)
        if size < tried.least:
            tried.order, tried.least = order, size
        if size <= room.bytes:
            return
        target = min(target - max(target // _STEP, 1), max(floor, size - size // _STEP))


def _within(
    order: list[Step], target: int, work: Callable[[Step], int], alignment: int, longest: int
) -> list[Step]:
    """An order in which at most `target` bytes live at any step, or nothing more is found."""
    present = _Timeline(order, alignment)
    while present.most > target and len(present.order) < longest:
        better = _better(present, target, work)
        if better is None:
            break
        present = better
    return present.order


def _better(present: _Timeline, target: int, work: Callable[[Step], int]) -> _Timeline | None:
    """The timeline with one more value dropped and computed again."""
    excess = present.excess(target)
    for place in present.fullest(target):
        choices = sorted(
            (c for c in present.choices(place, work) if c.saved > 0),
            key=lambda choice: -choice.saved / choice.work,
        )
        for choice in choices[:_TRIED]:
            changed = _Timeline(present.with_again(choice), present.alignment)
            if changed.excess(target) < excess:
                return changed
    return None


class Choice(NamedTuple):
    """Steps that run again right before step `before`; `saved`: bytes at the place in question."""

    again: tuple[Step, ...]
    before: int
    saved: int
    work: int


class _Timeline:
    """Who lives when, in one order of the steps."""

    def __init__(self, order: list[Step], alignment: int) -> None:
        self.order, self.alignment = order, alignment
        self.number = {step: i for i, step in enumerate(order)}
        self.writer: dict[Storage, int] = {}
        self.uses: dict[Storage, list[int]] = {}  # where each block is touched, in order
        self.fixed: set[Storage] = set()  # blocks that a loop or a branch reads, by its own names
        self.written: dict[int, int] = {}  # inputs, by where they are written first
        self.again: set[Storage] = set()  # blocks that a loop has written another value into
        for i, step in enumerate(order):
            self._note(i, step)
        self.live = self._sums()
        self.most = max(self.live, default=0)

    def _note(self, i: int, step: Step) -> None:
        for storage in (*step.writes, *step.scratch, *step.reads):
            block = storage.block
            if block.space == "arena" and block.elements != 0:
                places = self.uses.setdefault(block, [])
                if not places or places[-1] != i:
                    places.append(i)
                if step.inside is not None:
                    self.fixed.add(block)
        for storage in step.writes:
            block = storage.block
            if block.space == "input":
                self.written.setdefault(block.index, i)
            if self.writer.setdefault(block, i) != i:
                self.again.add(block)

    def _sums(self) -> list[int]:
        change = [0] * (len(self.order) + 1)
        for block, places in self.uses.items():
            size = self.bytes(block)
            change[places[0]] += size
            change[places[-1] + 1] -= size
        found, total = [], 0
        for each in change[:-1]:
            total += each
            found.append(total)
        return found

    def bytes(self, block: Storage) -> int:
        assert isinstance(block.size, int)
        return -(-block.size // self.alignment) * self.alignment

    def excess(self, target: int) -> int:
        """By how much the steps together take too much."""
        return sum(each - target for each in self.live if each > target)

    def fullest(self, target: int) -> list[int]:
        """Steps at which too much lives, the worst first, none beside another one."""
        over = [i for i, each in enumerate(self.live) if each > target]
        over.sort(key=lambda i: -self.live[i])
        found: list[int] = []
        for i in over:
            if len(found) < _PLACES and all(abs(i - other) > 1 for other in found):
                found.append(i)
        return found

    # --- what may be dropped --------------------------------------------------------------------

    def choices(self, place: int, work: Callable[[Step], int]) -> list[Choice]:
        """What could be dropped across step `place`."""
        found: list[Choice] = []
        for block, places in self.uses.items():
            at = bisect_left(places, place)
            if at == 0 or at == len(places) or places[at] == place:
                continue
            if block in self.fixed:
                continue
            choice = self._choice(block, place, places[at], work)
            if choice is not None:
                found.append(choice)
        return found

    def _choice(
        self, block: Storage, place: int, before: int, work: Callable[[Step], int]
    ) -> Choice | None:
        chain = _Chain(self, place, before)
        if not chain.add(block):
            return None
        steps = tuple(sorted(chain.steps, key=self.number.__getitem__))
        dropped = {x.block for step in steps for x in step.writes} & self.uses.keys()
        crossing = sum(
            self.bytes(x) for x in dropped if x not in self.fixed and self.idle(x, place, before)
        )
        return Choice(
            steps, before, crossing - chain.kept, max(1, sum(work(step) for step in steps))
        )

    def idle(self, block: Storage, place: int, before: int) -> bool:
        """Whether a block lives at `place` only for what comes from `before` on."""
        places = self.uses[block]
        at = bisect_left(places, place)
        return 0 < at < len(places) and places[at] >= before

    # --- another order --------------------------------------------------------------------------

    def with_again(self, choice: Choice) -> list[Step]:
        """The order in which a choice is made."""
        new: dict[Storage, Storage] = {}
        clones = [_clone(step, new) for step in choice.again]
        behind = [self._reading(step, new) for step in self.order[choice.before :]]
        return [*self.order[: choice.before], *clones, *behind]

    def _reading(self, step: Step, new: dict[Storage, Storage]) -> Step:
        """A step on the values that were computed again."""
        if step.inside is not None or not any(x.block in new for x in step.reads):
            return step
        return replaced(step, reads=[_moved(x, new) for x in step.reads])


class _Chain:
    """The steps that have to run again before step `before` to have a value there that is not kept
    at `place`; `kept`: bytes that live at `place` for their sake alone."""

    def __init__(self, timeline: _Timeline, place: int, before: int) -> None:
        self.timeline, self.place, self.before = timeline, place, before
        self.steps: dict[Step, None] = {}
        self.kept = 0
        self._held: set[Storage] = set()

    def add(self, block: Storage) -> bool:
        """Whether it can be made again."""
        timeline = self.timeline
        number = timeline.writer.get(block)
        if number is None or block in timeline.again:
            return False
        step = timeline.order[number]
        if step in self.steps:
            return True
        if len(self.steps) >= _CHAIN or not _repeatable(step):
            return False
        self.steps[step] = None
        return all(self._there(x.block, block) for x in step.reads)

    def _there(self, block: Storage, wanted: Storage) -> bool:
        """Sees to it that an operand is there when the steps run."""
        timeline = self.timeline
        if block.space == "input":
            return timeline.written.get(block.index, self.before) >= self.before
        if block.space != "arena" or block.elements == 0 or block in self._held:
            return True
        if timeline.uses[block][-1] >= self.place:  # it lives there anyway, maybe a little longer
            return True
        size = timeline.bytes(block)
        if size * _SMALL > timeline.bytes(wanted) and self.add(block):
            return True
        self._held.add(block)
        self.kept += size
        return True


def _repeatable(step: Step) -> bool:
    """Whether a step may run once more: a kernel that fails nowhere, and gives what it gave."""
    return (
        step.lowered is not None and not (step.can_fail or step.visible or step.last)
        and not step.pairs
        and all(x.space == "arena" and x.whole is None for x in step.writes)
    )


def _clone(step: Step, new: dict[Storage, Storage]) -> Step:
    """The step once more, with results of its own."""
    reads = [_moved(x, new) for x in step.reads]
    clone = replaced(
        step, reads=reads, writes=[Storage(x.dtype, x.elements) for x in step.writes],
        scratch=[Storage(x.dtype, x.elements) for x in step.scratch], after=set(), pairs=[],
    )
    for old, made in zip(step.writes, clone.writes, strict=True):
        made.writer = clone
        new[old] = made
    return clone


def _moved(storage: Storage, new: dict[Storage, Storage]) -> Storage:
    """A value, or a part of one, where it was computed again."""
    if storage.whole is None:
        return new.get(storage, storage)
    whole = new.get(storage.whole)
    return storage if whole is None else replaced(storage, whole=whole)
