"""What the transforms share: inputs with a place of their own on the tape, and gradients by it.

The tape is the only mechanism: a transform gives its inputs a fresh place, runs the function, and
asks for gradients with regard to that place. Where an outer transform (or the user's own
requires_grad) is at work too, the inputs' place is a node above the outer one, and gradients are
computed with create_graph; where nothing else is, neither costs anything, and what is handed out
carries no history.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..frontend.autograd import grad
from ..frontend.context import local
from ..frontend.dispatch import apply
from ..frontend.history import edge, requires_grad
from ..frontend.nodes import AccumulateGrad, Node
from ..frontend.tensor import Tensor, alias, current
from ..frontend.tree import flatten, unflatten
from ..ir import ops


def fresh(tensor: Any) -> Tensor:
    """The same values at a place of their own on the tape."""
    if not isinstance(tensor, Tensor):
        raise ValueError(f"Thing passed to transform API must be Tensor, got {type(tensor)}")
    if requires_grad(current(tensor)):
        placed: Tensor = apply(ops.reshape, tensor, shape=tensor._graphc_type.shape)
        return placed
    return alias(tensor).requires_grad_()


def fresh_tree(value: Any) -> tuple[Any, list[Tensor]]:
    """A structure of tensors with every one at a place of its own, and these as a list."""
    leaves, structure = flatten(value)
    placed = [fresh(leaf) for leaf in leaves]
    return unflatten(list(placed), structure), placed


def tracked(value: Any) -> bool:
    """Whether a value is a Tensor with a history."""
    return isinstance(value, Tensor) and requires_grad(current(value))


def has_outside(tensors: Sequence[Any], ours: Sequence[Tensor]) -> bool:
    """Whether the history of `tensors` reaches leaves other than `ours`."""
    known: set[Node] = set()
    for tensor in ours:
        state = current(tensor)
        if state._graphc_node is None and requires_grad(state):
            known.add(edge(state)[0])
    seen: set[Node] = set()
    stack = [edge(current(t))[0] for t in tensors if tracked(t)]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if not node.edges and node not in known and not _constant(node):
            return True
        stack.extend(place[0] for place in node.edges if place is not None)
    return False


def _constant(node: Node) -> bool:
    return not isinstance(node, AccumulateGrad) and node.sequence != 0.0


def pull(
    outputs: Sequence[Any], cotangents: Sequence[Any], inputs: Sequence[Tensor],
    create_graph: bool, retain_graph: bool = True,
) -> list[Any]:
    """Gradients of `outputs` with regard to `inputs`: None where nothing flows."""
    pairs = [(o, c) for o, c in zip(outputs, cotangents, strict=True) if tracked(o)]
    if not pairs or not inputs:
        return [None] * len(inputs)
    return list(grad(
        [o for o, _ in pairs], list(inputs), [c for _, c in pairs],
        retain_graph=retain_graph or create_graph, create_graph=create_graph, allow_unused=True,
    ))


def zeros_like(tensor: Tensor) -> Tensor:
    """Zeros of a tensor's type."""
    type_ = tensor._graphc_type
    value: float | int = 0.0 if type_.dtype.is_float else 0
    made: Tensor = apply(ops.full, shape=type_.shape, value=value, dtype=type_.dtype)
    return made


def materialised(gradients: Sequence[Any], like: Sequence[Tensor]) -> list[Tensor]:
    """Zeros in the place of None."""
    return [
        zeros_like(x) if g is None else g for g, x in zip(gradients, like, strict=True)
    ]


def released(value: Any, outside: bool, outer_grad: bool) -> Any:
    """Results for the caller: without the transform's own history where there is no other."""
    if outside and outer_grad:
        return value
    leaves, structure = flatten(value)
    return unflatten([alias(x) if tracked(x) else x for x in leaves], structure)


def grad_mode() -> bool:
    """Whether the caller records operations."""
    return local.grad


Function = Callable[..., Any]
