"""Scaled dot-product attention on [..., L, E], [..., S, E], [..., S, V].

A row that may attend to nothing gives zeros, as torch's. 16-bit floats go through float32.
"""

from __future__ import annotations

import math
from typing import Any

from .. import dtypes
from ..dim import DimEnv
from ..op import Attrs, Op, OpError, register
from ..types import TensorType, Type
from ._rules import accumulation_dtype, cast, filled, ops, select, sum_dims, sum_to, zeros
from ._types import (
    FLOATS,
    Types,
    broadcast_shapes,
    fail,
    require_dtype,
    require_one_dtype,
    same_shape,
    sizes_text,
)


def _attention_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    if len(types) not in (3, 4):
        fail(f"attention takes q, k, v and a mask, got {len(types)} inputs", TypeError)
    q, k, v = types[:3]
    require_dtype("attention", require_one_dtype("attention", types[:3]), FLOATS)
    fits = (
        q.rank == k.rank == v.rank
        and q.rank >= 2
        and same_shape(env, q.shape[:-2], k.shape[:-2])
        and same_shape(env, q.shape[:-2], v.shape[:-2])
        and env.equal(q.shape[-1], k.shape[-1])
        and env.equal(k.shape[-2], v.shape[-2])
    )
    if not fits:
        fail("attention: expected q [..., L, E], k [..., S, E] and v [..., S, V], got "
             f"{sizes_text(q.shape)}, {sizes_text(k.shape)} and {sizes_text(v.shape)}")
    if len(types) == 4:
        _require_mask(q, types[3], (*q.shape[:-1], k.shape[-2]), env)
    return TensorType(q.dtype, (*q.shape[:-1], v.shape[-1]))


def _require_mask(q: TensorType, mask: TensorType, scores: Any, env: DimEnv) -> None:
    if mask.dtype not in (dtypes.bool_, q.dtype):
        fail("Expected attn_mask dtype to be bool or float or to match query dtype, but got "
             f"attn_mask.dtype: {mask.dtype} and query.dtype: {q.dtype}")
    try:
        fits = same_shape(env, broadcast_shapes(env, scores, mask.shape), scores)
    except OpError:
        fits = False
    if not fits:
        fail(f"attention: mask {sizes_text(mask.shape)} cannot be broadcast to scores "
             f"{sizes_text(scores)}")


def _matmul(a: Any, b: Any, contract_a: int, contract_b: int) -> Any:
    """A batched product over one of the last two dims (1 or 2 from the end) of each."""
    rank = len(a.type.shape)
    batch = tuple(range(rank - 2))
    return ops.dot_general(
        a, b, batch_a=batch, batch_b=batch, contract_a=(rank - contract_a,),
        contract_b=(rank - contract_b,),
    )


def _probabilities(q: Any, k: Any, masks: Any, causal: bool, scale: float) -> Any:
    """softmax(scale * q @ k.T + mask), 0 throughout a row that is masked throughout."""
    scores = _matmul(q, k, 1, 1) * scale
    dtype, shape = scores.type.dtype, scores.type.shape
    last = len(shape) - 1
    for mask in masks:
        if mask.type.dtype is dtypes.bool_:
            scores = select(mask, scores, -math.inf)
        else:
            scores = scores + cast(mask, dtype)
    if causal:
        square = shape[-2:]
        row = ops.iota.like(q, shape=square, dim=0, dtype=dtypes.i64)
        column = ops.iota.like(q, shape=square, dim=1, dtype=dtypes.i64)
        scores = select(ops.ge(row, column), scores, -math.inf)
    peak = ops.amax(scores, dims=(last,), keepdim=True)
    if masks:
        peak = select(ops.eq(peak, -math.inf), 0.0, peak)  # -inf - -inf would be NaN
    e = ops.exp(scores - peak)
    total = sum_dims(e, (last,), keepdim=True)
    if masks:
        total = select(ops.eq(total, 0.0), 1.0, total)
    return e / total


def _attention(q: Any, k: Any, v: Any, *masks: Any, causal: bool, scale: float) -> Any:
    dtype = q.type.dtype
    if k.type.shape[-2] == 0:  # nothing to attend to
        return filled(q, (*q.type.shape[:-1], v.type.shape[-1]), 0, dtype)
    wide = accumulation_dtype(dtype)
    q, k, v = (cast(x, wide) for x in (q, k, v))
    return cast(_matmul(_probabilities(q, k, masks, causal, scale), v, 1, 2), dtype)


def _attention_vjp(
    grads: Any, inputs: Any, outs: Any, needs: Any, *, causal: bool, scale: float
) -> Any:
    """The probabilities are computed again: q, k, v and the result are all that is kept."""
    q, k, v, *masks = inputs
    dtype = q.type.dtype
    if k.type.shape[-2] == 0:
        return [zeros(x) if needed else None for x, needed in zip(inputs, needs, strict=True)]
    wide = accumulation_dtype(dtype)
    q, k, v, g, out = (cast(x, wide) for x in (q, k, v, grads[0], outs[0]))
    results: list[Any] = [None] * len(inputs)
    probabilities = _probabilities(q, k, masks, causal, scale)
    if needs[2]:
        results[2] = cast(_matmul(probabilities, g, 2, 2), dtype)
    differentiable_mask = bool(masks) and masks[0].type.dtype.is_float and needs[3]
    if not (needs[0] or needs[1] or differentiable_mask):
        return results
    last = len(g.type.shape) - 1
    # sum(p * dp) over the keys, from the shorter row of the result
    slope = sum_dims(g * out, (last,), keepdim=True)
    g_scores = probabilities * (_matmul(g, v, 1, 1) - slope)
    if needs[0]:
        results[0] = cast(_matmul(g_scores, k, 1, 2) * scale, dtype)
    if needs[1]:
        results[1] = cast(_matmul(g_scores, q, 2, 2) * scale, dtype)
    if differentiable_mask:
        results[3] = cast(sum_to(g_scores, masks[0].type.shape), dtype)
    return results


register(
    Op(
        "attention", "composite", _attention_type, _attention_vjp, _attention,
        attrs=("causal", "scale"), domain=(-3.0, 3.0),
        doc="softmax(scale * q @ k.T + mask) @ v; the mask is bool (True attends) or added; "
        "`causal` lets row i attend to the first i + 1.",
    )
)
