"""How the reduced axes of a group are walked on a machine whose lanes go along short stretches:
which are cut in pieces, and whether lanes go along several of them as one.

The rule reads sizes and the Machine, so that the order of arithmetic follows these alone.
"""

from __future__ import annotations

import math

from ...dim import Size, ceil_div, minimum, product, unwrap
from ...record import record
from .body import Body
from .nest import Axis, hint
from .rows_plan import ReductionPlan


@record(frozen=False)
class Cuts:
    """What one piece has of each reduced axis: so many elements, or all (0). `joined`: one vector
    loop goes along all axes, of which only the first longer than 1 is cut."""

    plan: ReductionPlan
    sizes: list[int]
    joined: bool

    def pieces(self) -> list[Axis]:
        """An axis of pieces for each reduced axis."""
        return [
            Axis(ceil_div(axis.size, size) if size else 1)
            for axis, size in zip(self.plan.reduced_axes, self.sizes, strict=True)
        ]

    @property
    def whole(self) -> bool:
        """Whether nothing is cut."""
        return not any(self.sizes)

    def count(self) -> Size:
        """How many pieces there are for each kept place."""
        return unwrap(product(a.size for a in self.pieces()))

    def elements(self) -> Size:
        """Of a piece, at most."""
        axes = zip(self.plan.reduced_axes, self.sizes, strict=True)
        return unwrap(product(size or axis.size for axis, size in axes))

    def stretch(self, number: int, piece: Size) -> tuple[Size, Size]:
        """Where a piece begins along a reduced axis, and how far it goes."""
        axis, size = self.plan.reduced_axes[number], self.sizes[number]
        if not size:
            return 0, axis.size
        start = unwrap(piece * size)
        even = isinstance(axis.size, int) and axis.size % size == 0
        return start, size if even else minimum(size, unwrap(axis.size - start))


def uncut(body: Body, plan: ReductionPlan) -> Cuts:
    """All of the reduced axes at once."""
    rule = _Rule(body, plan)
    return Cuts(plan, [0 for _ in rule.sizes], rule.joined())


def cut(body: Body, plan: ReductionPlan, moments: bool) -> Cuts:
    """How a group's reductions are walked. `moments`: a sum and the squares of what is left of it
    can be had from one reading of pieces that are short enough to be kept."""
    rule = _Rule(body, plan)
    machine = body.machine
    if not machine.lane_steps:
        return uncut(body, plan)
    large = rule.kept * math.prod(rule.sizes) >= machine.split_least
    again = moments and large and plan.axes[plan.vector].reduced
    if rule.depth() > machine.lane_steps or (
        large and (rule.few(machine.parallelism // 2) or (again and rule.long()))
    ):
        while rule.depth() > machine.lane_steps or rule.few(machine.parallelism) or (
            again and rule.long()
        ):
            if not rule.halve():
                break
    pairs = zip(rule.whole, rule.sizes, strict=True)
    return Cuts(plan, [0 if a == b else b for a, b in pairs], rule.joined())


class _Rule:
    """Sizes of one piece, which grow smaller."""

    def __init__(self, body: Body, plan: ReductionPlan) -> None:
        self.machine, self.plan = body.machine, plan
        self.whole = [hint(body, a.size) for a in plan.reduced_axes]
        self.sizes = list(self.whole)
        self.vector = plan.axes[plan.vector]
        self.known = all(isinstance(a.size, int) for a in plan.reduced_axes)
        self.kept = hint(body, unwrap(product(a.size for a in plan.kept_axes)))
        self.iterations = self.kept
        if not self.vector.reduced:  # those with all their lanes
            self.iterations = -(-self.kept // self.machine.columns)

    def joined(self) -> bool:
        """Whether lanes go along all axes as one: where the contiguous one is too short for a
        block, or the piece is short enough to be kept."""
        live = sum(size != 1 for size in self.whole)
        if not self.machine.lane_steps or not self.vector.reduced or live < 2 or not self.known:
            return False
        width = self.sizes[self.plan.reduced_axes.index(self.vector)]
        return width < self.machine.columns or not self.long()

    def long(self) -> bool:
        """Whether a piece is too long to be kept."""
        return math.prod(self.sizes) > self.machine.tile

    def depth(self) -> int:
        """How many elements a lane goes along."""
        if self.joined():
            return -(-math.prod(self.sizes) // self.machine.columns)
        return math.prod(self._steps(i) for i in range(len(self.sizes)))

    def _steps(self, number: int) -> int:
        along = self.plan.reduced_axes[number] is self.vector
        size = self.sizes[number]
        return -(-size // self.machine.columns) if along else size

    def few(self, enough: int) -> bool:
        """Whether there could well be more parallel iterations."""
        parts = math.prod(-(-a // b) for a, b in zip(self.whole, self.sizes, strict=True))
        return self.iterations * parts < enough and self.depth() > self.machine.piece_steps

    def halve(self) -> bool:
        """Cut the outermost axis that is left; False where no more is to be had of it."""
        number = next((i for i, size in enumerate(self.sizes) if size > 1), None)
        if number is None:
            return False
        half = -(-self.sizes[number] // 2)
        if self.plan.reduced_axes[number] is self.vector:
            half = -(-half // self.machine.columns) * self.machine.columns  # whole blocks
        if half >= self.sizes[number]:
            return False
        self.sizes[number] = half
        return True
