"""Attention and rotary positions."""

from __future__ import annotations

import math
from typing import Any

from .....frontend import functions as T
from .....frontend.tensor import Tensor
from .....nn import functional as F
from ..table import Node, operator
from .arithmetic import dtype_of

_NEVER = -math.inf


def _heads(x: Tensor, count: int) -> Tensor:
    """[batch, length, heads * width] as [batch, heads, length, width]."""
    return x.reshape(x.shape[0], x.shape[1], count, x.shape[2] // count).transpose(1, 2)


def _repeated(x: Tensor, times: int) -> Tensor:
    return x if times == 1 else x.repeat_interleave(times, 1)


@operator("Attention", 23)
def attention(
    node: Node, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None,
    past_k: Tensor | None = None, past_v: Tensor | None = None, lengths: Tensor | None = None,
) -> Any:
    """softmax(Q K^T * scale + bias) V; also the keys and values with those of before, and what
    leads to the result."""
    flat = q.dim() == 3
    if flat:
        q = _heads(q, node.get("q_num_heads"))
        k, v = (_heads(x, node.get("kv_num_heads")) for x in (k, v))
    if past_k is not None and past_v is not None:
        k, v = T.cat([past_k, k], 2), T.cat([past_v, v], 2)
    causal = bool(node.get("is_causal", 0))
    scale = node.get("scale", 1 / math.sqrt(q.shape[3]))
    windows = node.get("left_window_size", -1), node.get("right_window_size", -1)
    plain = mask is None and past_k is None and lengths is None and max(windows) < 0
    scores: Any = None
    if plain and not (node.get("softcap", 0.0) or node.wants(3)):
        result = F.scaled_dot_product_attention(
            q, k, v, is_causal=causal, scale=scale,
            enable_gqa=bool(q.shape[1] != k.shape[1]),
        )
    else:
        behind = 0 if past_k is None else past_k.shape[2]
        allowed = _allowed(q, k, causal, windows, behind, None if past_k is not None else lengths)
        bias = _bias(q, k, mask, allowed, lengths)
        result, scores = _computed(node, q, k, v, scale, bias)
    if flat:
        result = result.transpose(1, 2).reshape(result.shape[0], result.shape[2], -1)
    return result, k, v, scores


def _allowed(
    q: Tensor, k: Tensor, causal: bool, windows: tuple[int, int], behind: Any,
    lengths: Tensor | None,
) -> Tensor | None:
    """Which keys each query may see by their positions."""
    if not causal and max(windows) < 0:
        return None
    start: Any = behind
    if lengths is not None:  # each sample has its own
        start = (lengths.long() - q.shape[2]).reshape(-1, 1, 1, 1)
    ahead = T.arange(k.shape[2]) - (T.arange(q.shape[2]).unsqueeze(1) + start)
    found = ahead <= 0 if causal else T.ones_like(ahead, dtype=T.bool)
    left, right = windows
    if left >= 0:
        found = found & (ahead >= -left)
    return found & (ahead <= right) if right >= 0 else found


def _bias(
    q: Tensor, k: Tensor, mask: Tensor | None, allowed: Tensor | None, lengths: Tensor | None
) -> Tensor | None:
    """What is added to the scores: 0, the mask's numbers, or -inf."""
    bias: Any = None
    if mask is not None:
        short = k.shape[2] - mask.shape[-1]
        if mask.dtype is T.bool:
            mask = F.pad(mask, (0, short), value=False) if short else mask
            bias = T.where(mask, 0.0, _NEVER).to(q.dtype)
        else:
            bias = F.pad(mask, (0, short), value=_NEVER) if short else mask
    conditions = [] if allowed is None else [allowed]
    if lengths is not None:
        conditions.append(T.arange(k.shape[2]) < lengths.long().reshape(-1, 1, 1, 1))
    for each in conditions:
        more = T.where(each, 0.0, _NEVER).to(q.dtype)
        bias = more if bias is None else bias + more
    return bias


def _computed(
    node: Node, q: Tensor, k: Tensor, v: Tensor, scale: float, bias: Tensor | None
) -> tuple[Tensor, Tensor]:
    times = q.shape[1] // k.shape[1]
    k, v = _repeated(k, times), _repeated(v, times)
    root = math.sqrt(scale)
    scores = T.matmul(q * root, k.transpose(2, 3) * root)
    mode = node.get("qk_matmul_output_mode", 0)
    seen = scores
    cap = node.get("softcap", 0.0)
    if cap:
        scores = T.tanh(scores / cap) * cap
    seen = scores if mode == 1 else seen
    if bias is not None:
        scores = scores + bias
    seen = scores if mode == 2 else seen
    wide = dtype_of(node, node.get("softmax_precision")) if node.get("softmax_precision") else None
    shares = T.softmax(scores if wide is None else scores.to(wide), -1)
    if bias is not None:  # a query that sees no key has no share of any
        blind = T.amax(bias, -1, keepdim=True) == _NEVER
        shares = T.where(blind, T.zeros((), dtype=shares.dtype), shares)
    shares = shares.to(q.dtype)
    return T.matmul(shares, v), shares if mode == 3 else seen


@operator("RotaryEmbedding", 23)
def rotary(
    node: Node, x: Tensor, cosines: Tensor, sines: Tensor, positions: Tensor | None = None
) -> Any:
    flat = x.dim() == 3
    shape = x.shape
    x = _heads(x, node.get("num_heads")) if flat else x
    width = node.get("rotary_embedding_dim", 0) or x.shape[3]
    if positions is not None:
        cosines, sines = (table[positions.long()] for table in (cosines, sines))
    cosines, sines = cosines.unsqueeze(-3), sines.unsqueeze(-3)
    found = rotated(x, cosines, sines, width, bool(node.get("interleaved", 0)))
    return found.transpose(1, 2).reshape(shape) if flat else found


def rotated(x: Tensor, cosines: Tensor, sines: Tensor, width: int, pairs: bool) -> Tensor:
    """The first `width` of the last dim turned, by pairs, or by halves."""
    turned, rest = x[..., :width], x[..., width:]
    a, b = (turned[..., 0::2], turned[..., 1::2]) if pairs else turned.chunk(2, -1)
    real, imaginary = cosines * a - sines * b, sines * a + cosines * b
    if pairs:
        found = T.stack([real, imaginary], -1).flatten(-2)
    else:
        found = T.cat([real, imaginary], -1)
    return T.cat([found, rest], -1)
