"""Attention whose scores a function changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ...frontend import functions as T
from ...frontend.tensor import Tensor

__all__ = ["AuxOutput", "AuxRequest", "BlockMask", "and_masks", "create_block_mask",
           "create_mask", "flex_attention", "noop_mask", "or_masks"]

_DEFAULT_SPARSE_BLOCK_SIZE = 128


class AuxRequest(NamedTuple):
    """What flex_attention is to give besides its output."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """What was asked for by an AuxRequest, each [B, H, L]; else None."""

    lse: Tensor | None = None
    max_scores: Tensor | None = None


def noop_mask(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
    """Everything may be attended."""
    return T.ones((), dtype=T.bool)


def _combined(join: Callable[[Any, Any], Any], masks: tuple[Any, ...]) -> Callable[..., Any]:
    if not all(callable(mask) for mask in masks):
        raise RuntimeError(f"All inputs should be callable mask_mods: {masks}")

    def mask_mod(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        result = masks[0](b, h, q_idx, kv_idx)
        for mask in masks[1:]:
            result = join(result, mask(b, h, q_idx, kv_idx))
        return result

    return mask_mod


def or_masks(*mask_mods: Any) -> Callable[..., Any]:
    """A mask that is True where one of the masks is."""
    return _combined(lambda a, b: a | b, mask_mods)


def and_masks(*mask_mods: Any) -> Callable[..., Any]:
    """A mask that is True where all the masks are."""
    return _combined(lambda a, b: a & b, mask_mods)


def _places(batch: int, heads: int, queries: int, keys: int) -> tuple[Tensor, ...]:
    """Batch, head, query and key numbers, each along its own dim of four."""
    counts = (batch, heads, queries, keys)
    return tuple(
        T.arange(count).reshape([-1 if d == i else 1 for d in range(4)])
        for i, count in enumerate(counts)
    )


def create_mask(
    mod_fn: Callable[..., Tensor], B: int | None, H: int | None, Q_LEN: int, KV_LEN: int,
    device: Any = None,
) -> Tensor:
    """The bool mask [B, H, Q_LEN, KV_LEN] of a mask_mod."""
    batch, heads = B or 1, H or 1
    mask = mod_fn(*_places(batch, heads, Q_LEN, KV_LEN))
    return mask.expand(batch, heads, Q_LEN, KV_LEN)


class BlockMask:
    """A mask for flex_attention; graphc keeps it whole, not in blocks."""

    def __init__(
        self, mask_mod: Callable[..., Tensor], mask: Tensor, block_size: tuple[int, int]
    ) -> None:
        self.mask_mod, self.mask, self.BLOCK_SIZE = mask_mod, mask, block_size
        self.seq_lengths = (int(mask.shape[-2]), int(mask.shape[-1]))

    @property
    def shape(self) -> tuple[int, ...]:
        """Batch, heads, queries, keys."""
        return tuple(self.mask.shape)

    def to_dense(self) -> Tensor:
        """The whole mask."""
        return self.mask

    def sparsity(self) -> float:
        """The share of pairs that are left out, in percent."""
        return 100.0 * (1.0 - float(self.mask.double().mean().item()))

    def __repr__(self) -> str:
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%)"


def create_block_mask(
    mask_mod: Callable[..., Tensor], B: int | None, H: int | None, Q_LEN: int, KV_LEN: int,
    device: Any = None, BLOCK_SIZE: Any = _DEFAULT_SPARSE_BLOCK_SIZE, _compile: bool = False,
    separate_full_blocks: bool = True, compute_dq_write_order: bool = False,
    dq_kv_order: bool = True,
) -> BlockMask:
    """The BlockMask of a mask_mod."""
    size = BLOCK_SIZE if isinstance(BLOCK_SIZE, tuple) else (BLOCK_SIZE, BLOCK_SIZE)
    return BlockMask(mask_mod, create_mask(mask_mod, B, H, Q_LEN, KV_LEN), size)


def flex_attention(
    query: Tensor, key: Tensor, value: Tensor, score_mod: Any = None, block_mask: Any = None,
    scale: float | None = None, enable_gqa: bool = False, return_lse: bool = False,
    kernel_options: Any = None, *, return_aux: AuxRequest | None = None,
) -> Any:
    """softmax(score_mod(q k^T * scale), masked) v on [B, H, L, E]."""
    if query.dim() != 4 or key.dim() != 4 or value.dim() != 4:
        raise NotImplementedError("NYI: query, key, and value must be 4D tensors")
    if enable_gqa:
        repeats = query.shape[1] // key.shape[1]
        key = key.repeat_interleave(repeats, 1)
        value = value.repeat_interleave(repeats, 1)
    elif query.shape[1] != key.shape[1]:
        raise ValueError(
            f"Expect query and key/value to have the same number of heads but got Hq="
            f"{query.shape[1]} and Hkv={key.shape[1]}. Try setting enable_gqa=True for GQA."
        )
    factor = int(query.shape[-1]) ** -0.5 if scale is None else scale
    scores = (query @ key.transpose(-2, -1)) * factor
    if score_mod is not None:
        scores = score_mod(scores, *_places(*(int(size) for size in scores.shape)))
    if block_mask is not None:
        mask = block_mask.mask[..., : scores.shape[-2], : scores.shape[-1]]
        scores = T.where(mask, scores, T.full((), float("-inf"), dtype=scores.dtype))
    total = T.logsumexp(scores, -1)
    # rows without any key give 0, not NaN
    dead = total == float("-inf")
    safe = T.where(dead, T.zeros_like(total), total)
    output = T.exp(scores - safe.unsqueeze(-1)).to(value.dtype) @ value
    if return_aux is not None:
        largest = T.amax(scores, -1) if return_aux.max_scores else None
        return output, AuxOutput(total if return_aux.lse else None, largest)
    return (output, total) if return_lse else output
