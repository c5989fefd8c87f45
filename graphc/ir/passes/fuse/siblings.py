"""Sibling fusion: reductions over the same axes of a common source are one walk over it."""

from __future__ import annotations

from ...graph import Node
from ..lower.kinds import ROWS
from .group import Group
from .groups import Grouping

_MOST_NODES = 80


def merge_siblings(grouping: Grouping) -> None:
    """Merge groups of reductions that read a common full-size value and do not depend on each
    other."""
    readers: dict[Node, list[Group]] = {}
    for group in grouping.groups:
        if group.kind is not ROWS:
            continue
        sources = {x for node in group.orders for x in node.inputs if x not in group.orders}
        for source in sources:
            readers.setdefault(source, []).append(group)
    for source in grouping.a.graph.nodes:
        found = readers.get(source, ())
        kept: list[Group] = []
        for group in found:
            group = current(group)
            for other in kept:
                if group is not other and _fit(grouping, source, group, current(other)):
                    merge(grouping, current(other), group)
                    break
            else:
                kept.append(group)


def current(group: Group) -> Group:
    """The group that a group was merged into."""
    while group.merged_into is not None:
        group = group.merged_into
    return group


def _fit(grouping: Grouping, source: Node, a: Group, b: Group) -> bool:
    if a is b or a.pattern != b.pattern or a.flipped != b.flipped:
        return False
    if a.pattern is None or len(a.orders) + len(b.orders) > _MOST_NODES:
        return False
    if (a.below >> b.number | b.below >> a.number) & 1:
        return False
    whole: int = 1
    for size, _ in a.pattern:
        whole = whole * size  # type: ignore[assignment]
    return grouping.a.elements[source] == whole


def merge(grouping: Grouping, into: Group, group: Group) -> None:
    """What a group computes and stores is another one's."""
    for node, orders in group.orders.items():
        into.orders.setdefault(node, set()).update(orders)
        made = grouping.computed_in[node]
        made.remove(group)
        if into not in made:
            made.append(into)
    for node in group.outputs:
        into.outputs[node] = None
        grouping.stored_by[node] = into
    group.merged_into = into
    below = into.below | group.below
    into.below = below
    group.below = 0
    group.orders, group.outputs = {}, {}
    gained = below | 1 << into.number
    for other in grouping.groups:
        if other is not into and other.below & (1 << into.number | 1 << group.number):
            other.below |= gained
