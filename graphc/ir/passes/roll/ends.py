"""The steps at the ends of a loop, whose nodes are not where those of the others are.

A first step's nodes stand among what it alone needs (projections that all steps read); a last one
lacks what no further step reads; a sum over the steps begins with its first addend. Where steps
begin is not known either: it was chosen in the middle, by what is carried least. So nodes that do
in further steps what a step's nodes do are looked for one by one, from what the loop's ends read
and from who reads them. Which steps each node of a step was found in says where a user's steps
begin and end: as many nodes as possible have to be there in all of them. What a first step lacks of
a sum is -0.0 (x + -0.0 is x, for -0.0 too); what a last step lacks is computed for nothing.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import NamedTuple

import numpy as np

from ...graph import Node
from ...types import TensorType, TupleType
from .order import Numbers, Order
from .steps import NEUTRAL, NONE, ROW, SAME, STEP, Loop, Operand

# What may be computed for nothing: it cannot fail, whatever its numbers are.
_HARMLESS = frozenset({
    "unary", "binary", "compare", "ternary", "cast", "reduce", "arg_reduce", "movement", "contract",
    "cumulative", "create", "structure",
})


def with_ends(order: Order, loop: Loop, taken: set[int]) -> Loop:
    """The loop with further steps, or other ones, if they have more of its nodes than it has.
    `taken` are places of nodes that are in loops."""
    found = _Ends(order, loop, taken)
    found.run()
    if not found.known:
        return loop
    best, nodes = loop, sum(len(loop.places) for x in loop.operands if x is not None)
    for shifts in (found.shifts(), dict.fromkeys(found.offsets, 0)):
        grown = None if shifts is None else _Table(found, shifts).loop()
        if grown is not None and int((grown.places >= 0).sum()) > nodes:
            best, nodes = grown, int((grown.places >= 0).sum())
    return best


class _Reader(NamedTuple):
    offset: int
    number: int  # of its operand
    back: int


class _Ends:
    """What a step's nodes are in steps before the first (-1, -2, ...) and behind the last."""

    def __init__(self, order: Order, loop: Loop, taken: set[int]) -> None:
        self.order, self.loop, self.taken = order, loop, taken
        self.middle = loop.step.tolist()
        self.inputs = loop.reads[loop.count // 2].tolist()  # what the middle step reads
        self.offsets = [i for i, x in enumerate(loop.operands) if x is not None]
        self.readers: dict[int, list[_Reader]] = {i: [] for i in self.offsets}
        for i in self.offsets:
            for number, operand in enumerate(self.operands(i)):
                if operand.kind == STEP:
                    self.readers[operand.offset].append(_Reader(i, number, operand.back))
        self.known: dict[tuple[int, int], int] = {}  # offset and step -> place
        self.met: set[tuple[int, int]] = set()  # offset and place
        self.given: dict[tuple[int, int], int] = {}  # what is read in the place of such a node
        # A sum that is its only addend in that step: which of its operands is not there.
        self.lacking: dict[tuple[int, int], int] = {}
        self.todo: deque[tuple[int, int]] = deque()  # whose readers are looked for
        self.asked: deque[tuple[int, int, int]] = deque()  # what may be a node of a further step

    def operands(self, offset: int) -> tuple[Operand, ...]:
        """Those of a step's node."""
        found = self.loop.operands[offset]
        assert found is not None
        return found

    def at(self, offset: int, step: int) -> int | None:
        """The place of a step's node."""
        if 0 <= step < self.loop.count:
            return int(self.loop.places[step, offset])
        return self.known.get((offset, step))

    def read(self, place: int) -> list[int]:
        """The places of what a node reads."""
        first = self.order.first
        found: list[int] = self.order.reads[first[place] : first[place + 1]].tolist()
        return found

    def run(self) -> None:
        """Look as far as there is something to be found."""
        count = self.loop.count
        for i in self.offsets:
            for operand in self.operands(i):
                if operand.kind == STEP:
                    for step in range(min(operand.back, count)):
                        place = int(self.loop.reads[step, operand.slot])
                        self.asked.append((operand.offset, step - operand.back, place))
            most = max((reader.back for reader in self.readers[i]), default=0)
            self.todo += [(i, step) for step in range(max(count - most, 0), count)]
        waiting: list[tuple[int, int]] = []
        while self.asked or self.todo:
            if self.asked:
                offset, step, place = self.asked.popleft()
                if not self.take(offset, step, place) and (offset, step) not in self.given:
                    self.given[offset, step] = place
                    self.todo.append((offset, step))
                continue
            offset, step = self.todo.popleft()
            if not self._readers(offset, step):
                waiting.append((offset, step))
            if not self.todo and waiting:
                before = len(self.known)
                waiting = [x for x in waiting if not self._readers(*x)]
                if len(self.known) == before:
                    waiting = []

    def take(self, offset: int, step: int, place: int) -> bool:
        """Whether this node does in this step what a step's node does; it is kept if so."""
        if 0 <= step < self.loop.count or (offset, step) in self.known:
            return self.at(offset, step) == place
        if (offset, place) in self.met:  # in one step alone
            return False
        if self._is(offset, step, place):
            self.met.add((offset, place))
            self.known[offset, step] = place
            for operand, given in zip(self.operands(offset), self.read(place), strict=True):
                if operand.kind == STEP:
                    self.asked.append((operand.offset, step - operand.back, given))
        elif not self._lacks(offset, step, place):
            return False
        self.todo.append((offset, step))
        return True

    def _is(self, offset: int, step: int, place: int) -> bool:
        order = self.order
        if place in self.taken or order.exact[place] != order.exact[self.middle[offset]]:
            return False
        for operand, given in zip(self.operands(offset), self.read(place), strict=True):
            usual = self.inputs[operand.slot]
            if operand.kind == SAME and given != usual:
                return False
            if order.nodes[given].type != order.nodes[usual].type:
                return False
            if operand.kind == STEP:
                known = self.at(operand.offset, step - operand.back)
                if known is not None and known != given:
                    return False
        return True

    def _lacks(self, offset: int, step: int, place: int) -> bool:
        """Whether a node is a sum's only addend."""
        node = self.order.nodes[self.middle[offset]]
        if step > 0 or node.op.name != "add" or node.dtype.kind not in ("float", "int"):
            return False
        if any(x.type != node.type for x in (*node.inputs, self.order.nodes[place])):
            return False
        one, other = self.operands(offset)
        for number, absent, given in ((0, one, other), (1, other, one)):
            if absent.kind != STEP or (given.kind == STEP and given.back):
                continue
            if given.kind == ROW or (given.kind == STEP and self.take(given.offset, step, place)):
                self.met.add((offset, place))
                self.known[offset, step] = place
                self.lacking[offset, step] = number
                return True
        return False

    def _readers(self, offset: int, step: int) -> bool:
        """Find what reads a node; whether there is nothing left to find."""
        place = self.at(offset, step)
        if place is None:
            place = self.given[offset, step]
        done = True
        for reader in self.readers[offset]:
            there = reader.offset, step + reader.back
            if 0 <= there[1] < self.loop.count or there in self.known:
                continue
            label = self.order.exact[self.middle[reader.offset]]
            likely = [
                x for x in self.order.readers_of(place)
                if self.order.exact[x] == label and self.read(x)[reader.number] == place
                and self._is(*there, x)
            ]
            if len(likely) == 1:
                self.take(*there, likely[0])
            done = done and len(likely) <= 1
        return done

    def shifts(self) -> dict[int, int] | None:
        """By how many steps each of a step's nodes has to be moved, for as many of them as possible
        to be there in the same steps; None if there is no such way."""
        low, count = {}, {}
        for i in self.offsets:
            begin, end = 0, self.loop.count
            while (i, begin - 1) in self.known:
                begin -= 1
            while (i, end) in self.known:
                end += 1
            low[i], count[i] = begin, end - begin
        usual = max(Counter(count.values()).items(), key=lambda item: (item[1], item[0]))[0]
        first = Counter(low[i] for i in self.offsets if count[i] == usual).most_common(1)[0][0]
        shifts = {i: first - low[i] for i in self.offsets}
        for _ in range(len(self.offsets)):  # nothing is read before it is there
            changed = False
            for j in self.offsets:
                for reader in self.readers[j]:
                    if shifts[reader.offset] < shifts[j] - reader.back:
                        shifts[reader.offset] = shifts[j] - reader.back
                        changed = True
            if not changed:
                return shifts
        return None


class _Table:
    """All steps of a loop with its ends, where a step's nodes are moved by `shifts` steps."""

    def __init__(self, ends: _Ends, shifts: dict[int, int]) -> None:
        self.ends, self.order, self.shifts = ends, ends.order, shifts
        self.offsets = sorted(ends.offsets, key=lambda i: (-shifts[i], i))
        number = {offset: i for i, offset in enumerate(self.offsets)}
        steps = [s + shifts[i] for i, s in ends.known]
        count = ends.loop.count
        self.low = min([*steps, *shifts.values()])
        self.high = max([step + 1 for step in steps] + [count + x for x in shifts.values()])
        self.places: Numbers = self._empty(len(self.offsets))
        columns: list[Numbers] = []
        self.readers: list[int] = []  # for each slot, the number of the node that has it
        self.operands: list[tuple[Operand, ...]] = []
        for i, offset in enumerate(self.offsets):
            here = slice(shifts[offset] - self.low, shifts[offset] - self.low + count)
            self.places[here, i] = ends.loop.places[:, offset]
            found: list[Operand] = []
            for operand in ends.operands(offset):
                column = self._empty(1)[:, 0]
                column[here] = ends.loop.reads[:, operand.slot]
                slot = len(columns)
                columns.append(column)
                self.readers.append(i)
                if operand.kind == STEP:
                    back = operand.back + shifts[offset] - shifts[operand.offset]
                    found.append(Operand(STEP, slot, number[operand.offset], back))
                else:
                    found.append(Operand(operand.kind, slot))
            self.operands.append(tuple(found))
        self.reads: Numbers = np.stack(columns, 1) if columns else self._empty(0)
        self._further(number)

    def _empty(self, width: int) -> Numbers:
        return np.full((self.high - self.low, width), NONE, np.int64)

    def _further(self, number: dict[int, int]) -> None:
        for (offset, step), place in self.ends.known.items():
            i, row = number[offset], step + self.shifts[offset] - self.low
            self.places[row, i] = place
            lacking = self.ends.lacking.get((offset, step))
            given = self.ends.read(place) if lacking is None else [place, place]
            for k, operand in enumerate(self.operands[i]):
                self.reads[row, operand.slot] = NEUTRAL if k == lacking else given[k]

    # --- which steps there are ----------------------------------------------------------------

    def loop(self) -> Loop | None:
        """The steps around the middle that are all alike, if they can be a loop."""
        inner, first = self._alike()
        middle = self.ends.loop.count // 2 - self.low
        low, high = middle, middle + 1
        while low > 0 and inner[low] and first[low - 1]:
            low -= 1
        while high < len(inner) and inner[high] and first[high]:
            high += 1
        if not first[middle] or not self._begins(low) or not self._outside(low, high):
            return None
        for (offset, step) in self.ends.lacking:  # no node stands for such a sum
            row = step + self.shifts[offset] - self.low
            self.places[row, self.offsets.index(offset)] = NONE
        found = Loop(self.places[low:high], self.reads[low:high], tuple(self.operands))
        return found if (found.step != NONE).all() else None

    def _alike(self) -> tuple[np.ndarray[tuple[int, ...], np.dtype[np.bool_]], ...]:
        """Which steps can be in a loop: at all (but for the first one), as its first one."""
        unread = self.places[:, self.readers] == NONE
        harmless = np.array([self._harmless(offset) for offset in self.offsets], np.bool_)
        first = ((self.places != NONE) | harmless).all(1)
        inner = np.ones(len(first), np.bool_)
        for operands in self.operands:
            for operand in operands:
                if operand.kind != STEP:
                    continue
                back, given = operand.back, self.reads[:, operand.slot]
                rows = len(given)
                there = np.full(rows, NONE, np.int64)
                there[back:] = self.places[: max(rows - back, 0), operand.offset]
                fits = (given == there) & (given != NONE) | unread[:, operand.slot]
                fits[:back] = True  # what it begins with
                if back:
                    inner &= fits
                else:
                    first &= fits
        return inner, first

    def _harmless(self, offset: int) -> bool:
        """Whether a step's node may be computed where nobody asked for it."""
        node = self.order.nodes[self.ends.middle[offset]]
        if node.op.family == "composite":
            return all(_is_float(x) for x in node.inputs)
        return node.op.family in _HARMLESS and not node.graphs and not (
            node.op.divides and not _is_float(node)
        )

    def _begins(self, low: int) -> bool:
        """Whether what the first steps read of steps before them is of the right type. What is
        computed for nothing may begin with anything."""
        nodes = self.order.nodes
        given: dict[tuple[int, int], int] = {}  # step and node of the step before -> what it is
        unknown: list[tuple[int, int, int, int]] = []
        for i, operands in enumerate(self.operands):
            for operand in operands:
                if operand.kind != STEP or not operand.back:
                    continue
                wanted = nodes[self.ends.middle[self.offsets[operand.offset]]].type
                if not isinstance(wanted, TensorType):
                    return False
                for row in range(low, min(low + operand.back, len(self.reads))):
                    place = int(self.reads[row, operand.slot])
                    key = row - operand.back, operand.offset
                    if self.places[row, i] == NONE:
                        unknown.append((row, operand.slot, *key))
                    elif place >= 0 and nodes[place].type != wanted:
                        return False
                    else:
                        given.setdefault(key, place)
        for row, slot, *key_ in unknown:
            self.reads[row, slot] = given.get((key_[0], key_[1]), NEUTRAL)
        return True

    def _outside(self, low: int, high: int) -> bool:
        """Whether what is read from outside is outside, and several results are not read there."""
        inside = np.zeros(len(self.order.nodes), np.bool_)
        members = self.places[low:high]
        for (offset, step) in self.ends.lacking:
            row = step + self.shifts[offset] - self.low - low
            if 0 <= row < len(members):
                members = members.copy()
                members[row, self.offsets.index(offset)] = NONE
        inside[members[members >= 0]] = True
        for operands in self.operands:
            for operand in operands:
                rows = self.reads[low : low + operand.back if operand.kind == STEP else high]
                given = rows[:, operand.slot]
                if inside[given[given >= 0]].any():
                    return False
        left = inside[self.order.reads] & ~inside[self.order.readers]
        nodes = self.order.nodes
        return not any(
            isinstance(nodes[i].type, TupleType) for i in np.unique(self.order.reads[left])
        )


def _is_float(node: Node) -> bool:
    return isinstance(node.type, TensorType) and node.type.dtype.kind == "float"
