"""How a leaf's gradient lies in memory: as the leaf does, where that has no gaps, else row-major
(torch's gradient layout contract)."""

from __future__ import annotations

from typing import Any

from graphc.ir import ops
from graphc.ir.dim import DimEnv
from graphc.ir.memory import Buffer, copied, inverse, zeros_like

from .dispatch import apply
from .functionalize import TracedState, dense_order
from .layouts import NotDense
from .storage import strides_of
from .tensor import Tensor, current, from_array

Order = tuple[int, ...]  # dims, those that are farthest apart in memory first


def order_of(buffer: Buffer) -> Order | None:
    """The order of a buffer without gaps that is not row-major; None: of any other."""
    if buffer.flags.c_contiguous:
        return None
    strides = buffer.strides
    order = tuple(sorted(range(buffer.ndim), key=lambda dim: (-strides[dim], dim)))
    return order if buffer.transpose(order).flags.c_contiguous else None


def _traced_order(leaf: Tensor, env: DimEnv) -> Order | None:
    """The same of a recorded leaf, whose sizes may be symbolic."""
    state = leaf._graphc_traced
    if state.is_contiguous():
        return None
    return dense_order(state.type.shape, state.strides, env)


def for_leaf(tensor: Tensor, leaf: Tensor, create_graph: bool) -> Tensor:
    """A first gradient, for a leaf's `.grad`: memory of its own, in the order of the leaf's. With
    `create_graph` it keeps its history, and may be what was given."""
    trace = tensor._graphc_trace
    if trace is not None:
        state = current(leaf)
        known = state._graphc_trace is trace
        order = _traced_order(state, trace.env) if known else order_of(state._graphc_array)
        strides = None
        if order is not None:
            strides = state._graphc_traced.strides if known else strides_of(state._graphc_array)
        if not create_graph:
            return trace.wrap(trace.read(tensor), strides)
        if strides is None or tensor._graphc_traced.strides == strides:
            return tensor
        made: Tensor = current(apply(ops.cast, tensor, dtype=tensor.dtype))
        old = made._graphc_traced
        made._graphc_traced = TracedState(old.type, old.value, old.stamp, trace, (), strides)
        made._graphc_storage.layout = strides
        return made
    try:
        order = order_of(leaf._graphc_array)
        array: Any = tensor._graphc_array
    except NotDense:  # one of them is sparse
        return tensor if create_graph else tensor._graphc_apart()
    if not create_graph:
        return from_array(in_order(array, order))
    if order is None or array.transpose(order).flags.c_contiguous:
        return tensor
    made = current(apply(ops.cast, tensor, dtype=tensor.dtype))
    made._graphc_array = made._graphc_storage.array = in_order(array, order)
    return made


def zeros_for(leaf: Tensor) -> Tensor:
    """Zeros that lie as a leaf's gradient."""
    array = leaf._graphc_array
    order = order_of(array)
    if order is None:
        return from_array(zeros_like(array))
    return from_array(zeros_like(array.transpose(order)).transpose(inverse(order)))


def in_order(buffer: Buffer, order: Order | None) -> Buffer:
    """A copy that lies in memory so."""
    if order is None:
        return copied(buffer)
    return copied(buffer.transpose(order)).transpose(inverse(order))
