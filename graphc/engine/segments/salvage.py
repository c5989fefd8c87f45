"""A segment that fails: what does not depend on the operator that failed happens all the same.

The error comes where the segment ends, when Python is past the operator (an index out of range). So
what Python stored and wrote by then is there, as in eager mode; only what was to be computed from
the operator is not: tensors that hold such values are dead, and memory keeps its former values.
Nor are gradients, and optimizers make no step: a rule may do without the value that failed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...backends.numpy.ops import TABLE
from ...frontend.captured import UNREAD
from ...frontend.nodes import Node as GradNode
from ...frontend.nodes import OpNode
from ...frontend.segment_close import Segment
from ...frontend.tape_order import order_of
from ...frontend.tensor import Tensor
from ...ir.graph import Graph, Node
from ...ir.interpret import evaluate
from ..version.refused import ERRORS


def leave_out_failed(segment: Segment) -> bool:
    """Make the recording of a segment that failed one that does not; False: it cannot be done."""
    lost = _lost(segment)
    if not lost:
        return False
    trace = segment.trace
    trace.failing.clear()
    for source, root in trace.sources:
        if root.parent is None and root.node in lost:
            root.rebind(_before(root.node, lost, source.node), tracked=False)
    histories: dict[GradNode, bool] = {}

    def is_lost(tensor: Tensor) -> bool:
        root, _ = tensor._graphc_storage.resolve(tensor._graphc_traced.path)
        if root.node in lost:
            return True
        node = tensor._graphc_node
        if node is None:
            return False
        if node not in histories:
            histories[node] = any(_reads(each, lost) for each in order_of([node]))
        return histories[node]

    kept = [t for t in segment.living if not is_lost(t)]
    ids = set(map(id, kept))
    trace.handles = [handle for handle in trace.handles if id(handle()) in ids]
    for number, (_, shadow) in list(trace.shadows.items()):
        grad: Any = shadow._grad
        if is_lost(shadow):
            del trace.shadows[number]
            trace.rebound.pop(number, None)
        elif isinstance(grad, Tensor) and grad._graphc_trace is trace and id(grad) not in ids:
            shadow._grad = UNREAD
    return True


def _reads(node: GradNode, lost: set[Node]) -> bool:
    """Whether a node of the tape has saved a value that is lost."""
    if not isinstance(node, OpNode) or node.packed:
        return False
    saved = (*(node.saved_in or ()), *(node.saved_out or ()))
    return any(s is not None and s[0] in lost for s in saved)


def _before(node: Node, lost: set[Node], first: Node) -> Node:
    """What memory held before the writes that are lost."""
    while node in lost:
        if node.op.name not in _PARTIAL:
            return first
        node = node.inputs[0]
    return node


# operators that write to a part of their first input
_PARTIAL = frozenset(("slice_update", "as_strided_update", "index_put", "scatter"))


class _Lost:
    """In place of a value, or of several, that depends on an operator that failed."""

    def __getitem__(self, index: Any) -> _Lost:
        return self


class _Table(dict[str, Callable[..., Any]]):
    """NumPy's functions, which give a _Lost where they fail, or get one."""

    def __missing__(self, name: str) -> Callable[..., Any]:
        function = TABLE[name]

        def run(*inputs: Any, **attrs: Any) -> Any:
            if any(type(value) is _Lost for value in inputs):
                return _Lost()
            try:
                return function(*inputs, **attrs)
            except ERRORS:
                return _Lost()

        return run


def _lost(segment: Segment) -> set[Node]:
    """The nodes of a recording that cannot be computed."""
    trace, failed = segment.trace, set[Node]()

    def observe(node: Node, value: Any) -> None:
        if type(value) is _Lost:
            failed.add(node)

    inputs = tuple([source.node for source in segment.inputs])
    graph = Graph(trace.name, inputs, tuple(segment.outputs), trace.env)
    try:
        evaluate(graph, segment.arrays(), _Table(), observe=observe)
    except ERRORS:  # inside a loop or a branch
        return set()
    lost: set[Node] = set()
    for node in graph.nodes if failed else ():
        in_optimizer = node.loc is not None and node.loc.optimizer
        if node in failed or node.backward or in_optimizer or not lost.isdisjoint(node.inputs):
            lost.add(node)
    return lost
