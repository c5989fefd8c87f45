"""Scaled dot-product attention."""

from __future__ import annotations

from ...frontend import functions as T
from ...frontend.dispatch import apply
from ...frontend.tensor import Tensor
from ...ir import ops
from .norm import dropout


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(q k^T * scale + mask) v on [..., L, E]; a bool mask is True where attended."""
    if attn_mask is not None and is_causal:
        raise RuntimeError(
            "_scaled_dot_product_attention: Explicit attn_mask should not be set when "
            "is_causal=True"
        )
    width = query.shape[-1]
    factor = width**-0.5 if scale is None else scale
    if enable_gqa:
        repeats = query.shape[-3] // key.shape[-3]
        key = key.repeat_interleave(repeats, -3)
        value = value.repeat_interleave(repeats, -3)
    if attn_mask is not None and attn_mask.dtype is T.bool:
        attn_mask = T.where(
            attn_mask, T.zeros((), dtype=query.dtype),
            T.full((), float("-inf"), dtype=query.dtype),
        )
    if dropout_p == 0.0:
        inputs = (query, key, value) if attn_mask is None else (query, key, value, attn_mask)
        result: Tensor = apply(ops.attention, *inputs, causal=is_causal, scale=float(factor))
        return result
    scores = query @ key.transpose(-2, -1) * factor
    if is_causal:
        keep = T.ones((query.shape[-2], key.shape[-2]), dtype=T.bool).tril()
        scores = scores.masked_fill(~keep, float("-inf"))
    if attn_mask is not None:
        scores = scores + attn_mask
    return dropout(scores.softmax(-1), dropout_p) @ value
