"""x[i] under a trace, where i is a tensor without dimensions: torch gives a view of x.

Which row it is only the call knows, so it cannot be a view of a graph's; it is a copy that follows.
What is written to x is read again for it, and what is written to it is put into x. Where it leaves
the graph, and somebody else sees the memory of x, it is made a view of that, by what the index was.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from graphc.ir import ops
from graphc.ir.graph import Node
from graphc.ir.op import get as get_op

from .context import local
from .dispatch import apply, inplace
from .tensor import Tensor, current
from .views import Chain

if TYPE_CHECKING:
    from .trace import Trace


class Pick:
    """`x` at `tensors`, from the dim `dim` on, and what was given for it."""

    def __init__(self, x: Tensor, tensors: Sequence[Tensor], dim: int, given: Tensor) -> None:
        self.x, self.tensors, self.dim = x, tensors, dim
        self.given = weakref.ref(given)
        self.storage = given._graphc_storage  # the copy's memory, whatever becomes of `given`
        trace = given._graphc_trace
        assert trace is not None
        # the places, which may be written to later
        self.places: tuple[Node, ...] = tuple([
            trace.read(t if t._graphc_trace is trace else trace.shadow(t)) for t in tensors
        ])

    def follow(self, trace: Trace, target: Tensor) -> None:
        """Let what was given be as torch's view is after a write to `target`."""
        given, root = self.given(), target._graphc_storage.root
        if given is None or given._graphc_trace is not trace:
            if self in trace.picks:
                trace.picks.remove(self)
        elif given._graphc_storage.root is root:
            self._put(given)
        elif self._is_of(root):
            self._read(given, trace)

    def _is_of(self, root: Any) -> bool:
        return current(self.x)._graphc_storage.root is root

    def _read(self, given: Tensor, trace: Trace) -> None:
        """x was written to."""
        now: Tensor = apply(ops.index, self.x, *self.tensors, dim=self.dim)
        trace.write(given, now)
        if local.grad:
            given._graphc_node, given._graphc_output = now._graphc_node, now._graphc_output
        for other in tuple(trace.picks):  # x[i][j]
            if other._is_of(given._graphc_storage.root) and (part := other.given()) is not None:
                other._read(part, trace)

    def _put(self, given: Tensor) -> None:
        """What was given was written to."""
        inplace(self.x, apply(
            ops.index_put, self.x, given, *self.tensors, dim=self.dim, accumulate=False
        ))


def picked(x: Tensor, tensors: Sequence[Tensor], dim: int, given: Tensor) -> Tensor:
    """`given`, which is x at `tensors`, and follows x if torch's is a view."""
    trace = local.trace
    if trace is not None and given._graphc_trace is trace and all(t.ndim == 0 for t in tensors):
        trace.picks.append(Pick(x, tensors, dim, given))
    return given


def is_there(x: Tensor, tensors: Sequence[Tensor], source: Tensor) -> bool:
    """Whether `source` is x at `tensors`, as at the end of x[i] += 1."""
    return local.trace is not None and any(
        pick.given() is source and len(pick.tensors) == len(tensors)
        and all(a is b for a, b in zip(pick.tensors, tensors, strict=True))
        and current(pick.x)._graphc_storage.root is current(x)._graphc_storage.root
        for pick in local.trace.picks
    )


def row_of(shape: Sequence[int], dim: int, places: Sequence[int]) -> Chain:
    """The views that lead from an array of this shape to what lies at `places`, from `dim` on."""
    starts, stops = [0] * len(shape), list(shape)
    for d, place in enumerate(places, dim):
        starts[d] = place + shape[d] if place < 0 else place
        stops[d] = starts[d] + 1
    kept = (*shape[:dim], *shape[dim + len(places):])
    bounds = {"starts": tuple(starts), "stops": tuple(stops), "steps": (1,) * len(shape)}
    return (get_op("slice"), bounds), (get_op("reshape"), {"shape": kept})
