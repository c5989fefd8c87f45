"""Slices that lie in memory as one piece: parts of the buffer they are taken of, not copies."""

from __future__ import annotations

from ...dim import Size, product, unwrap
from ...graph import Node
from ...types import Shape


def start_of_part(node: Node) -> Size | None:
    """Where a kernel's result begins in its operand, in elements, if it is a piece of that: a slice
    of whole rows. None for any other kernel."""
    if node.op.name != "fusion" or len(node.inputs) != 1:
        return None
    (body,) = node.graphs
    if len(body.outputs) != 1:
        return None
    start: Size | None = None
    value = body.outputs[0]
    while value.op.name in ("reshape", "slice"):
        if value.op.name == "slice":
            if start is not None:
                return None
            start = _start(value)
            if start is None:
                return None
        (value,) = value.inputs
    return start if value.op.name == "input" else None


def _start(node: Node) -> Size | None:
    shape: Shape = node.inputs[0].shape
    start: Size = 0
    one = True  # so far, each dim has one position
    for d, size in enumerate(shape):
        begin, length = node.attrs["starts"][d], node.shape[d]
        if not one and length != size:
            return None
        if length not in (1, size) and node.attrs["steps"][d] != 1:
            return None
        start = start + begin * product(shape[d + 1 :])
        one = one and length == 1
    return unwrap(start)
