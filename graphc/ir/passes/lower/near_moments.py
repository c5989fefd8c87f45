"""Moments of rows or columns that are not cut: from one walk, where they are short.

All is summed around the mean of a few first elements: what is summed is small, so that little is
rounded, and of equal numbers it is 0. What a group asks for, sums around the mean, follows from
that (T. Chan, G. Golub, R. LeVeque, Algorithms for Computing the Sample Variance, 1983). Where the
first m of n elements lie far from the others, the squares are off by n / m roundings at worst.
"""

from __future__ import annotations

from ...dim import Size, product, unwrap
from ...kernel import Literal
from .body import Body
from .cuts import Cuts
from .index_maps import Digit
from .moments import Moments
from .nest import coordinates
from .reduction import close_with_carries
from .rows_plan import ReductionPlan
from .scope import Value
from .staged import around_mean, position_of, sum_of
from .values import Values
from .walks import Walk, carries_of_pass, full_place, open_reduced

_FIRST = 16  # elements at least whose mean stands for all
_WORST = 64  # how many times as many there are at most
_LONG = 4096  # elements up to which one walk is worth it


def fits_one_walk(plan: ReductionPlan, moments: Moments | None) -> bool:
    """Whether the first two passes of a group can be one. Rows that are kept are read once anyhow.
    """
    if moments is None or any(plan.full[1:2]) or any(plan.columns[1:2]):
        return False
    if moments.x in plan.tiles or any(made == 1 for made in plan.tiles.values()):
        return False
    sizes = [axis.size for axis in plan.reduced_axes if axis.size != 1]
    return len(sizes) == 1 and isinstance(sizes[0], int) and _FIRST * 2 <= sizes[0] <= _LONG


class NearMoments:
    """The first two passes of a group, as one."""

    def __init__(self, body: Body, cuts: Cuts, moments: Moments) -> None:
        self.body, self.cuts, self.plan, self.found = body, cuts, cuts.plan, moments
        self.dtype = moments.total.dtype
        count = unwrap(product(a.size for a in cuts.plan.reduced_axes))
        assert isinstance(count, int)
        self.count, self.first = count, _FIRST
        while self.first * _WORST < count:
            self.first *= 2  # a power of 2: the mean of equal numbers is such a number

    def near(self, values: Values, kept: list[Size]) -> Value:
        """The mean of the first elements."""
        writer = values.writer
        loops = open_reduced(self.body, self.cuts, writer, first=self.first)
        x = self._x(values, full_place(self.plan, kept, loops.roots))
        (total,) = close_with_carries(writer, loops.loops, [sum_of(writer, x)])
        return writer.apply("mul", self.dtype, total, Literal(1.0 / self.first, self.dtype))

    def results(
        self, values: Values, place: tuple[Digit, ...], loops: Walk, near: Value
    ) -> tuple[list[Value], list[Value]]:
        """What the two passes find, in their order; `loops` are closed."""
        writer, dtype, found = values.writer, self.dtype, self.found
        carries = carries_of_pass(self.body, self.plan, values, place, 0)
        position = position_of(self.plan, self.plan.reductions[0].index(found.total))
        del carries[position]
        around = around_mean(writer, self._x(values, place), near)
        *first, squares, left = close_with_carries(writer, loops.loops, [*carries, *around])
        number = Literal(float(self.count), dtype)

        def apply(name: str, *operands: Value) -> Value:
            return writer.apply(name, dtype, *operands)

        total = apply("add", apply("mul", near, number), left)
        # sum (x - m)^2 = sum (x - near)^2 + (sum (x - near) + sum (x - m)) (near - m)
        shift = apply("sub", near, apply("div", total, number))
        rest = apply("add", left, apply("mul", shift, number))
        moved = apply("add", squares, apply("mul", apply("add", left, rest), shift))
        first.insert(position, total)
        if found.left is None:  # nobody looks whether rounding has made it less than nothing
            moved = apply("maximum", moved, Literal(0.0, dtype))
        by_node = {found.squares: moved, found.left: rest}
        return first, [by_node[node] for node in self.plan.reductions[1]]

    def _x(self, values: Values, place: tuple[Digit, ...]) -> Value:
        x = self.found.x
        return values.value(x, values.at(coordinates(place, self.body.shape(x))))
