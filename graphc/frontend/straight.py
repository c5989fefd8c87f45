"""A backward pass over compiled calls and operators, one behind the other: a loss, what was done to
a Module's result, and that Module before it.

What is most of a training loop's passes needs no order, no sets of what arrives where, and no
walk: each node gets the gradient of its one result, and hands on that of one input; all else goes
to leaves. Whatever is not as plain as this is autograd.py's.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from .arriving import accumulate, conform
from .history import edge, requires_grad
from .nodes import AccumulateGrad, Node, OpNode
from .tensor import Tensor

if TYPE_CHECKING:
    from .folded import FoldedNode

    Straight = FoldedNode | OpNode

Leaf = tuple[int, Tensor]  # which of a node's edges, and who gets the gradient


def chain_of(node: Any) -> list[tuple[Straight, int, list[Leaf]]] | None:
    """From a node on: (the node, which of its edges goes on or -1, its leaves); None: a pass from
    here is not as plain as that."""
    found: list[tuple[Straight, int, list[Leaf]]] = []
    known: set[Node] = set()
    while True:
        if (
            not node.straight or len(node.out_types) != 1 or node.tensor_hooks or node.retained
            or node.pre_hooks or node.post_hooks
        ):
            return None
        if node.folded:
            if node.stands_for is not None or node.used:
                return None
        elif node.released or node.packed or node.trace is not None or node.known is not None:
            return None
        further, leaves = -1, list[Leaf]()
        for i, place in enumerate(node.edges):
            if place is None:
                continue
            target = place[0]
            if target in known:  # the sum of what comes from two sides
                return None
            known.add(target)
            if type(target) is AccumulateGrad:
                variable = target.variable
                if (
                    target.pre_hooks or target.post_hooks or variable._graphc_hooks
                    or variable._graphc_post_hooks
                ):
                    return None
                leaves.append((i, variable))
            elif further < 0:
                further = i
            else:
                return None
        found.append((node, further, leaves))
        if further < 0:
            return found
        node = node.edges[further][0]


def straight_pass(output: Any, gradient: Any, keep: bool, world: Any) -> bool:
    """Add the gradients of a tensor to its leaves', outside of any trace, if the way there is
    plain. False: nothing has happened. `keep`: what was saved stays; `world`: of arrays."""
    if type(output) is not Tensor or output._graphc_trace is not None or not requires_grad(output):
        return False
    root = edge(output)[0]
    type_ = output._graphc_type
    if not root.straight:
        return False
    value: Any
    if gradient is None:
        if type_.elements != 1 or not type_.dtype.is_float or type_.dtype.is_complex:
            return False
        value = np.ones(output._graphc_array.shape, output._graphc_array.dtype)
    elif type(gradient) is Tensor and gradient._graphc_type == type_:
        value = gradient._graphc_array
    else:
        return False
    chain = chain_of(root)
    if chain is None:
        return False
    for node, further, leaves in chain:
        found: list[Any] = list(
            node.gradients([value], [place is not None for place in node.edges], world)
        )
        if not keep:
            node.release()
        if further >= 0:
            value, found[further] = found[further], None
            value = _fitting(node, further, value, world)
        for i, variable in leaves:
            if found[i] is not None:
                arrived, found[i] = _fitting(node, i, found[i], world), None
                # references: the variable here, and getrefcount's argument
                alone = sys.getrefcount(arrived) <= 2
                if requires_grad(variable):  # it may have been frozen since the forward pass
                    accumulate(variable, arrived, alone)
        if further >= 0 and value is None:
            break
    return True


def _fitting(node: Node, i: int, value: Any, world: Any) -> Any:
    """A gradient with the type of its edge."""
    place = node.edges[i]
    if value is None or place is None:
        return None
    want = place[0].out_types[place[1]]
    if value.shape == want.shape and value.dtype == want.dtype.numpy:
        return value
    return conform(node, i, value, want, world)

