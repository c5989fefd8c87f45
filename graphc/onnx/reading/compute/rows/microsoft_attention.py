"""com.microsoft: attention as its exporters of language models write it."""

from __future__ import annotations

import math
from typing import Any

from .....frontend import functions as T
from .....frontend.tensor import Tensor
from .....nn import functional as F
from ..numbers import Numbers
from ..table import Node
from .attention import _heads, rotated
from .microsoft import real, row


def _flat(x: Tensor) -> Tensor:
    """[batch, heads, length, width] as [batch, length, heads * width]."""
    return x.transpose(1, 2).flatten(2)


def _never(node: Node) -> float:
    return float(node.get("mask_filter_value", -10000.0))


def _causal(queries: Any, keys: Any) -> Tensor:
    """True where a key is no later than the query, the last of both being the same."""
    return T.arange(keys) <= T.arange(queries).unsqueeze(1) + (keys - queries)


def _attended(
    node: Node, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, past: Any
) -> Tensor:
    """softmax(Q K^T * scale + bias) V."""
    causal = bool(node.get("unidirectional", 0))
    scale = node.get("scale", 0.0) or 1 / math.sqrt(q.shape[-1])
    if causal and bias is None and past is None:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
    if causal:
        seen = T.where(_causal(q.shape[2], k.shape[2]), 0.0, -math.inf).to(q.dtype)
        bias = seen if bias is None else bias + seen
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)


def _masked(node: Node, mask: Tensor, batch: Any, queries: Any, keys: Any) -> Tensor:
    """What a mask adds to the scores: lengths [batch], or 1 where a key is seen."""
    if mask.dim() == 1:
        line = T.arange(keys)
        seen = line < mask[:batch].long().unsqueeze(1)
        if mask.shape[0] == 2 * batch:  # ends, and starts
            seen = seen & (line >= mask[batch:].long().unsqueeze(1))
        elif mask.shape[0] != batch:
            node.refuse(
                f"its mask has {mask.shape[0]} numbers for {batch} samples", "give it lengths"
            )
        seen = seen.reshape(batch, 1, 1, keys)
    elif mask.dim() == 2:
        seen = (mask > 0).reshape(batch, 1, 1, keys)
    elif mask.dim() == 3:
        seen = (mask > 0).unsqueeze(1)
    else:  # of a longest sequence
        seen = (mask > 0)[:, :, keys - queries : keys, :keys]
    return T.where(seen, 0.0, _never(node))


