"""The tape of a trace: a recorded operation becomes the history of its results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphc.ir.autodiff import saved_values
from graphc.ir.graph import Node

from .context import local
from .errors import INFERENCE_SAVED, located
from .functionalize import saved_place
from .history import edge
from .hooks import captured
from .nodes import Edge, OpNode, OutsideHistory, class_of
from .saved_hooks import hooks, pack_node
from .tensor import Tensor
from .unsaved import UNSAVED, keep_values

if TYPE_CHECKING:
    from .trace import Trace


def record(
    trace: Trace, node: Node, inputs: tuple[Node, ...], operands: list[Tensor],
    edges: tuple[Edge | None, ...], results: list[Tensor],
) -> None:
    """Note that `node` made `results` of `operands`, whose values are `inputs`."""
    out_types = tuple([r._graphc_traced.type for r in results])
    in_types = tuple([t._graphc_traced.type for t in operands])
    attrs = {**node.attrs, "graphs": node.graphs} if node.graphs else dict(node.attrs)
    entry = class_of(node.op)(node.op, attrs, edges, in_types, out_types)
    entry.loc = node.loc
    entry.trace = trace
    # saving a node costs nothing: which values the rule reads is asked only after a write
    entry.saved_in = tuple([saved_place(n, t) for n, t in zip(inputs, operands, strict=True)])
    entry.saved_out = tuple([saved_place(r._graphc_traced.value, r) for r in results])
    stamps: list[Any] = []
    for i, tensor in enumerate(operands):
        storage = tensor._graphc_storage
        stamps.append((storage, storage.version, i))
        if storage.inference and i in _read(entry, trace):
            raise RuntimeError(located(INFERENCE_SAVED))
    for i, tensor in enumerate(results):
        storage = tensor._graphc_storage
        stamps.append((storage, storage.version, ~i))
    entry.stamps = tuple(stamps)
    if node.op.name in UNSAVED:
        keep_values(entry, UNSAVED[node.op.name])
    if local.saved_hooks and not hooks.busy:
        pack_node(entry, lambda saved: trace.wrap(trace.saved_node(saved)), trace.env)
    for i, result in enumerate(results):
        if out_types[i].dtype.differentiable:
            result._graphc_node = entry
            if i:
                result._graphc_output = i


def _read(entry: OpNode, trace: Trace) -> tuple[int, ...]:
    """Which operands the gradient rule of an entry reads."""
    needs = [e is not None for e in entry.edges]
    return saved_values(entry.op, entry.in_types, entry.attrs, needs, trace.env)[0]


def enter(trace: Trace, tensor: Tensor, shadow: Tensor) -> None:
    """Note where the gradient of a captured tensor goes, which `shadow` stands for."""
    type_ = shadow._graphc_traced.type
    if tensor._graphc_node is not None:
        shadow._graphc_node = OutsideHistory(tensor, type_)
        trace.outside.add(shadow._graphc_node)
    elif tensor._graphc_requires_grad:
        shadow._graphc_requires_grad = True
        if tensor._graphc_hooks:
            shadow._graphc_hooks = captured(tensor._graphc_hooks, trace.existed)
        if tensor._graphc_post_hooks:
            shadow._graphc_post_hooks = captured(tensor._graphc_post_hooks, trace.existed)
    else:  # a view made in no_grad mode: nobody gets it
        shadow._graphc_node = edge(tensor, type_)[0]
        trace.outside.add(shadow._graphc_node)
        return
    place = entry_edge(shadow, tensor)
    captured(place[0].pre_hooks or {}, trace.existed)
    captured(place[0].post_hooks or {}, trace.existed)
    place[0].position = ~len(trace.entries)
    trace.entries.append((tensor, place))


def entry_edge(shadow: Tensor, tensor: Tensor) -> Edge:
    """edge(shadow), with the hooks on the node where the tensor's own gradient arrives."""
    place = edge(shadow)
    known = None if tensor._graphc_accumulator is None else tensor._graphc_accumulator()
    if known is not None and shadow._graphc_node is None:
        place[0].pre_hooks, place[0].post_hooks = known.pre_hooks, known.post_hooks
    return place
