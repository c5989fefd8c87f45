"""The scratch memory of a program's templates, enough for all values of the free sizes.

Where there are few values, each is planned. Of many, boxes of values are planned at once on
intervals, and the box that may need the most is halved until some value is known to need nearly as
much: a plan's memory does not grow steadily with sizes, so that no one value stands for others.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from graphc.export.aot.bounds import Interval, Ranges, bounds, values
from graphc.export.aot.intervals import Undecided, high, interval
from graphc.export.errors import ExportError
from graphc.ir.late import late
from graphc.ir.machine import Machine

_kernel = late("graphc.ir.kernel")
_plan = late("graphc.ir.kernel.plan_contraction")

SLOTS = 64  # of threads: more need no more scratch
FEW = 256  # values that are planned one by one
NEAR = 1.125  # what is taken, against what some value needs, is good enough
ENOUGH = 256  # boxes that are halved to come near,
MOST = 4096  # and to know anything
Box: TypeAlias = tuple[Interval, ...]


class Need(NamedTuple):
    """Bytes for all threads together, for each chunk that runs at a time, and how many may."""

    fixed: int
    each: int
    slots: int

    def at(self, threads: int) -> int:
        """Bytes for so many threads."""
        return self.fixed + min(self.slots, threads) * self.each


def scratch(program: Any, machine: Machine, ranges: Ranges) -> tuple[int, ...]:
    """Bytes for 1 to SLOTS threads. Raises ExportError where they cannot be found out."""
    needs = {Need(0, 0, 0)}
    seen: set[tuple[Any, ...]] = set()
    for leaf in _kernel.leaves(program.steps):
        if isinstance(leaf, _kernel.Routine):  # draws, which need none
            continue
        key = (leaf.kernel.template, leaf.kernel.dims, leaf.dims)
        if leaf.kernel.template is not None and key not in seen:
            seen.add(key)
            needs.update(_needs(leaf, machine, ranges))
    return tuple(max(need.at(threads) for need in needs) for threads in range(1, SLOTS + 1))


def _needs(leaf: Any, machine: Machine, ranges: Ranges) -> set[Need]:
    """Of a template: each of its plans needs no more than one of them, or a set that is enough."""
    template, names = leaf.kernel.template, leaf.kernel.dims
    used = sorted({name for size in leaf.dims if not isinstance(size, int)
                   for name in size.variables()})
    if not set(used) <= ranges.keys():
        raise ExportError(
            f"{leaf.ops[0]} is in a loop, and its sizes change with each step, which a library "
            "cannot plan ahead. Cure: export it without the loop"
        )

    def need(sizes: Mapping[str, Any]) -> Need:
        plan = _plan.plan_template(template, machine, sizes)
        if plan is None:
            return Need(0, 0, 0)
        return Need(high(getattr(plan, "chunks_at", 0)), high(plan.chunk_scratch), high(plan.slots))

    def need_in(box: Box) -> Need:
        within = dict(zip(used, box, strict=True))
        return need({
            name: interval(*bounds(size, within))
            for name, size in zip(names, leaf.dims, strict=True)
        })

    rows = values(leaf.dims, ranges, FEW)
    if rows is not None:
        return {need(dict(zip(names, row, strict=True))) for row in rows.tolist()}
    found = _covered(need_in, tuple(ranges[name] for name in used))
    if found is None:
        place = next((loc for loc in leaf.locs if loc), "")
        raise ExportError(
            f"the free sizes have too many values to find out what memory {leaf.ops[0]} "
            f"({place}) needs. Cure: aot(..., sizes={{...}}) with smaller sizes"
        )
    return found


class _Part(NamedTuple):
    """Of a cover. Those come first that may need the most, and before them all those of which
    nothing is known yet; `number` tells others apart."""

    order: float
    number: int
    box: Box
    need: Need | None


def _covered(need_in: Callable[[Box], Need], whole: Box) -> set[Need] | None:
    """Needs of boxes that together are all values; None where too many would have to be planned."""
    numbers = itertools.count()

    def planned(box: Box, threads: int) -> _Part:
        try:
            need = need_in(box)
        except Undecided:
            return _Part(-math.inf, next(numbers), box, None)
        return _Part(-need.at(threads), next(numbers), box, need)

    parts = [planned(whole, SLOTS)]
    for threads in (SLOTS, 1):
        parts = [
            part if part.need is None else part._replace(order=-part.need.at(threads))
            for part in parts
        ]
        heapq.heapify(parts)
        surely = 0
        for count in range(MOST):
            part = parts[0]
            if part.need is not None:
                corner = need_in(tuple((most, most) for _, most in part.box))
                surely = max(surely, corner.at(threads))
                if part.need.at(threads) <= surely * NEAR or count > ENOUGH:
                    break
            halves = _halves(part.box)
            if halves is None:
                break
            heapq.heapreplace(parts, planned(halves[0], threads))
            heapq.heappush(parts, planned(halves[1], threads))
    found = {part.need for part in parts}
    return None if None in found else {need for need in found if need is not None}


def _halves(box: Box) -> tuple[Box, Box] | None:
    """Two boxes of the one: its longest side is cut, by the ratio of its ends. None of a point."""
    ratios = [(most + 1) / (least + 1) for least, most in box]
    if not box or max(ratios) == 1:
        return None
    side = ratios.index(max(ratios))
    least, most = box[side]
    middle = min(max(math.isqrt(least * most), least), most - 1)
    first, second = (
        (*box[:side], ends, *box[side + 1 :]) for ends in ((least, middle), (middle + 1, most))
    )
    return first, second
