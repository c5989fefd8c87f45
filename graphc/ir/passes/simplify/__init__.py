"""simplify: every rule that makes a graph smaller or cheaper without changing a bit."""

from __future__ import annotations

from ... import rewrite
from ...graph import Graph
from . import algebra, canonicalize, loops, movement

RULES = canonicalize.RULES + algebra.RULES + movement.RULES + loops.RULES


def simplify(graph: Graph) -> Graph:
    """The graph with its algebra and its views simplified, in canonical spelling."""
    return rewrite.apply(graph, RULES)
