"""What of a tape a backward pass has used up: values that it freed, and what leads to them.

An operation whose rule reads nothing that was saved (a sum, an addition) can run any number of
times, as in torch; one whose saved values are freed says so when a pass arrives. Leaves behind it
wait for it: a pass that ends there has given them nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphc.ir.autodiff import saved_values
from graphc.ir.dim import DimEnv

from .function import FunctionNode
from .nodes import Edge, Node, OpNode, ViewNode
from .tape_order import order_of


def used_up(node: Node, env: DimEnv) -> bool:
    """Whether a pass through a node would miss what an earlier one has freed."""
    if isinstance(node, FunctionNode):
        return node.ctx._saved is None
    if not node.released or isinstance(node, ViewNode):
        return False
    if isinstance(node, OpNode):
        needs = [place is not None for place in node.edges]
        return any(saved_values(node.op, node.in_types, node.attrs, needs, env))
    return True


def spent_nodes(tape: Sequence[Node], env: DimEnv) -> set[Node]:
    """The nodes of a tape (in order of recording) from which a pass would come to what is used
    up."""
    spent: set[Node] = set()
    if True not in [node.released for node in tape]:
        return spent
    for node in tape:
        if used_up(node, env) or any(e is not None and e[0] in spent for e in node.edges):
            spent.add(node)
    return spent


def entries_behind(node: Node, entries: Sequence[Edge]) -> list[int]:
    """Which of the entries of a recording the history of a value leads to."""
    behind = set(order_of([node]))
    return [i for i, (entry, _) in enumerate(entries) if entry in behind]
