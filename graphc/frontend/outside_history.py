"""Where a backward pass under a trace would have to go on through history from outside it.

A captured tensor that is no leaf has an OutsideHistory node for its past: nothing behind it was
recorded, so a gradient that has to go on from there cannot be part of the graph.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..ir.named import NamedTuple
from .nodes import AccumulateGrad, Node, OutsideHistory


class Passed(NamedTuple):
    """A backward pass that stayed inside a recording, by tensors from outside: those with histories
    that it came to, and those whose gradients were asked for."""

    met: list[Any]
    wanted: list[Any]


def reachable(roots: Iterable[Node]) -> list[Node]:
    """Every node that a backward pass from `roots` may come to."""
    found = list(dict.fromkeys(roots))
    seen = set(found)
    for node in found:  # grows meanwhile
        for place in node.edges:
            if place is not None and place[0] not in seen:
                seen.add(place[0])
                found.append(place[0])
    return found


def goes_on(roots: list[Node], wanted: set[Node]) -> bool:
    """Whether a pass from `roots` to `wanted` (to every leaf, if empty) leaves the recording."""
    met = [node for node in reachable(roots) if isinstance(node, OutsideHistory)]
    if not met:
        return False
    if not wanted:
        return True
    behind = [_origin(node) for node in met]
    if any(node.tensor_hooks or node.retained for node in behind):
        return True
    targets = {_outside(node) for node in wanted}
    first = [place[0] for node in behind for place in node.edges if place is not None]
    return not targets.isdisjoint(reachable(first)) or any(
        node in targets and stand_in not in wanted
        for node, stand_in in zip(behind, met, strict=True)
    )


def passed(roots: list[Node], wanted: set[Node]) -> Passed | None:
    """What a pass that does not go on relies on; None where it came to no such history."""
    met = [node.tensor for node in reachable(roots) if isinstance(node, OutsideHistory)]
    asked = [
        node.tensor if isinstance(node, OutsideHistory) else node.variable._graphc_concrete
        for node in wanted if isinstance(node, (OutsideHistory, AccumulateGrad))
    ]
    return Passed(met, [each for each in asked if each is not None]) if met else None


def _origin(node: OutsideHistory) -> Node:
    """The node outside that made the captured tensor."""
    origin = node.tensor._graphc_node
    return node if origin is None else origin


def _outside(node: Node) -> Node | None:
    """What a node of the recording is outside of it; None for what was made in it."""
    if isinstance(node, OutsideHistory):
        return _origin(node)
    if not isinstance(node, AccumulateGrad):
        return None
    concrete = node.variable._graphc_concrete
    if concrete is None:
        return node
    accumulator = None if concrete._graphc_accumulator is None else concrete._graphc_accumulator()
    return accumulator
