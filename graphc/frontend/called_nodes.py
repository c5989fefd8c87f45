"""grad_fn(gradient): one operation's gradients, by hand."""

from __future__ import annotations

from typing import Any

from .autograd import backward
from .context import local
from .errors import kind_name, located
from .folded import FoldedNode
from .nodes import AccumulateGrad, Edge, Node, World, beyond
from .tensor import Tensor
from .worlds import ArrayWorld, NodeWorld, TensorWorld


def call(node: Node, *gradients: Tensor | None) -> Any:
    """The gradients of what an operation was made of, given those of its results: one, or a tuple
    with None where none goes. A leaf's node adds to its `.grad`. With gradients switched on they
    have a history."""
    for value in gradients:
        if value is not None and not isinstance(value, Tensor):
            raise TypeError(located(f"expected Variable argument, but got {kind_name(value)}"))
    if isinstance(node, FoldedNode):
        node.unfold()
        if node.stands_for is not None:
            node = node.stands_for[0][0]
    carrying = [i for i, each in enumerate(node.out_types) if each.dtype.differentiable]
    if len(gradients) != len(carrying):
        raise TypeError(located(
            f"expected {len(carrying)} arguments, got {len(gradients)} instead"
        ))
    if isinstance(node, AccumulateGrad):
        backward(node.variable, gradients[0])
        return ()
    trace = local.trace
    world: World = (
        TensorWorld(trace) if local.grad else ArrayWorld() if trace is None else NodeWorld(trace)
    )
    slots: list[Any] = [None] * len(node.out_types)
    for i, value in zip(carrying, gradients, strict=True):
        slots[i] = None if value is None else world.from_tensor(value)
    spread = _spread(node, slots, world)
    found = tuple([None if value is None else world.to_tensor(value) for _, value in spread])
    return found[0] if len(found) == 1 else found


def _spread(node: Node, slots: list[Any], world: World) -> list[tuple[Edge | None, Any]]:
    """The gradients that leave an operation, by the edges that torch's node of it has."""
    ends = beyond(node)
    if all(value is None for value in slots):
        return [(edge, None) for edge in ends]
    left = _run(node, slots, world)
    if ends is node.edges:
        return left
    found: list[tuple[Edge, Any]] = []
    while left:
        edge, value = left.pop()
        if edge is not None and any(edge is end for end in ends):
            found.append((edge, value))
        elif edge is not None and value is not None:
            inner, output = edge
            left += _run(inner, [None] * output + [value], world)
    return [(end, next((v for edge, v in found if edge is end), None)) for end in ends]


def _run(node: Node, slots: list[Any], world: World) -> list[tuple[Edge | None, Any]]:
    slots = [*slots, *[None] * (len(node.out_types) - len(slots))]
    given = node.gradients(slots, [edge is not None for edge in node.edges], world)
    return list(zip(node.edges, given, strict=True))


setattr(Node, "__call__", call)  # noqa: B010  # nodes.py knows no pass
