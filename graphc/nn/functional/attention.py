"""Scaled dot-product attention."""

from __future__ import annotations

import math
from typing import Any

from ...frontend import functions as T
from ...frontend.autocast import listed
from ...frontend.dispatch import apply
from ...frontend.errors import located
from ...frontend.functions.arguments import named
from ...frontend.functions.dtype_names import CPP_NAMES
from ...frontend.replayed import replayed
from ...frontend.result_layouts import in_order_of
from ...frontend.tensor import Tensor
from ...ir import ops
from .activation import softmax
from .conv import linear
from .norm import dropout
from .padding import pad


@listed
def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(q k^T * scale + mask) v on [..., L, E]; a bool mask is True where attended."""
    often = not dropout_p and (attn_mask is None or not is_causal)
    run = _attended_again if often else _attended
    result = run(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    widths = query.shape[-1] == key.shape[-1] == value.shape[-1]
    if query.dim() != 4 or dropout_p or not widths or (
        attn_mask is not None and attn_mask.requires_grad
    ):
        return result
    return in_order_of(result, query)  # as torch's kernel for the CPU lays it out


def _attended(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None, dropout_p: float,
    is_causal: bool, scale: float | None, enable_gqa: bool,
) -> Tensor:
    if attn_mask is not None and is_causal:
        attn_mask = _causal_too(query, key, value, attn_mask, dropout_p)
        is_causal = False
    if query.dtype is not key.dtype or query.dtype is not value.dtype:
        found = [f"{n}.dtype: {CPP_NAMES[x.dtype]}" for n, x in zip(
            ("query", "key", "value"), (query, key, value), strict=True
        )]
        raise RuntimeError(located(
            "Expected query, key, and value to have the same dtype, but got "
            f"{found[0]} {found[1]} and {found[2]} instead."
        ))
    width = query.shape[-1]
    factor = scale if scale is not None else width**-0.5 if width else 1.0
    if enable_gqa:
        heads, *groups = [x.shape[-3] for x in (query, key, value)]
        if min(groups) < 1 or any(heads % n for n in groups):
            raise RuntimeError(located(
                "scaled_dot_product_attention: Number of heads in key and value must divide the "
                f"number of heads in query, but {heads} is no multiple of {groups[0]} and "
                f"{groups[1]}"
            ))
        key, value = (_repeated(x, heads // n) for x, n in zip((key, value), groups, strict=True))
    if attn_mask is not None and attn_mask.dtype is T.bool:
        attn_mask = T.where(
            attn_mask, T.zeros((), dtype=query.dtype),
            T.full((), float("-inf"), dtype=query.dtype),
        )
    query, key, value = _one_batch(query, key, value)
    inputs = (query, key, value) if attn_mask is None else (query, key, value, attn_mask)
    attrs = {"causal": is_causal, "scale": float(factor)}
    if dropout_p > 1.0:
        raise RuntimeError(located(
            f"dropout probability has to be between 0 and 1, but got {dropout_p}"
        ))
    if 0.0 < dropout_p < 1.0:
        scores = (*query.shape[:-1], key.shape[-2])
        mask = T.empty(scores, dtype=T.bool, device=query.device)
        inputs = (*inputs, mask.bernoulli_(1 - dropout_p))
        attrs["dropout"] = dropout_p
    result: Tensor
    result, _ = apply(ops.attention, *inputs, **attrs)
    if dropout_p == 1.0:
        return result * 0.0
    return result if query.dim() == 4 and not dropout_p else named(result, "UnsafeViewBackward0")


_attended_again = replayed(_attended)


def _causal_too(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, dropout_p: float
) -> Tensor:
    """The mask of what a mask and causality let through. Raises RuntimeError where torch's kernel
    for the CPU, which alone takes both, would not run."""
    widths = {query.shape[-1], key.shape[-1], value.shape[-1]}
    takes_both = len(widths) == 1 and query.dim() == 4 and mask.dim() in (2, 4)
    if not takes_both or dropout_p > 0.0 or mask.requires_grad:
        raise RuntimeError(located(
            "_scaled_dot_product_attention: Explicit attn_mask should not be set when "
            "is_causal=True. Cure: have the mask say both"
        ))
    past = T.ones(
        (query.shape[-2], key.shape[-2]), dtype=T.bool, device=query.device
    ).tril()
    if mask.dtype is T.bool:
        return mask & past
    return mask.masked_fill(~past, float("-inf"))


def _repeated(x: Tensor, repeats: Any) -> Tensor:
    """Each head of [..., H, S, E] `repeats` times: a view of x, until someone copies it."""
    *lead, heads, length, width = x.shape
    wide = x.unsqueeze(-3).expand(*lead, heads, repeats, length, width)
    return wide.reshape(*lead, heads * repeats, length, width)


def _one_batch(*tensors: Tensor) -> list[Tensor]:
    """The tensors with their leading dims broadcast together."""
    leads = [tuple(t.shape[:-2]) for t in tensors]
    if all(lead == leads[0] for lead in leads):
        return list(tensors)
    lead = T.broadcast_shapes(*leads)
    return [t.expand(*lead, *t.shape[-2:]) for t in tensors]


def _additive(mask: Tensor | None, name: str, dtype: Any) -> Tensor | None:
    """A mask to add to scores: -inf where a bool mask is True."""
    if mask is None:
        return None
    if mask.dtype is T.bool:
        return T.zeros_like(mask, dtype=dtype).masked_fill_(mask, float("-inf"))
    if not mask.is_floating_point():
        raise AssertionError(f"only bool and floating types of {name} are supported")
    return mask


def _packed_projection(
    query: Tensor, key: Tensor, value: Tensor, weight: Tensor, bias: Tensor | None
) -> tuple[Tensor, ...]:
    """q, k, v through the rows of one weight [3E, E]; equal inputs share one product."""
    width = query.shape[-1]
    if query is key and key is value:
        return tuple(linear(query, weight, bias).chunk(3, -1))
    biases = (None,) * 3 if bias is None else bias.chunk(3)
    if key is value:
        tail = None if bias is None else bias[width:]
        both = linear(key, weight[width:], tail).chunk(2, -1)
        return (linear(query, weight[:width], biases[0]), *both)
    return tuple(
        linear(x, w, b)
        for x, w, b in zip((query, key, value), weight.chunk(3), biases, strict=True)
    )


def _check_heads(
    query: Tensor, key: Tensor, value: Tensor, padding: Tensor | None, mask: Tensor | None
) -> bool:
    """Whether the inputs are batched. Raises AssertionError where ranks do not fit."""
    rank = query.dim()
    if rank not in (2, 3):
        raise AssertionError(
            f"query should be unbatched 2D or batched 3D tensor but received {rank}-D query tensor"
        )
    kind = "batched" if rank == 3 else "unbatched"
    if key.dim() != rank or value.dim() != rank:
        raise AssertionError(
            f"For {kind} ({rank}-D) `query`, expected `key` and `value` to be {rank}-D but found "
            f"{key.dim()}-D and {value.dim()}-D tensors respectively"
        )
    if padding is not None and padding.dim() != rank - 1:
        raise AssertionError(
            f"For {kind} ({rank}-D) `query`, expected `key_padding_mask` to be `None` or "
            f"{rank - 1}-D but found {padding.dim()}-D tensor instead"
        )
    if mask is not None and mask.dim() not in (2, 3):
        raise AssertionError(
            f"For {kind} ({rank}-D) `query`, expected `attn_mask` to be `None`, 2-D or 3-D but "
            f"found {mask.dim()}-D tensor instead"
        )
    return rank == 3


def _check_mask(mask: Tensor, heads: int, batch: int, target: int, source: int) -> Tensor:
    """The mask with 3 dims: [1 or N * heads, L, S]."""
    expected = (target, source) if mask.dim() == 2 else (batch * heads, target, source)
    if any(a != b for a, b in zip(mask.shape, expected, strict=True)):
        raise RuntimeError(
            f"The shape of the {mask.dim()}D attn_mask is {mask.shape}, but should be {expected}."
        )
    return mask.unsqueeze(0) if mask.dim() == 2 else mask


def multi_head_attention_forward(
    query: Tensor, key: Tensor, value: Tensor, embed_dim_to_check: int, num_heads: int,
    in_proj_weight: Tensor | None, in_proj_bias: Tensor | None, bias_k: Tensor | None,
    bias_v: Tensor | None, add_zero_attn: bool, dropout_p: float, out_proj_weight: Tensor,
    out_proj_bias: Tensor | None, training: bool = True,
    key_padding_mask: Tensor | None = None, need_weights: bool = True,
    attn_mask: Tensor | None = None, use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None, k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None, static_k: Tensor | None = None,
    static_v: Tensor | None = None, average_attn_weights: bool = True, is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attention of several heads on [L, N, E] (or [L, E]): output [L, N, E], weights or None."""
    batched = _check_heads(query, key, value, key_padding_mask, attn_mask)
    if not batched:
        same_key, same_value = query is key, key is value
        query = query.unsqueeze(1)
        key = query if same_key else key.unsqueeze(1)
        value = key if same_value else value.unsqueeze(1)
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    target, batch, width = query.shape
    if width != embed_dim_to_check:
        raise AssertionError(
            f"was expecting embedding dimension of {embed_dim_to_check}, but got {width}"
        )
    if is_causal and attn_mask is None:
        raise RuntimeError(
            "Need attn_mask if specifying the is_causal hint. You may use the Transformer module "
            "method `generate_square_subsequent_mask` to create this mask."
        )
    padding = _additive(key_padding_mask, "key_padding_mask", query.dtype)
    if is_causal and padding is None and not need_weights:
        mask = None  # the hint says all that the mask does
    else:
        mask, is_causal = _additive(attn_mask, "attn_mask", query.dtype), False
    if use_separate_proj_weight:
        biases = (None,) * 3 if in_proj_bias is None else in_proj_bias.chunk(3)
        weights: Any = (q_proj_weight, k_proj_weight, v_proj_weight)
        q, k, v = (
            linear(x, w, b)
            for x, w, b in zip((query, key, value), weights, biases, strict=True)
        )
    else:
        assert in_proj_weight is not None
        q, k, v = _packed_projection(query, key, value, in_proj_weight, in_proj_bias)
    if mask is not None:
        mask = _check_mask(mask, num_heads, batch, target, key.shape[0])
    extra = 0
    if bias_k is not None and bias_v is not None:
        k = T.cat([k, bias_k.expand(1, batch, width)])
        v = T.cat([v, bias_v.expand(1, batch, width)])
        extra += 1
    q, k, v = (
        x.reshape(x.shape[0], batch, num_heads, width // num_heads).permute(1, 2, 0, 3)
        for x in (q, k, v)
    )
    k, v = (
        own if given is None else _static(given, name, batch, num_heads, width // num_heads)
        for own, given, name in ((k, static_k, "static_k"), (v, static_v, "static_v"))
    )
    if add_zero_attn:
        zeros = T.zeros((batch, num_heads, 1, width // num_heads), dtype=k.dtype)
        k, v = T.cat([k, zeros], 2), T.cat([v, zeros], 2)
        extra += 1
    mask = _merge_masks(mask, padding, extra, batch, num_heads)
    probability = dropout_p if training else 0.0
    if need_weights:
        output, shown = _with_weights(q, k, v, mask, probability)
        shown = shown.mean(1) if average_attn_weights else shown
    else:
        output = scaled_dot_product_attention(q, k, v, mask, probability, is_causal)
        shown = None
    output = output.permute(2, 0, 1, 3).reshape(target, batch, width)
    output = linear(output, out_proj_weight, out_proj_bias)
    if batched:
        return output, shown
    return output.squeeze(1), None if shown is None else shown.squeeze(0)


def _static(given: Tensor, name: str, batch: Any, heads: int, width: Any) -> Tensor:
    """[N * heads, S, width] keys or values that take the place of projected ones, by head."""
    for dim, wanted in ((0, batch * heads), (2, width)):
        if given.shape[dim] != wanted:
            raise AssertionError(
                f"expecting {name}.size({dim}) of {wanted}, but got {given.shape[dim]}"
            )
    return given.reshape(batch, heads, given.shape[1], width)


def _merge_masks(
    mask: Tensor | None, padding: Tensor | None, extra: int, batch: int, heads: int
) -> Tensor | None:
    """One mask that broadcasts to [N, heads, L, S + extra]; the extra keys are always seen."""
    if mask is not None:
        mask = pad(mask, (0, extra)) if extra else mask
        shape = [1, 1] if mask.shape[0] == 1 and batch * heads != 1 else [batch, heads]
        mask = mask.reshape([*shape, mask.shape[-2], mask.shape[-1]])
    if padding is not None:
        padding = pad(padding, (0, extra)) if extra else padding
        padding = padding.reshape([batch, 1, 1, padding.shape[-1]])
        mask = padding if mask is None else mask + padding
    return mask


def _with_weights(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, probability: float
) -> tuple[Tensor, Any]:
    scores = (q * math.sqrt(1.0 / q.shape[-1])) @ k.transpose(-2, -1)
    weights = softmax(scores if mask is None else scores + mask, -1)
    if probability > 0.0:
        weights = dropout(weights, probability)
    return weights @ v, weights
