"""record(): the history of what an operator gave in eager mode.

Each operation on what requires a gradient comes here, so that nodes are made without their classes'
constructors, which take longer than all that they set.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from graphc.ir.op import Attrs, Op
from graphc.ir.types import TensorType

from .anomaly import Anomaly
from .context import local
from .errors import INFERENCE_SAVED, located, user_location
from .history import edge, requires_grad
from .nodes import AccumulateGrad, Edge, OpNode, next_sequence
from .programs import GradientPlan
from .saved_hooks import hooks, pack_node
from .storage import note_read, reads_later
from .tensor import Tensor, from_array

if TYPE_CHECKING:
    from .eager import Signature

_new: Any = object.__new__
_refer = weakref.ref


def record(
    op: Op, inputs: tuple[Tensor, ...], arrays: list[np.ndarray], attrs: Attrs,
    signature: Signature, results: tuple[Tensor, ...],
) -> None:
    """Keep what the operator's gradient needs, if one goes to any input."""
    types = signature.inputs
    edges: tuple[Edge | None, ...]
    needs: tuple[bool, ...]
    if len(inputs) == 1:
        first = _edge_of(inputs[0], types[0])
        edges, needs = (first,), (first is not None,)
    elif len(inputs) == 2:
        first, second = _edge_of(inputs[0], types[0]), _edge_of(inputs[1], types[1])
        edges, needs = (first, second), (first is not None, second is not None)
    else:
        edges = tuple([_edge_of(t, type_) for t, type_ in zip(inputs, types, strict=True)])
        needs = tuple([e is not None for e in edges])
    if True not in needs:
        return
    plan = signature.plans.get(needs)
    if plan is None:
        plan = GradientPlan(op, types, signature.results, attrs, needs)
        signature.plans[needs] = plan
    made: OpNode = _new(plan.kind)  # as OpNode.__init__
    made.edges = edges
    made.out_types = signature.results
    made.sequence = next_sequence()
    made.op = op
    made.attrs = attrs
    made.in_types = types
    made.stamps = ()
    made.plan = plan
    made.saved_in, made.saved_out = plan.no_inputs, plan.no_outputs
    if plan.inputs or plan.outputs:
        _save(made, plan, inputs, arrays, results)
        if local.saved_hooks and not hooks.busy:
            pack_node(made, from_array)
    if Anomaly.enabled:
        made.loc = user_location()
    for i in signature.carrying:
        result = results[i]
        result._graphc_node = made
        if i:
            result._graphc_output = i


def _edge_of(tensor: Tensor, type_: TensorType) -> Edge | None:
    """Where the gradient of an input goes, if one does."""
    if tensor._base is not None:
        return edge(tensor, type_) if requires_grad(tensor) else None
    node = tensor._graphc_node
    if node is not None:
        return node, tensor._graphc_output
    if not tensor._graphc_requires_grad:
        return None
    reference = tensor._graphc_accumulator
    accumulator = None if reference is None else reference()
    if accumulator is None:
        accumulator = _new(AccumulateGrad)  # as AccumulateGrad.__init__
        accumulator.edges = ()
        accumulator.out_types = (type_,)
        accumulator.variable = tensor
        tensor._graphc_accumulator = _refer(accumulator)
    return accumulator, 0


def _save(
    node: OpNode, plan: GradientPlan, inputs: tuple[Tensor, ...], arrays: list[np.ndarray],
    results: tuple[Tensor, ...],
) -> None:
    """Keep what the gradient rule reads, stamped with the version of its memory."""
    stamps: list[Any] = []
    if plan.inputs:
        saved: list[Any] = list(plan.no_inputs)
        for i in plan.inputs:
            saved[i] = arrays[i]
            storage = inputs[i]._graphc_storage
            if storage.inference:
                raise RuntimeError(located(INFERENCE_SAVED))
            stamps.append((storage, storage.version, i))
        node.saved_in = tuple(saved)
    if plan.outputs:
        saved = list(plan.no_outputs)
        for i in plan.outputs:
            saved[i] = results[i]._graphc_array
            storage = results[i]._graphc_storage
            stamps.append((storage, storage.version, ~i))
        node.saved_out = tuple(saved)
    node.stamps = tuple(stamps)
    if plan.late:
        node.late = plan.late
        for storage, _, which in stamps:
            if which in plan.late:
                note_read(storage)
                reads_later(node)
