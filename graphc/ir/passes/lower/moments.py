"""A sum, and the sum of the squares of what is left when the mean is subtracted: from one reading.

A piece is summed around its own mean, or a number near it; the squares of all pieces together
follow (T. Chan, G. Golub, R. LeVeque, Updating Formulae and a Pairwise Algorithm for Computing
Sample Variances, 1979). What is left of that number in the piece is summed as well, so that the
result is as good as one of two readings.
"""

from __future__ import annotations

from ...dim import Dim, Size, product, unwrap
from ...graph import Node
from ...record import record
from .body import Body, carrier
from .rows_plan import ReductionPlan


@record
class Moments:
    """`total` = sum of x, `squares` = sum of (x - total / n)^2, and where a group asks for it, what
    rounding left out of the mean: `left` = sum of x - total / n."""

    total: Node
    squares: Node
    left: Node | None = None

    @property
    def x(self) -> Node:
        return self.total.inputs[0]


def find_moments(body: Body, plan: ReductionPlan) -> Moments | None:
    """The moments that the first two passes of a group find."""
    if len(plan.reductions) < 2 or any(n.op.name != "sum" for n in plan.reductions[1]):
        return None
    around = [n for n in plan.reductions[1] if centred(n) is not None]
    others = [n for n in plan.reductions[1] if n not in around]
    if len(around) != 1 or len(others) > 1 or carrier(around[0].dtype) is not around[0].dtype:
        return None
    (squares,) = around
    x, mean = centred(squares) or (squares, squares)
    if others and others[0].inputs[0] is not squares.inputs[0].inputs[0]:
        return None
    count = unwrap(product(a.size for a in plan.reduced_axes))
    total = total_of(body, count, mean)
    if total is None or total not in plan.reductions[0] or total.inputs[0] is not x:
        return None
    found = Moments(total, squares, others[0] if others else None)
    return found if total.dtype is x.dtype is squares.dtype else None


def centred(squares: Node) -> tuple[Node, Node] | None:
    """The value and the mean, of the sum of the squares of their difference."""
    (square,) = squares.inputs
    twice = square.op.name == "mul" and square.inputs[0] is square.inputs[1]
    if not twice and square.op.name != "square":
        return None
    return difference(square.inputs[0])


def difference(node: Node) -> tuple[Node, Node] | None:
    """Of which values a node is the difference."""
    if node.op.name != "sub":
        return None
    x, mean = node.inputs
    return x, _source(mean)


def _source(node: Node) -> Node:
    while node.op.name in ("reshape", "expand"):
        node = node.inputs[0]
    return node


def total_of(body: Body, count: Size, mean: Node) -> Node | None:
    """The sum that a node divides by how many were summed."""
    if mean.op.name not in ("div", "mul"):
        return None
    total, number = (_source(x) for x in mean.inputs)
    if mean.op.name == "mul" and total.op.name != "sum":
        total, number = number, total
    if total.op.name != "sum":
        return None
    found = _number(body, number)
    if isinstance(found, Dim) or isinstance(count, Dim):
        same = found == count and mean.op.name == "div"
    elif found is None:
        return None
    else:
        same = found == count if mean.op.name == "div" else found * count == 1.0
    return total if same else None


def _number(body: Body, node: Node) -> float | Dim | None:
    """The number that a node is."""
    if node.op.name == "cast":
        return _number(body, _source(node.inputs[0]))
    if node.op.name == "full":
        value = node.attrs["value"]
        return body.size(value) if isinstance(value, Dim) else float(value)
    if node.op.name == "const" and node.attrs["value"].array.size == 1:
        return float(node.attrs["value"].array.reshape(-1)[0])
    return None