@row("Attention", settings=(3, 6))
def attention(
    node: Node, x: Tensor, weight: Tensor, bias: Tensor | None = None, mask: Tensor | None = None,
    past: Tensor | None = None, more: Tensor | None = None, past_length: Tensor | None = None,
) -> Any:
    """Heads of x W + b; past and present are [2, batch, heads, length, width]."""
    if node.get("do_rotary", 0) or node.get("past_present_share_buffer", 0):
        node.refuse("it turns by positions, or shares a buffer", "export it without")
    heads = node.get("num_heads")
    sizes = node.get("qkv_hidden_sizes") or [int(weight.shape[1]) // 3] * 3
    projected = T.matmul(x, weight)
    projected = projected if bias is None else projected + bias
    q, k, v = (_heads(part, heads) for part in projected.split([int(n) for n in sizes], -1))
    if past is not None:
        k, v = T.cat([past[0], k], 2), T.cat([past[1], v], 2)
    added = more
    if mask is not None:
        seen = _masked(node, mask, x.shape[0], q.shape[2], k.shape[2]).to(q.dtype)
        added = seen if added is None else added + seen
    found = _attended(node, q, k, v, added, past)
    present = T.stack([k, v]) if node.wants(1) else None
    return _flat(found), present


@row("QAttention", settings=(3, 4, 5, 6, 7))
def quantized_attention(
    node: Node, x: Tensor, weight: Tensor, bias: Tensor, x_scale: Tensor, weight_scale: Tensor,
    mask: Tensor | None = None, x_zero: Tensor | None = None, weight_zero: Tensor | None = None,
    past: Tensor | None = None,
) -> Any:
    """Attention of small integers times their scales; a weight's are of one or of each column."""
    wide = real(x, x_scale, x_zero), real(weight, weight_scale, weight_zero)
    return attention(node, *wide, bias, mask, past)


@row("MultiHeadAttention", settings=(4,))
def multi_head(
    node: Node, q: Tensor, k: Tensor | None = None, v: Tensor | None = None,
    bias: Tensor | None = None, padding: Tensor | None = None, more: Tensor | None = None,
    past_k: Tensor | None = None, past_v: Tensor | None = None, past_length: Tensor | None = None,
    indirection: Tensor | None = None,
) -> Any:
    """Queries, keys and values are projected already; packed ones are [batch, length, heads, parts,
    width]."""
    heads = node.get("num_heads")
    if past_length is not None or indirection is not None or node.wants(3):
        node.refuse("it shares a buffer, or gives its scores", "export it without")
    if k is None:  # [batch, length, heads, 3, width]
        q, k, v = (q[:, :, :, i].flatten(2) for i in range(3))
    elif v is None:
        k, v = (k[:, :, :, i].flatten(2) for i in range(2))
    if bias is not None:
        width = q.shape[-1]
        q = q + bias[:width]
        if k.dim() == 3:
            k, v = k + bias[width : 2 * width], v + bias[2 * width :]
    q = _heads(q, heads)
    k, v = (x if x.dim() == 4 else _heads(x, heads) for x in (k, v))
    if past_k is not None and past_v is not None:
        k, v = T.cat([past_k, k], 2), T.cat([past_v, v], 2)
    added = more
    if padding is not None:
        if padding.dim() == 1 and padding.shape[0] != q.shape[0]:
            node.refuse("its padding is cumulated lengths", "give it a mask [batch, length]")
        seen = _masked(node, padding, q.shape[0], q.shape[2], k.shape[2]).to(q.dtype)
        added = seen if added is None else added + seen
    found = _attended(node, q, k, v, added, past_k)
    return _flat(found), k, v


@row("RotaryEmbedding")
def rotary(node: Node, x: Tensor, places: Tensor, cosines: Tensor, sines: Tensor) -> Any:
    """[batch, length, heads * width] or [batch, heads, length, width]; `places` is an offset, or a
    position for each."""
    if node.get("is_packed_batching", 0) or node.get("scale", 1.0) != 1.0:
        node.refuse("it packs batches, or scales", "export it without")
    width = node.get("rotary_embedding_dim", 0)
    flat = x.dim() == 3
    if flat:
        heads = node.get("num_heads", 0)
        if not heads:
            heads = x.shape[2] // (width or 2 * cosines.shape[-1])
        x = _heads(x, heads)
    width = width or 2 * cosines.shape[-1]
    places = places.long()
    if places.dim() == 1:
        places = (places + T.arange(x.shape[2])).unsqueeze(0)
    cosines, sines = (
        table[places][..., : width // 2].unsqueeze(1) for table in (cosines, sines)
    )
    found = rotated(x, cosines, sines, width, bool(node.get("interleaved", 0)))
    return _flat(found) if flat else found


@row("GroupQueryAttention", numbers=(6,), settings=(5, 6))
def group_query(
    node: Node, q: Tensor, k: Tensor | None, v: Tensor | None, past_k: Tensor | None,
    past_v: Tensor | None, lasts: Tensor, total: Numbers, cosines: Tensor | None = None,
    sines: Tensor | None = None, places: Tensor | None = None, more: Tensor | None = None,
    sink: Tensor | None = None,
) -> Any:
    """Causal attention with fewer heads of keys. `lasts`: of each sample the position of its last
    key; new ones come behind those of before, in a buffer of as many as there are at most."""
    heads, groups = node.get("num_heads"), node.get("kv_num_heads")
    if sink is not None or node.get("smooth_softmax", 0) not in (0, -1) or node.get("softcap", 0.0):
        node.refuse("it has a sink, or caps its scores", "export it without")
    if k is None or v is None:  # packed behind the queries
        width = q.shape[2] // (heads + 2 * groups)
        q, k, v = q.split([heads * width, groups * width, groups * width], -1)
    q, k, v = _heads(q, heads), _heads(k, groups), _heads(v, groups)
    length = q.shape[2]
    before = (lasts.long().reshape(-1, 1) + 1 - length).clamp(min=0)  # keys of before, by sample
    line = before + T.arange(length)  # [batch, length]: positions of what is new
    if node.get("do_rotary", 0):
        if cosines is None or sines is None:
            return node.refuse("it turns by positions without tables of them", "give cos_cache")
        at = line if places is None else places.long()
        width = 2 * cosines.shape[-1]
        pairs = bool(node.get("rotary_interleaved", 0))
        cosines, sines = cosines[at].unsqueeze(1), sines[at].unsqueeze(1)
        q, k = (rotated(x, cosines, sines, width, pairs) for x in (q, k))
    if past_k is not None and past_v is not None:
        count = total.integers()[0]
        k, v = (_behind(count, *pair, line) for pair in ((past_k, k), (past_v, v)))
    ahead = T.arange(k.shape[2]) - line.unsqueeze(-1)  # [batch, length, keys]
    seen = ahead <= 0
    window = node.get("local_window_size", -1)
    if window > 0:
        seen = seen & (ahead > -window)
    bias = T.where(seen, 0.0, -math.inf).to(q.dtype).unsqueeze(1)
    bias = bias if more is None else bias + more
    scale = node.get("scale", 0.0) or 1 / math.sqrt(q.shape[-1])
    found = F.scaled_dot_product_attention(
        q, k, v, attn_mask=bias, scale=scale, enable_gqa=heads != groups
    )
    return _flat(found), k, v


def _behind(total: Any, old: Tensor, new: Tensor, line: Tensor) -> Tensor:
    """The buffer of keys with new ones at their positions."""
    short = total - old.shape[2]
    if isinstance(short, int) and short <= 0:  # it has room
        buffer = old
    else:
        batch, heads, _, width = old.shape
        buffer = T.cat([old, T.zeros(batch, heads, short, width, dtype=old.dtype)], 2)
    index = line.reshape(line.shape[0], 1, line.shape[1], 1).expand(new.shape)
    return T.scatter(buffer, 2, index, new)
