"""How the results of recorded operators lie in memory, in torch's logical strides. Eager mode's
backends do the same with arrays (`backends/numpy/order.py`, `placement.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphc.ir import ops
from graphc.ir.channels import (
    last_strides,
    operands_suggest,
    suggests_channels_last,
    with_channels_last,
)
from graphc.ir.dim import DimEnv
from graphc.ir.memory import contiguous, inverse
from graphc.ir.op import Op
from graphc.ir.types import Shape

from .context import local
from .dispatch import apply
from .functionalize import TracedState, dense_order, is_contiguous
from .storage import contiguous_strides
from .tensor import Tensor, current


def result_strides(op: Op, states: Sequence[Tensor], shape: Shape, env: DimEnv) -> Shape | None:
    """Of an operator on recorded tensors; None stands for row-major."""
    if op.keeps_order:
        return _as_the_first(states, shape, env)
    if op.keeps_channels:
        return _channels_kept(op, states, shape, env)
    return None


def _as_the_first(states: Sequence[Tensor], shape: Shape, env: DimEnv) -> Shape | None:
    """The layout of the first operand of the result's shape, without its gaps."""
    for tensor in states:
        state = tensor._graphc_traced
        if state.type.shape == shape:
            if state.is_contiguous():
                return None
            if dense_order(shape, state.strides, env) is not None:
                return state.strides
            return _without_gaps(shape, state.strides, env)
    return None


def _channels_kept(
    op: Op, states: Sequence[Tensor], shape: Shape, env: DimEnv
) -> Shape | None:
    traced = [tensor._graphc_traced for tensor in states]
    if all(state._rows for state in traced):
        return None
    known = [_hints(state, env) for state in traced]
    asked = operands_suggest(op, traced[0].type.dtype, len(shape), known)
    return last_strides(shape) if asked else None


def _hints(state: TracedState, env: DimEnv) -> tuple[Any, Any]:
    """The shape and strides, symbolic ones as they are at this recording."""
    return [env.hint(n) for n in state.type.shape], [env.hint(n) for n in state.strides]


def _without_gaps(shape: Shape, strides: Shape, env: DimEnv) -> Shape | None:
    """Dense strides with the dimensions in the same order; None: row-major, or an expanded one."""
    if 0 in strides:
        return None
    order = sorted(range(len(shape)), key=lambda i: (-env.hint(strides[i]), i))
    dense = contiguous_strides(tuple([shape[i] for i in order]))
    found = tuple([dense[order.index(i)] for i in range(len(shape))])
    return None if is_contiguous(shape, found) else found


def in_rows(result: Tensor) -> Tensor:
    """What a function has just made, row-major."""
    return with_layout(result, False)


def as_suggested(result: Tensor, like: Tensor) -> Tensor:
    """What a function made of several operators that torch computes at once, with memory of its
    own: channels last where those of `like` are (suggest_memory_format), else row-major."""
    return with_layout(result, result.ndim in (4, 5) and suggests_last(like))


def suggests_last(x: Tensor) -> bool:
    """Whether a tensor counts as one with its channels last."""
    state = current(x)
    if state._graphc_trace is not None:
        return suggests_channels_last(*_hints(state._graphc_traced, state._graphc_trace.env))
    if local.counted is not None:
        local.counted.looked()
    array = state._graphc_array
    return suggests_channels_last(array.shape, array.strides)


def lies_in_rows(array: Any) -> bool:
    """Whether it is row-major, and nobody takes it for one with its channels last."""
    return array.flags.c_contiguous and not (
        array.ndim > 3 and array.shape[1] == 1
        and suggests_channels_last(array.shape, array.strides)
    )


def in_order_of(result: Tensor, like: Tensor) -> Tensor:
    """What a function has just made, of the shape of `like`, with its dims in the order of that
    one's memory (torch.empty_like); row-major where the last one's elements are apart there."""
    made, model = current(result), current(like)
    trace = made._graphc_trace
    if trace is not None:
        shape = made._graphc_traced.type.shape
        strides = _as_the_first((model,), shape, trace.env)
        return result if strides is None or strides[-1] != 1 else _recorded_with(made, strides)
    if local.counted is not None:
        local.counted.looked()
    source = model._graphc_array
    if source.flags.c_contiguous or 0 in source.strides or source.strides[-1] != source.itemsize:
        return result
    order = sorted(range(source.ndim), key=lambda dim: (-source.strides[dim], dim))
    if source.shape != made._graphc_array.shape or order == [*range(source.ndim)]:
        return result
    if local.counted is not None:
        local.counted.wrote()
    made = _fresh(made)
    turned = contiguous(made._graphc_array.transpose(order)).transpose(inverse(order))
    made._graphc_array = made._graphc_storage.array = turned
    return made


def with_layout(result: Tensor, last: bool) -> Tensor:
    """What a function has just made, with its channels last or row-major."""
    made = current(result)
    trace = made._graphc_trace
    if trace is None:
        if local.counted is not None:
            local.counted.looked()
        if made._graphc_array.flags.c_contiguous and not last:
            return result
        if local.counted is not None:
            local.counted.wrote()
        made = _fresh(made)
        array = made._graphc_array
        made._graphc_array = made._graphc_storage.array = (
            with_channels_last(array) if last else contiguous(array)
        )
    elif last or not made._graphc_traced.is_contiguous():
        shape = made._graphc_traced.type.shape
        return _recorded_with(made, last_strides(shape) if last else None)
    return made


def _recorded_with(made: Tensor, strides: Shape | None) -> Tensor:
    made = _fresh(made)
    state = made._graphc_traced
    made._graphc_traced = TracedState(
        state.type, state.value, state.stamp, made._graphc_trace, (), strides
    )
    made._graphc_storage.layout = strides
    return made


def _fresh(result: Tensor) -> Tensor:
    """The tensor, which nobody else has seen, or a copy of it where it is somebody's view."""
    if result._base is None and (
        result._graphc_trace is None or not result._graphc_traced.path
    ):
        return result
    copied: Tensor = apply(ops.cast, result, dtype=result.dtype)
    return current(copied)
