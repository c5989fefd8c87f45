"""A part of a tensor that was written to elsewhere -> the same part of what was there before.

The gradient of `out[:, t] = h`, for all steps: each reads its part and hands the rest on, with
zeros in place of it. Read from what the first one got, the parts are rows of one value.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ...dim import Dim
from ...graph import Graph, Node
from ...rewrite import rebuilt, with_inputs


class _Written(NamedTuple):
    """`whole` with low..high along `dim` written to."""

    whole: Node
    dim: int
    low: int
    high: int


def read_before(graph: Graph, least: int) -> Graph:
    """The graph with such parts read from before at least `least` writes."""
    if sum(node.op.name == "slice_update" for node in graph.nodes) < least:
        return graph
    new: dict[Node, Node] = {}
    written: dict[Node, _Written] = {}  # by the new node
    for node in graph.nodes:
        made = with_inputs(node, [new[x] for x in node.inputs])
        name = node.op.name
        if name == "slice_update":
            found = _write(made, written.get(made.inputs[0]))
            if found is not None:
                written[made] = found
        elif name == "slice" and made.inputs[0] in written:
            whole, dim, low, high = written[made.inputs[0]]
            start, stop = made.attrs["starts"][dim], made.attrs["stops"][dim]
            fixed = not isinstance(start, Dim) and not isinstance(stop, Dim)
            if fixed and (stop <= low or high <= start):
                made = with_inputs(made, [whole])
        new[node] = made
    return rebuilt(graph, new)


def _write(node: Node, before: _Written | None) -> _Written | None:
    """What was written to until now, if that is all along one dim."""
    whole, _ = node.inputs
    starts, stops = node.attrs["starts"], node.attrs["stops"]
    if any(step != 1 for step in node.attrs["steps"]):
        return None
    moved: list[tuple[int, Any, Any]] = [
        (d, start, stop) for d, (start, stop, n) in enumerate(
            zip(starts, stops, whole.shape, strict=True)
        ) if (start, stop) != (0, n)
    ]
    if len(moved) != 1 or any(isinstance(n, Dim) for n in moved[0]):
        return None
    dim, low, high = moved[0]
    if before is None or before.dim != dim:
        return _Written(whole, dim, low, high)
    return _Written(before.whole, dim, min(low, before.low), max(high, before.high))
