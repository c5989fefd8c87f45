"""Sums over columns join the kernel that goes along the rows of the same values.

The gradient of a layer norm's input goes along rows, those of its weight and bias along columns,
and all three read the same two tensors. On a machine that keeps a row in its lanes, they can keep a
sum for each column beside it: everything is then read once.
"""

from __future__ import annotations

from ...graph import Node
from ..lower.kinds import ROWS
from .analysis import REDUCE, Analysis, Pattern, pattern_of, segments
from .group import UP, Group
from .groups import Grouping
from .siblings import merge

_MOST_NODES = 80


def merge_columns(grouping: Grouping) -> None:
    """Merge groups of column sums into groups of rows, where the machine keeps rows."""
    if not grouping.a.machine.rereads:
        return
    rows = [g for g in grouping.groups if _goes_along_rows(g)]
    for group in list(grouping.groups):
        if not _sums_columns(grouping, group):
            continue
        for into in rows:
            if _fit(grouping, into, group):
                merge(grouping, into, group)
                into.below &= ~(1 << into.number | 1 << group.number)
                break
    drop_unread(grouping)


def _goes_along_rows(group: Group) -> bool:
    return (
        group.kind is ROWS and group.merged_into is None and group.pattern is not None
        and [reduced for _, reduced in group.pattern] == [False, True]
    )


def _sums_columns(grouping: Grouping, group: Group) -> bool:
    """Whether a group has nothing but sums over rows, and what is computed from these."""
    a, pattern = grouping.a, group.pattern
    if group.kind is not ROWS or group.merged_into is not None or pattern is None:
        return False
    if [reduced for _, reduced in pattern] != [True, False]:
        return False
    sums = [node for node in group.orders if a.category[node] == REDUCE]
    return (
        all(node.op.name == "sum" and pattern_of(node) == pattern for node in sums)
        and all(a.elements[node] == pattern[1][0] for node in group.outputs)
    )


def _fit(grouping: Grouping, into: Group, group: Group) -> bool:
    a = grouping.a
    assert into.pattern is not None and group.pattern is not None
    (rows, _), (columns, _) = into.pattern
    if (rows, columns) != (group.pattern[0][0], group.pattern[1][0]):
        return False
    if rows == columns or not isinstance(columns, int):
        return False
    if len(into.orders) + len(group.orders) > _MOST_NODES:
        return False
    sums = sum(_over_rows(n, into.pattern, a) for g in (into, group) for n in g.orders)
    if sums * columns > a.machine.rereads:
        return False
    if isinstance(rows, int) and rows * columns < a.machine.split_least:
        return False
    whole = rows * columns
    read = {x for x in _sources(group) if a.elements[x] == whole}
    known = _sources(into) | into.outputs.keys()
    return (
        bool(read & known) and not group.below >> into.number & 1
        and not _waits(grouping, into, group) and _same_places(grouping, into, group)
        and _come_last(grouping, into, group)
    )


def _come_last(grouping: Grouping, into: Group, group: Group) -> bool:
    """Whether nothing of the rows, and no other sum, needs a sum over rows."""
    a = grouping.a
    assert into.pattern is not None
    members = into.orders.keys() | group.orders.keys()
    after: set[Node] = set()
    for node in a.graph.nodes:
        if node not in members:
            continue
        needs = not after.isdisjoint(node.inputs)
        if needs and (a.category[node] == REDUCE or a.elements[node] != into.pattern[1][0]):
            return False
        if needs or _over_rows(node, into.pattern, a):
            after.add(node)
    return True


def _same_places(grouping: Grouping, into: Group, group: Group) -> bool:
    """Whether the sums read what follows from a row's reductions in that row alone."""
    a = grouping.a
    assert into.pattern is not None
    rows = into.pattern[0][0]
    known = {n for n in into.orders if a.category[n] == REDUCE}
    for node in a.graph.nodes:
        inside = node in into.orders or node in group.orders
        if inside and not known.isdisjoint(node.inputs) and not _over_rows(node, into.pattern, a):
            known.add(node)
    for node in known:
        for user in a.users[node]:
            orders = group.orders.get(user)
            if orders is None:
                continue
            if a.category[user] == REDUCE:
                continue  # reads its own place of the space
            if not (user.op.elementwise or user.op.name in ("expand", "reshape")):
                return False
            if a.elements[user] == a.elements[node]:
                if orders != {UP} and a.elements[node] != rows:
                    return False
                continue
            padded = (1,) * (len(user.shape) - len(node.shape)) + tuple(node.shape)
            if orders != {UP} or segments(user.shape, [s == 1 for s in padded]) != into.pattern:
                return False
    return True


def _over_rows(node: Node, pattern: Pattern, a: Analysis) -> bool:
    """Whether a node is a sum over rows."""
    return a.category[node] == REDUCE and pattern_of(node) != pattern


def _sources(group: Group) -> set[Node]:
    return {x for node in group.orders for x in node.inputs if x not in group.orders}


def _waits(grouping: Grouping, into: Group, group: Group) -> bool:
    """Whether what the two read from memory together is made after one of them."""
    members = into.orders.keys() | group.orders.keys()
    stack = [x for node in members for x in node.inputs if x not in members]
    seen: set[Group] = set()
    while stack:
        made = grouping.stored_by.get(stack.pop())
        if made in (into, group):
            return True
        if made is not None and made not in seen:
            seen.add(made)
            stack += _sources(made)
    return False


def drop_unread(grouping: Grouping) -> None:
    """Leave out what groups store, or compute, for nobody any more."""
    for group in reversed(_live(grouping)):
        if not group.kind.ordered:
            continue
        for node in list(group.outputs):
            if node not in grouping.a.must and not _read(grouping, group, node):
                del group.outputs[node], grouping.stored_by[node]
        needed: set[Node] = set()
        stack = list(group.outputs)
        while stack:
            node = stack.pop()
            if node in group.orders and node not in needed:
                needed.add(node)
                stack.extend(node.inputs)
        for node in [n for n in group.orders if n not in needed]:
            del group.orders[node]
            grouping.computed_in[node].remove(group)


def _live(grouping: Grouping) -> list[Group]:
    """The groups that compute something, each after those that it reads from."""
    live = [g for g in grouping.groups if g.merged_into is None and g.orders]
    waits = {g: sum(other.below >> g.number & 1 for other in live) for g in live}
    return sorted(live, key=waits.__getitem__)


def _read(grouping: Grouping, group: Group, node: Node) -> bool:
    """Whether another group reads a node from memory."""
    return any(
        other is not group and node not in other.orders
        for user in grouping.a.users[node] for other in grouping.computed_in.get(user, ())
    )
