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
    while stack:
        node = stack.pop()
        inner.append(node)
        for place in node.edges if plain else live.get(node, node.edges):
            if place is not None and place[0] not in seen:
                seen.add(place[0])
                stack.append(place[0])
    leaves = [node for node in inner if isinstance(node, AccumulateGrad)]
    inner = [node for node in inner if not isinstance(node, AccumulateGrad)]
    inner.sort(key=_SEQUENCE, reverse=True)
    order: list[Node] = []
    remaining = dict.fromkeys(leaves, 0)
    for node in inner:
        for place in node.edges if plain else live.get(node, node.edges):
            if place is not None and place[0] in remaining:
                remaining[place[0]] += 1
    order.extend(leaf for leaf, uses in remaining.items() if uses == 0)
    for node in inner:
        order.append(node)
        for place in node.edges if plain else live.get(node, node.edges):
            if place is not None and place[0] in remaining:
                remaining[place[0]] -= 1
                if remaining[place[0]] == 0:
                    order.append(place[0])
    return order


def live_edges(
    order: Sequence[Node], begun: Iterable[Edge]
) -> dict[Node, list[Edge | None]]:
    """Of nodes that stand for many operations: the edges to which the gradients that a pass from
    `begun` brings can lead. `order` has consumers first."""
    reached = set(begun)
    found: dict[Node, list[Edge | None]] = {}
    for node in order:
        edges: Sequence[Edge | None] = node.edges
        if isinstance(node, FoldedNode):
            given = [i for i in range(len(node.out_types)) if (node, i) in reached]
            if len(given) < len(node.out_types):
                edges = found[node] = [
                    place if any(node.leads(output, i) for output in given) else None
                    for i, place in enumerate(edges)
                ]
        reached.update(place for place in edges if place is not None)
    return found


def reaching(order: list[Node], targets: set[Node]) -> dict[Node, bool]:
    """Which nodes lead to one of `targets` (`order` has consumers first)."""
    found: dict[Node, bool] = {}
    for node in reversed(order):
        found[node] = node in targets or any(
            place is not None and found.get(place[0], False) for place in node.edges
        )
    return found


def inner_roots(roots: list[Edge]) -> frozenset[int]:
    """Those of the roots that others of them were computed from."""
    below: set[Edge] = set()
    for node in order_of([node for node, _ in roots]):
        below.update(e for e in node.edges if e is not None)
    return frozenset(i for i, root in enumerate(roots) if root in below)


def labels_of(roots: list[Edge]) -> tuple[str, ...]:
    """What the operation that made each root is called."""
    return tuple([node.label(output) for node, output in roots])
