"""Sums of x - m and of (x - m)^2 belong together: one walk finds both, around the same m (corrected
moments, ir/ops/composite_norm.py)."""

from __future__ import annotations

from ...graph import Node
from .analysis import Analysis, pattern_of
from .group import Group


def moments_beside(a: Analysis, node: Node, stored_by: dict[Node, Group]) -> Group | None:
    """The group that stores a sum of the squares of what a node sums, or of what it sums the
    squares of."""
    if node.op.name != "sum":
        return None
    (x,) = node.inputs
    sources = [x.inputs[0]] if _is_square(x) else [y for y in a.users[x] if _is_square(y)]
    sums = [user for y in sources for user in a.users[y] if user.op.name == "sum"]
    groups = [stored_by[other] for other in sums if other in stored_by]
    fits = (g for g in groups if g.flipped and g.pattern == pattern_of(node))
    return next(fits, None)


def _is_square(node: Node) -> bool:
    twice = node.op.name == "mul" and node.inputs[0] is node.inputs[1]
    return twice or node.op.name == "square"
