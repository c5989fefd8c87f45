"""The order of a backward pass over the tape."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from .folded import FoldedNode
from .nodes import AccumulateGrad, Edge, Node

_SEQUENCE = operator.attrgetter("sequence")


def order_of(
    roots: Sequence[Node], live: Mapping[Node, Sequence[Edge | None]] = MappingProxyType({})
) -> list[Node]:
    """Every reachable node, consumers first; each leaf right after its last consumer. `live`: those
    of the edges of a node along which a gradient can go, where these are not all."""
    plain = not live
    seen: set[Node] = set(roots)
    stack = list(seen)
    inner: list[Node] = []
    leaves: dict[Node, None] = {}  # those that are not in `order`
    while stack:
        node = stack.pop()
        if isinstance(node, AccumulateGrad):
            leaves[node] = None
            continue
        inner.append(node)
        for place in node.edges if plain else live.get(node, node.edges):
            if place is not None and place[0] not in seen:
                seen.add(place[0])
                stack.append(place[0])
    inner.sort(key=_SEQUENCE)
    order: list[Node] = []  # the last first
    for node in inner:
        edges = node.edges if plain else live.get(node, node.edges)
        for place in reversed(edges):
            if place is not None and place[0] in leaves:
                order.append(place[0])
                del leaves[place[0]]
        order.append(node)
    order.extend(reversed(leaves))  # of no node
    order.reverse()
    return order


class Arrivals:
    """Where the gradients of a pass can go through nodes that stand for many operations.

    `given`: of such a node, the results at which one arrives; `live`: the edges that it can be led
    to, where these are not all. `order` has consumers first.
    """

    def __init__(self, order: Sequence[Node], begun: Iterable[Edge]) -> None:
        self.given: dict[FoldedNode, list[int]] = {}
        self.live: dict[Node, list[Edge | None]] = {}
        reached = set(begun)
        for node in order:
            edges: Sequence[Edge | None] = node.edges
            if isinstance(node, FoldedNode):
                given = [i for i in range(len(node.out_types)) if (node, i) in reached]
                self.given[node] = given
                if len(given) < len(node.out_types):
                    edges = [
                        place if any(node.leads(output, i) for output in given) else None
                        for i, place in enumerate(edges)
                    ]
                    if edges != list(node.edges):
                        self.live[node] = edges
            reached.update(place for place in edges if place is not None)


def reaching(order: list[Node], targets: set[Node]) -> dict[Node, bool]:
    """Which nodes lead to one of `targets` (`order` has consumers first)."""
    found: dict[Node, bool] = {}
    for node in reversed(order):
        found[node] = node in targets or any(
            place is not None and found.get(place[0], False) for place in node.edges
        )
    return found


def give_way(order: list[Node], arrivals: Arrivals, wanted: set[Node]) -> bool:
    """Unfold nodes in which a pass to `wanted` (to all, if empty) would come to what an earlier one
    has used up: what lies before that runs, as in eager mode. Says whether anything changed."""
    used = [node for node in arrivals.given if node.used]
    if not used:
        return False
    needed = reaching(order, wanted)
    changed = False
    for node in used:
        needs = [
            place is not None and (not wanted or needed.get(place[0], False))
            for place in node.edges
        ]
        if any(needs) and node.exhausted(arrivals.given[node], needs):
            node.unfold()
            changed |= node.stands_for is not None
    return changed


def inner_roots(roots: list[Edge]) -> frozenset[int]:
    """Those of the roots that others of them were computed from."""
    below: set[Edge] = set()
    for node in order_of([node for node, _ in roots]):
        below.update(e for e in node.edges if e is not None)
    return frozenset(i for i, root in enumerate(roots) if root in below)


def labels_of(roots: list[Edge]) -> tuple[str, ...]:
    """What the operation that made each root is called."""
    return tuple([node.label(output) for node, output in roots])
