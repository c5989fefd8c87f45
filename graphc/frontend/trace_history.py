"""The tape of a trace: a recorded operation becomes the history of its results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphc.ir.graph import Node

from .functionalize import saved_place
from .nodes import Edge, class_of
from .saved_hooks import hooks, pack_node
from .tensor import Tensor

if TYPE_CHECKING:
    from .trace import Trace


def record(
    trace: Trace, node: Node, inputs: tuple[Node, ...], operands: list[Tensor],
    edges: tuple[Edge | None, ...], results: list[Tensor],
) -> None:
    """Note that `node` made `results` of `operands`, whose values are `inputs`."""
    out_types = tuple([r._traced.type for r in results])
    in_types = tuple([t._traced.type for t in operands])
    attrs = {**node.attrs, "graphs": node.graphs} if node.graphs else dict(node.attrs)
    entry = class_of(node.op)(node.op, attrs, edges, in_types, out_types)
    entry.loc = node.loc
    entry.trace = trace
    # saving a node costs nothing: which values the rule reads is asked only after a write
    entry.saved_in = tuple([saved_place(n, t) for n, t in zip(inputs, operands, strict=True)])
    entry.saved_out = tuple([saved_place(r._traced.value, r) for r in results])
    stamps: list[Any] = []
    for i, tensor in enumerate(operands):
        storage = tensor._storage
        stamps.append((storage, storage.version, i))
    for i, tensor in enumerate(results):
        storage = tensor._storage
        stamps.append((storage, storage.version, ~i))
    entry.stamps = tuple(stamps)
    if hooks.stack and not hooks.busy:
        pack_node(entry, lambda saved: trace.wrap(trace.saved_node(saved)), trace.env)
    for i, result in enumerate(results):
        if out_types[i].dtype.differentiable:
            result._node = entry
            if i:
                result._output = i
