"""In which order loops and the nodes beside them can be computed, each loop at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from .ends import with_ends
from .order import Numbers, Order
from .steps import NONE, Loop

Item = int | Loop  # the place of a node that is in no loop


def arranged(order: Order, loops: Sequence[Loop]) -> list[Item]:
    """The loops, with the steps at their ends where nothing in between needs to be computed, and
    all other nodes, behind what they read."""
    taken: set[int] = set().union(*(_members(loop).tolist() for loop in loops))
    longer: list[Loop] = []
    for loop in loops:
        longer.append(with_ends(order, loop, taken))
        taken.update(_members(longer[-1]).tolist())
    found = _sorted(order, longer)
    if found is not None:
        return found
    chosen = list(loops)
    for i, loop in enumerate(longer):
        trial = [*chosen[:i], loop, *chosen[i + 1 :]]
        if loop is not chosen[i] and _sorted(order, trial) is not None:
            chosen = trial
    found = _sorted(order, chosen)
    assert found is not None  # as they stand behind each other
    return found


def _members(loop: Loop) -> Numbers:
    places = loop.places[:, [operands is not None for operands in loop.operands]]
    there: Numbers = places[places != NONE]
    return there


def _sorted(order: Order, loops: Sequence[Loop]) -> list[Item] | None:
    """Nodes and loops behind what they read; None where two loops need something of each other."""
    count = len(order.nodes)
    item = np.arange(count)
    for i, loop in enumerate(loops):
        item[_members(loop)] = count + i
    total = count + len(loops)
    before, behind = item[order.reads], item[order.readers]
    apart = before != behind
    edges = np.unique(before[apart] * total + behind[apart])
    before, behind = edges // total, edges % total
    waits = np.bincount(behind, minlength=total).tolist()
    begins = np.searchsorted(before, np.arange(total + 1)).tolist()
    readers = behind.tolist()
    items = np.unique(item).tolist()
    ready = deque(i for i in items if not waits[i])
    found: list[Item] = []
    while ready:
        i = ready.popleft()
        found.append(i if i < count else loops[i - count])
        for reader in readers[begins[i] : begins[i + 1]]:
            waits[reader] -= 1
            if not waits[reader]:
                ready.append(reader)
    return found if len(found) == len(items) else None
