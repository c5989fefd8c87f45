"""Scaled dot-product attention on [..., L, E], [..., S, E], [..., S, V], and its gradient.

Attention also gives the log of each row's sum of exponentials, [..., L]: with it a gradient makes
each probability again from its score alone, so that no [L, S] tensor need be kept, or made at all
(Dao et al. 2022, arXiv:2205.14135). 16-bit floats go through float32. With `dropout`, the last
input says which probabilities are kept: they are divided by 1 - dropout, the others are 0. It is a
bool of the scores' shape, or what that is drawn from (`_counter.DRAW`), made where it is needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .. import dtypes
from ..dim import DimEnv
from ..op import Attrs, Op, OpError, register
from ..rounding import DELICATE
from ..types import TensorType, TupleType, Type
from ._counter import DRAW, chosen_of, in_32_bits
from ._rules import accumulation_dtype, cast, filled, ops, reshape, select, sum_dims, sum_to, zeros
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
    dropped = "dropout" in attrs
    if len(types) - dropped not in (3, 4):
        fail(f"attention takes q, k, v, a mask, and with dropout what is kept, got {len(types)} "
             "inputs", TypeError)
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
    scores = (*q.shape[:-1], k.shape[-2])
    if len(types) - dropped == 4:
        _require_mask(q, types[3], scores, env)
    if dropped:
        _require_kept(types[-1], attrs["dropout"], scores, env)
    lse = TensorType(accumulation_dtype(q.dtype), q.shape[:-1])
    return TupleType((TensorType(q.dtype, (*q.shape[:-1], v.shape[-1])), lse))


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


def _require_kept(kept: TensorType, dropout: float, scores: Any, env: DimEnv) -> None:
    drawn = kept == DRAW and in_32_bits(1.0 - dropout)
    if not drawn and (kept.dtype is not dtypes.bool_ or not same_shape(env, kept.shape, scores)):
        fail(f"attention: what dropout keeps is bool {sizes_text(scores)}, got {kept}")
    if not 0.0 < dropout < 1.0:
        fail(f"attention: dropout is between 0 and 1, not {dropout}")


def _masks(rest: Sequence[Any], dropout: float) -> Sequence[Any]:
    """The masks, one or none, among the last inputs."""
    return rest[:-1] if dropout else rest


def _kept(q: Any, k: Any, rest: Sequence[Any], dropout: float) -> Any:
    """What dropout keeps; None where nothing is dropped."""
    if not dropout:
        return None
    if rest[-1].type.dtype is dtypes.bool_:
        return rest[-1]
    return chosen_of(rest[-1], (*q.type.shape[:-1], k.type.shape[-2]), 1.0 - dropout)


def _thin(x: Any, kept: Any, dropout: float) -> Any:
    """x where it is kept, scaled; x itself where nothing is dropped."""
    return x if kept is None else select(kept, x * (1.0 / (1.0 - dropout)), 0.0)


def _widened(rest: Sequence[Any], wide: Any) -> list[Any]:
    return [cast(x, wide) if x.type.dtype.is_float else x for x in rest]


def _options(dropout: float) -> dict[str, float]:
    """The attribute, which only nodes with dropout have."""
    return {"dropout": dropout} if dropout else {}


def _matmul(a: Any, b: Any, contract_a: int, contract_b: int) -> Any:
    """A batched product over one of the last two dims (1 or 2 from the end) of each."""
    rank = len(a.type.shape)
    batch = tuple(range(rank - 2))
    return ops.dot_general(
        a, b, batch_a=batch, batch_b=batch, contract_a=(rank - contract_a,),
        contract_b=(rank - contract_b,),
    )


def _scores(q: Any, k: Any, masks: Any, causal: bool, scale: float) -> Any:
    """scale * q @ k.T + mask, -inf where a query does not attend."""
    scores = _matmul(q, k, 1, 1) * scale
    for mask in masks:
        if mask.type.dtype is dtypes.bool_:
            scores = select(mask, scores, -math.inf)
        else:
            scores = scores + cast(mask, scores.type.dtype)
    if causal:
        square = scores.type.shape[-2:]
        row = ops.iota.like(q, shape=square, dim=0, dtype=dtypes.i64)
        column = ops.iota.like(q, shape=square, dim=1, dtype=dtypes.i64)
        scores = select(ops.ge(row, column), scores, -math.inf)
    return scores


def _attention(
    q: Any, k: Any, v: Any, *rest: Any, causal: bool, scale: float, dropout: float = 0.0
) -> Any:
    dtype, wide = q.type.dtype, accumulation_dtype(q.type.dtype)
    if dtype is not wide:
        inputs = [*(cast(x, wide) for x in (q, k, v)), *_widened(rest, wide)]
        out, lse = ops.attention(*inputs, causal=causal, scale=scale, **_options(dropout))
        return cast(out, dtype), lse
    masks = _masks(rest, dropout)
    rows = q.type.shape[:-1]
    if k.type.shape[-2] == 0:  # nothing to attend to
        return filled(q, (*rows, v.type.shape[-1]), 0, dtype), filled(q, rows, math.inf, dtype)
    scores = _scores(q, k, masks, causal, scale)
    last = len(rows)
    peak = ops.amax(scores, dims=(last,), keepdim=True)
    # a row of nothing but -inf, from a mask or by overflow: its result is 0, as PyTorch's is
    peak = select(ops.eq(peak, -math.inf), 0.0, peak)
    e = ops.exp(scores - peak)
    total = sum_dims(e, (last,), keepdim=True)
    lse = peak + ops.log(total)
    nothing = ops.eq(total, 0.0)
    lse = select(nothing, math.inf, lse)
    total = select(nothing, 1.0, total)
    p = _thin(e / total, _kept(q, k, rest, dropout), dropout)
    return _matmul(p, v, 1, 2), reshape(lse, rows)


def _attention_vjp(
    grads: Any, inputs: Any, outs: Any, needs: Any, *, causal: bool, scale: float,
    dropout: float = 0.0,
) -> Any:
    """From q, k, v, the result and its log-sum-exp; the probabilities are made again."""
    q, k, v, *rest = inputs
    masks = _masks(rest, dropout)
    dtype = q.type.dtype
    if k.type.shape[-2] == 0:
        return [zeros(x) if needed else None for x, needed in zip(inputs, needs, strict=True)]
    lse = outs[1]
    wide = lse.type.dtype
    g = filled(q, outs[0].type.shape, 0, dtype) if grads[0] is None else grads[0]
    # sum(p * dp) over the keys, from the shorter row of the result
    slope = sum_dims(cast(g, wide) * cast(outs[0], wide), (len(lse.type.shape),))
    if grads[1] is not None:
        slope = slope - grads[1]
    results: list[Any] = [None] * len(inputs)
    if any(needs[:3]):
        results[:3] = ops.attention_grad(
            q, k, v, g, lse, slope, *rest, causal=causal, scale=scale, **_options(dropout)
        )
    if masks and masks[0].type.dtype.is_float and needs[3]:
        q, k, v, g = (cast(x, wide) for x in (q, k, v, g))
        parts = _Parts(q, k, v, g, lse, slope, rest, causal, scale, dropout)
        results[3] = cast(sum_to(parts.g_scores, masks[0].type.shape), masks[0].type.dtype)
    return [x if needed else None for x, needed in zip(results, needs, strict=True)]


class _Parts:
    """The [L, S] tensors of a gradient: probabilities, their gradient less its slope, and the
    gradient of the scores."""

    def __init__(
        self, q: Any, k: Any, v: Any, g: Any, lse: Any, slope: Any, rest: Any, causal: bool,
        scale: float, dropout: float,
    ) -> None:
        masks = _masks(rest, dropout)
        self._kept, self._dropout = _kept(q, k, rest, dropout), dropout
        column = (*lse.type.shape, 1)
        self.p = ops.exp(_scores(q, k, masks, causal, scale) - reshape(lse, column))
        self.rise = self.thin(_matmul(g, v, 1, 1)) - reshape(slope, column)
        self.g_scores = self.p * self.rise

    def thin(self, x: Any) -> Any:
        """What dropout leaves of x."""
        return _thin(x, self._kept, self._dropout)


def _grad_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    if len(types) < 6:
        fail(f"attention_grad takes q, k, v, g, lse, slope and more, got {len(types)} inputs",
             TypeError)
    q, k, v, g, lse, slope = types[:6]
    made = _attention_type((q, k, v, *types[6:]), attrs, env)
    assert isinstance(made, TupleType)
    out, row = made.elements
    fits = (
        g.dtype is out.dtype and same_shape(env, g.shape, out.shape)
        and all(x.dtype is row.dtype and same_shape(env, x.shape, row.shape) for x in (lse, slope))
    )
    if not fits:
        fail(f"attention_grad: expected g {out} and lse, slope {row}, got {g}, {lse}, {slope}")
    return TupleType((q, k, v))


def _attention_grad(
    q: Any, k: Any, v: Any, g: Any, lse: Any, slope: Any, *rest: Any, causal: bool, scale: float,
    dropout: float = 0.0,
) -> Any:
    dtype, wide = q.type.dtype, lse.type.dtype
    if dtype is not wide:
        inputs = [*(cast(x, wide) for x in (q, k, v, g)), lse, slope, *_widened(rest, wide)]
        found = ops.attention_grad(*inputs, causal=causal, scale=scale, **_options(dropout))
        return tuple(cast(x, dtype) for x in found)
    if k.type.shape[-2] == 0:
        return zeros(q), zeros(k), zeros(v)
    parts = _Parts(q, k, v, g, lse, slope, rest, causal, scale, dropout)
    return (
        _matmul(parts.g_scores, k, 1, 2) * scale, _matmul(parts.g_scores, q, 2, 2) * scale,
        _matmul(parts.thin(parts.p), g, 2, 2),
    )


def _attention_grad_vjp(
    grads: Any, inputs: Any, outs: Any, needs: Any, *, causal: bool, scale: float,
    dropout: float = 0.0,
) -> Any:
    """Of second order: through [L, S] tensors."""
    types = [x.type for x in inputs]
    wide = types[4].dtype
    if types[1].shape[-2] == 0:
        return [zeros(x) if needed else None for x, needed in zip(inputs, needs, strict=True)]
    q, k, v, g = (cast(x, wide) for x in inputs[:4])
    lse, slope, *rest = inputs[4:]
    to_q, to_k, to_v = (
        filled(q, x.type.shape, 0, wide) if grad is None else cast(grad, wide)
        for grad, x in zip(grads, (q, k, v), strict=True)
    )
    parts = _Parts(q, k, v, g, lse, slope, rest, causal, scale, dropout)
    scaled = parts.g_scores * scale
    of_g_scores = (_matmul(to_q, k, 1, 1) + _matmul(q, to_k, 1, 1)) * scale
    of_rise = of_g_scores * parts.p
    of_p = parts.thin(_matmul(g, to_v, 1, 1)) + of_g_scores * parts.rise
    of_scores, of_products = of_p * parts.p, parts.thin(of_rise)
    last = (len(lse.type.shape),)
    found = [
        _matmul(of_scores, k, 1, 2) * scale + _matmul(scaled, to_k, 1, 2),
        _matmul(of_scores, q, 2, 2) * scale + _matmul(scaled, to_q, 2, 2),
        _matmul(of_products, g, 2, 2),
        _matmul(of_products, v, 1, 2) + _matmul(parts.thin(parts.p), to_v, 1, 2),
        -sum_dims(of_scores, last), -sum_dims(of_rise, last),
        *(sum_to(of_scores, mask.type.shape) for mask in _masks(rest, dropout)),
        *([None] if dropout else []),
    ]
    return [
        cast(x, type_.dtype) if needed and type_.dtype.is_float else None
        for x, type_, needed in zip(found, types, needs, strict=True)
    ]


_DROPOUT = frozenset({"dropout"})

register(
    Op(
        "attention", "composite", _attention_type, _attention_vjp, _attention, results=2,
        attrs=("causal", "scale"), optional=_DROPOUT, domain=(-3.0, 3.0),
        cost=None, rounding=DELICATE, takes_complex=False,
        doc="(softmax(scale * q @ k.T + mask) @ v, the log of each row's sum of exponentials); the "
        "mask is bool (True attends) or added; `causal` lets row i attend to the first i + 1. A "
        "row that a mask lets attend to nothing gives zeros, and infinity. With `dropout` the last "
        "input is the probabilities that are kept, bool [..., L, S], or what they are drawn from.",
    )
)
register(
    Op(
        "attention_grad", "composite", _grad_type, _attention_grad_vjp, _attention_grad, results=3,
        attrs=("causal", "scale"), optional=_DROPOUT, domain=(-3.0, 3.0),
        cost=None, rounding=DELICATE, takes_complex=False,
        doc="(dq, dk, dv) from q, k, v, the result's gradient g, lse, slope and a mask: with p = "
        "exp(scores - lse) and s = p * (g @ v.T - slope), dv = p.T @ g, dq = scale * s @ k and "
        "dk = scale * s.T @ q. slope [..., L] is sum(g * result), less the gradient of lse. With "
        "`dropout` p of dv, and g @ v.T, are 0 where not kept, else divided by 1 - dropout.",
    )
)
