"""Sums over the rows of what a contraction makes are begun in its epilogue: of a few rows at a time
(`partial`), so that what is in memory need not be read for their sake. What is left to sum is
small. So a batch norm behind a convolution, its gradient, and a bias's gradient cost no reading.

A sum, and that of the squares around its mean, become means and squares of blocks, which are put
together as T. Chan, G. Golub and R. LeVeque do (Updating Formulae and a Pairwise Algorithm for
Computing Sample Variances, 1979): with a large mean as exactly as without.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

from ... import ops
from ...dim import Size, product, unwrap
from ...graph import Builder, Expr, Graph, Node
from ...machine import Machine
from ...ops.composite_partial import elements
from ...record import record, replaced
from ...rewrite import remade
from ..lower.body import Body
from ..lower.moments import centred, difference, total_of
from .analysis import MOVE, POINT, REDUCE, Analysis, analyse, pattern_of
from .epilogue import Epilogues

_MOST_STEPS = 40  # nodes looked at on the way to a contraction, or to a sum along rows


@record
class _Sum:
    """A sum over rows. With `mean`, of what is left of x when that is subtracted, or of its
    squares."""

    node: Node
    x: Node
    total: Node | None = None
    mean: Node | None = None
    squares: bool = False


def make_partials(
    graph: Graph, machine: Machine, routine: Callable[[Node], bool], mutated: Collection[int]
) -> Graph:
    """The graph, with partial sums where these fit the epilogue of a contraction; itself without
    one."""
    if not machine.partial_rows or not any(n.op.family == "contract" for n in graph.nodes):
        return graph
    if not any(n.op.name == "sum" and n.dtype.is_float and _over_rows(n) for n in graph.nodes):
        return graph
    a = analyse(graph, machine, routine, mutated)
    found = _candidates(a, Epilogues(a))
    while found:
        made, partials = _rewritten(graph, found, machine.partial_rows)
        owner = Epilogues(analyse(made, machine, routine, mutated)).owner
        wrong = {origin for node, origin in partials.items() if node not in owner}
        if not wrong:
            return made
        # moments stay together: squares, and their total
        found = {
            node: each for node, each in found.items()
            if node not in wrong and each.total not in wrong
        }
    return graph


# --- which ----------------------------------------------------------------------------------------


def _candidates(a: Analysis, epilogues: Epilogues) -> dict[Node, _Sum]:
    """The sums that a contraction may begin, by their nodes."""
    body = Body(a.graph, a.machine)
    found: dict[Node, _Sum] = {}
    around_means: dict[Node, _Sum] = {}
    for node in a.graph.nodes:
        if a.category[node] != REDUCE or node.op.name != "sum" or not _over_rows(node):
            continue
        around = _around_mean(body, node)
        if around is not None:
            around_means[node] = around
        elif _is_worth(a, epilogues, node):
            found[node] = _Sum(node, node.inputs[0])
    for node, each in around_means.items():
        if each.total in found and found[each.total].mean is None:
            found[node] = each
            found[each.total] = replaced(found[each.total], total=each.total)
    return found


def _over_rows(node: Node) -> bool:
    """Whether all dims but the last are summed over."""
    pattern, (x,) = pattern_of(node), node.inputs
    return [flag for _, flag in pattern] == [True, False] and x.shape[-1] == pattern[1][0]


def _around_mean(body: Body, node: Node) -> _Sum | None:
    """A sum of what is left of a value when the mean over the same rows is subtracted, or of the
    squares of that."""
    squares = centred(node)
    found = squares or difference(node.inputs[0])
    if found is None:
        return None
    x, mean = found
    rows = unwrap(product(x.shape[:-1]))
    total = total_of(body, rows, mean)
    if total is None or total.inputs[0] is not x or pattern_of(total) != pattern_of(node):
        return None
    return _Sum(node, x, total, mean, squares is not None)


def _is_worth(a: Analysis, epilogues: Epilogues, node: Node) -> bool:
    """Whether a sum reads what a contraction makes, and would read it for its own sake alone."""
    (x,) = node.inputs
    rows, columns = (size for size, _ in pattern_of(node))
    made = [n for n in _cone(a, x) if n in epilogues.owner]
    if isinstance(rows, int) and isinstance(columns, int):
        # the value is read once less; two partial results of each block are written and read
        narrow = min((n.dtype.itemsize for n in made), default=0)
        blocks = -(-rows // a.machine.partial_rows)
        saved, added = rows * columns * narrow, blocks * columns * x.dtype.itemsize * 4
        if saved <= added or rows * columns < a.machine.split_least:
            return False
    return bool(made) and not any(_along_rows(a, n) for n in made)


def _cone(a: Analysis, x: Node) -> Iterator[Node]:
    """What a value is made of, pointwise, element by element, as far as what contractions make."""
    stack, seen = [x], {x}
    while stack and len(seen) < _MOST_STEPS:
        node = stack.pop()
        yield node
        if a.category[node] == POINT:
            for source in node.inputs:
                if source not in seen and a.elements[source] == a.elements[x]:
                    seen.add(source)
                    stack.append(source)


def _along_rows(a: Analysis, node: Node) -> bool:
    """Whether a value is summed along its rows, too: where a machine keeps rows, that kernel sums
    columns beside them (columns.py)."""
    stack, seen = [node], {node}
    while stack and len(seen) < _MOST_STEPS:
        for user in a.users[stack.pop()]:
            if user in seen or a.category[user] not in (POINT, MOVE, REDUCE):
                continue
            if a.category[user] == REDUCE:
                if [flag for _, flag in pattern_of(user)] == [False, True]:
                    return True
            elif a.elements[user] == a.elements[node]:
                seen.add(user)
                stack.append(user)
    return False


# --- the graph with them --------------------------------------------------------------------------


def _rewritten(
    graph: Graph, found: dict[Node, _Sum], rows: int
) -> tuple[Graph, dict[Node, Node]]:
    """The graph, and the partial sums in it, each with the node in whose place it was made."""
    partials: dict[Node, Node] = {}

    def make(builder: Builder, node: Node, new: dict[Node, Node]) -> Node:
        each = found.get(node)
        if each is None:
            inputs = (new[x] for x in node.inputs)
            return builder.emit(node.op, *inputs, graphs=node.graphs, **node.attrs)

        def partial(kind: str) -> Expr:
            made: Expr = ops.partial(Expr(builder, new[each.x]), rows=rows, kind=kind)
            partials[made.node] = node
            return made

        if each.total is None:
            terms: Any = partial("sum")
        else:
            counted = elements(Expr(builder, new[each.x]), each.x.shape, rows)
            terms = partial("mean")
            if each.mean is None:
                terms = terms * counted
            else:
                mean = Expr(builder, new[each.mean])
                left = terms - ops.reshape(mean, shape=(1, each.x.shape[-1]))
                moved = left * left * counted if each.squares else left * counted
                terms = partial("squares") + moved if each.squares else moved
        return _sum(terms, node)

    return remade(graph, make), partials


def _sum(terms: Any, node: Node) -> Node:
    """The sum over all blocks, in the shape of a sum over rows."""
    shape: tuple[Size, ...] = node.shape
    total: Expr = ops.sum(terms, dims=(0,), keepdim=False)
    if total.shape != shape:
        total = ops.reshape(total, shape=shape)
    return total.node
