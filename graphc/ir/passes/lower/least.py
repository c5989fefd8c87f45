"""What a whole number is at least, as its operators say: positions that cannot be negative are not
counted from the end, nor asked about."""

from __future__ import annotations

from ... import dtypes
from ...graph import Node

_FEW = 64  # numbers of a constant


def least(node: Node) -> int | None:
    """What every element is at least; None: nothing is known."""
    name = node.op.name
    if node.dtype is not dtypes.i64:
        return None
    if name == "iota":
        return 0
    if name == "full":
        value = node.attrs["value"]
        return value if isinstance(value, int) else None
    if name == "const":
        numbers = node.attrs["value"].array
        return int(numbers.min()) if 0 < numbers.size <= _FEW else None
    if name == "reshape" or name == "permute" or name == "expand" or name == "slice":
        return least(node.inputs[0])
    if name == "clamp":  # where the bounds cross, the upper one is what counts
        return _both(*node.inputs[1:])
    if name == "maximum":
        a, b = (least(x) for x in node.inputs)
        return b if a is None or (b is not None and b > a) else a
    if name == "minimum":
        return _both(*node.inputs)
    if name == "where":
        return _chosen(*node.inputs)
    return None


def _chosen(condition: Node, chosen: Node, other: Node) -> int | None:
    """Of where(x < c, a, x): x is chosen only where it is c or more."""
    if condition.op.name == "lt" and condition.inputs[0] is other:
        bound, first = least(condition.inputs[1]), least(chosen)
        if bound is not None and first is not None:
            return min(bound, first)
    return _both(chosen, other)


def _both(a: Node, b: Node) -> int | None:
    first, second = least(a), least(b)
    return None if first is None or second is None else min(first, second)
