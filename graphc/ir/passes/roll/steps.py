"""Whether a stretch of equal labels is a loop: what each operand of each step is.

Compared exactly, for every operand of every step: it is the same node in all steps; or a node of
this step or of one before, at the same distance; or one of a row of nodes from before the loop.
"""

from __future__ import annotations

import numpy as np

from ...dim import evaluate
from ...graph import Node
from ...record import record, replaced
from ...types import TensorType
from .order import VARYING, Numbers, Order
from .periods import Stretch

SAME, STEP, ROW = 0, 1, 2  # what an operand is
NONE, NEUTRAL = -1, -2  # in the place of a node: there is none; a sum without it is the same


@record
class Operand:
    """An operand in all steps. STEP: it is node `offset` of the step `back` steps before."""

    kind: int
    slot: int  # its column in `Loop.reads`
    offset: int = 0
    back: int = 0


@record(eq=False)
class Loop:
    """Steps of the same nodes.

    `places[step, i]` is the place of a step's node i, or NONE: a first or last step may lack nodes
    (`ends.py`). `reads[step, slot]` are the places of what is read; what a first step lacks there
    is NEUTRAL to the sum that reads it. `operands[i]` are the operands of a step's node i, None for
    a node that stands for a part of something else in each step.
    """

    places: Numbers
    reads: Numbers
    operands: tuple[tuple[Operand, ...] | None, ...]

    @property
    def count(self) -> int:
        return len(self.places)

    @property
    def step(self) -> Numbers:
        """The places of a step's nodes, of which the middle one lacks none."""
        middle: Numbers = self.places[self.count // 2]
        return middle

    def cut(self, begin: int, end: int) -> Loop:
        """Only steps begin..end."""
        return replaced(self, places=self.places[begin:end], reads=self.reads[begin:end])


def loop_in(order: Order, stretch: Stretch, least: int) -> Loop | None:
    """The loop of at least `least` steps in the middle of a stretch, if there is one."""
    begin = stretch.start + _phase(order, stretch)
    count = (stretch.stop - begin) // stretch.period
    if count < max(least, 4):
        return None
    steps = _Steps(order, begin, stretch.period, count)
    bounds = steps.bounds(least)
    return None if bounds is None else steps.loop(*bounds)


class _Steps:
    """The operands of all steps beside each other."""

    def __init__(self, order: Order, begin: int, period: int, count: int) -> None:
        self.order, self.begin, self.period, self.count = order, begin, period, count
        slots = slice(order.first[begin], order.first[begin + count * period])
        self.reads = order.reads[slots].reshape(count, -1)
        readers = order.readers[slots].reshape(count, -1)
        self.readers = readers[0] - begin  # a step's node that has this slot
        self.distance = readers - self.reads
        self.middle = middle = count // 2
        same = self.reads[middle] == self.reads[middle + 1]
        moving = self.distance[middle] == self.distance[middle + 1]
        self.kinds = np.where(same, SAME, np.where(moving, STEP, ROW))
        offsets = self.readers - self.distance[middle]
        self.back = -(offsets // period)
        self.offsets = offsets % period
        exact = order.exact[begin : begin + count * period].reshape(count, period)
        self.unequal = exact != exact[middle]
        self.varying = self.unequal[middle + 1]

    def bounds(self, least: int) -> tuple[int, int] | None:
        """The first and the last (exclusive) step of the loop."""
        if not self._varying_allowed():
            return None
        fits = self._fitting()
        clean = fits.all(1) & ~self.unequal[:, ~self.varying].any(1)
        if not clean[self.middle]:
            return None
        dirty = np.flatnonzero(~clean)
        low = int(max(dirty[dirty < self.middle], default=-1)) + 1
        high = int(min(dirty[dirty > self.middle], default=self.count))
        if low and self._begins(low - 1, fits[low - 1]):
            low -= 1
        while True:
            start = self.begin + low * self.period
            outside = self.reads[low:high, self.kinds != STEP]
            latest = int(outside.max(initial=-1))
            if latest >= start:
                low = (latest - self.begin) // self.period + 1
            elif self._typed(low):
                return (low, high) if high - low >= least else None
            else:
                low += 1
            if high - low < least:
                return None

    def _varying_allowed(self) -> bool:
        nodes = self.order.nodes
        for i in np.flatnonzero(self.varying):
            if nodes[self.begin + i].op.name not in VARYING:
                return False
        return bool((self.kinds[self.varying[self.readers]] == SAME).all())

    def _fitting(self) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """Which operands are what they are in the middle."""
        fits = np.where(self.kinds == SAME, self.reads == self.reads[self.middle], True)
        moving = self.distance == self.distance[self.middle]
        return np.where(self.kinds == STEP, moving, fits)

    def _begins(self, step: int, fits: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> bool:
        """Whether a step is the first one: what it should have from the step before is from
        elsewhere."""
        if self.unequal[step, ~self.varying].any():
            return False
        start = self.begin + step * self.period
        nodes = self.order.nodes
        for slot in np.flatnonzero(~fits):
            given = int(self.reads[step, slot])
            if self.kinds[slot] != STEP or self.back[slot] != 1 or given >= start:
                return False
            if nodes[given].type != nodes[self.begin + int(self.offsets[slot])].type:
                return False
        return True

    def _typed(self, low: int) -> bool:
        """Whether what the first steps read of steps before them is of the right type: before the
        stretch, another node may be at that distance."""
        nodes = self.order.nodes
        for slot in np.flatnonzero((self.kinds == STEP) & (self.back > 0)):
            wanted = nodes[self.begin + int(self.offsets[slot])].type
            given = self.reads[low : low + int(self.back[slot]), slot].tolist()
            if any(nodes[i].type != wanted for i in given):
                return False
        return True

    def loop(self, low: int, high: int) -> Loop:
        """The steps low..high as a Loop."""
        found: list[list[Operand] | None] = [
            None if varies else [] for varies in self.varying.tolist()
        ]
        for slot, reader in enumerate(self.readers.tolist()):
            operands = found[reader]
            if operands is None:
                continue
            kind, offset = int(self.kinds[slot]), int(self.offsets[slot])
            if kind == STEP and self.varying[offset]:
                kind = ROW
            if kind == STEP:
                operands.append(Operand(STEP, slot, offset, int(self.back[slot])))
            else:
                operands.append(Operand(kind, slot))
        places = np.arange(self.begin + low * self.period, self.begin + high * self.period)
        return Loop(
            places.reshape(-1, self.period), self.reads[low:high],
            tuple(None if x is None else tuple(x) for x in found),
        )


# --- where a step begins -----------------------------------------------------------------------


def _phase(order: Order, stretch: Stretch) -> int:
    """How far into the stretch a step should begin, so that the least is carried on to the next:
    h and c, not the gates. One of the first `period` places."""
    start, period = stretch.start, stretch.period
    steps = _Steps(order, start, period, stretch.steps)
    reach: dict[int, int] = {}  # of a step's node: how far behind it it is last read
    middle = steps.distance[steps.middle].tolist()
    for kind, offset, distance in zip(
        steps.kinds.tolist(), steps.offsets.tolist(), middle, strict=True
    ):
        if kind == STEP and not steps.varying[offset]:
            reach[offset] = max(reach.get(offset, 0), distance)
    carried: Numbers = np.zeros(period, np.int64)
    for offset, distance in reach.items():
        crossed = (offset + 1 + np.arange(min(distance, period))) % period
        carried[crossed] += _bytes(order, order.nodes[start + offset])
    return int(carried.argmin())


def _bytes(order: Order, node: Node) -> int:
    if not isinstance(node.type, TensorType):
        return 1 << 40  # a step does not begin between several results and their use
    elements = evaluate(node.type.elements, order.graph.env.hints)
    return max(elements, 1) * node.dtype.itemsize
