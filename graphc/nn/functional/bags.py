"""Sums, means and maxima of rows of a table."""

from __future__ import annotations

from typing import Any

from ...frontend import functions as T
from ...frontend.context import local
from ...frontend.ensured import ensured
from ...frontend.errors import located
from ...frontend.functions import pointwise as P
from ...frontend.functions.arguments import recorded_as
from ...frontend.tensor import Tensor
from .sparse import check_indices, embedding


@recorded_as("EmbeddingBagBackward0")
def embedding_bag(
    input: Tensor, weight: Tensor, offsets: Tensor | None = None, max_norm: float | None = None,
    norm_type: float = 2, scale_grad_by_freq: bool = False, mode: str = "mean",
    sparse: bool = False, per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False, padding_idx: int | None = None,
) -> Tensor:
    """One row [bags, D] of each bag of indices: [bags, n], or one row of them with offsets."""
    if mode not in ("sum", "mean", "max"):
        raise ValueError("mode has to be one of sum, mean or max")
    _check(input, offsets, per_sample_weights, mode)
    check_indices(input, "embedding_bag")
    count: Any = input.numel()
    length: Any = 0
    if input.dim() == 2:
        bags, length = input.shape
        offsets = T.arange(bags) * length
        input = input.reshape(-1)
        if per_sample_weights is not None:
            per_sample_weights = per_sample_weights.reshape(-1)
    assert offsets is not None
    if not length:
        offsets = _checked_offsets(offsets, count)
    if include_last_offset:
        offsets = offsets[:-1]
    bags = offsets.shape[0]
    rows = embedding(input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
    kept = T.ones([count], dtype=T.bool)
    if padding_idx is not None:
        kept = input != padding_idx % weight.shape[0]
    if length:  # all bags are of one length
        bag = T.arange(count).div(length, rounding_mode="floor")
    elif local.trace is None:  # offsets rise
        bag = T.searchsorted(offsets, T.arange(count, dtype=offsets.dtype), right=True) - 1
    else:
        bag = _bags(offsets, count)
    if mode == "max" and length:
        return _largest_of_equal(rows.reshape([bags, length, weight.shape[1]]), kept, padding_idx)
    if mode == "max":
        return _largest(rows, bag, kept, bags)
    if weight.dtype in (T.float16, T.bfloat16):  # added up in float32, rounded once
        rows = rows.float()
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(1).to(rows.dtype)
    if padding_idx is not None:
        rows = T.where(kept.unsqueeze(1), rows, T.zeros_like(rows))
    if length:
        total = rows.reshape([bags, length, weight.shape[1]]).sum(1)
    else:
        total = T.zeros([bags, weight.shape[1]], dtype=rows.dtype).index_add(0, bag, rows)
    if mode == "mean":
        if length:
            sizes = kept.reshape([bags, length]).sum(1).to(rows.dtype)
        else:
            sizes = T.zeros([bags], dtype=rows.dtype).index_add(0, bag, kept.to(rows.dtype))
        total = total / sizes.clamp_min(1).unsqueeze(1)
    return total.to(weight.dtype)


def _check(
    input: Tensor, offsets: Tensor | None, weights: Tensor | None, mode: str
) -> None:
    if weights is not None:
        if tuple(weights.shape) != tuple(input.shape):
            raise ValueError(
                f"embedding_bag: If per_sample_weights ({weights.shape}) is not None, then it "
                f"must have the same shape as the input ({input.shape})"
            )
        if mode != "sum":
            raise NotImplementedError(
                "embedding_bag: per_sample_weights was not None. per_sample_weights is only "
                f"supported for mode='sum' (got mode='{mode}'). Please open a feature request "
                "on GitHub."
            )
    if input.dim() == 2 and offsets is not None:
        raise ValueError(
            "if input is 2D, then offsets has to be None, as input is treated is a mini-batch "
            f"of fixed length sequences. However, found offsets of type {type(offsets)}"
        )
    if input.dim() == 1 and offsets is None:
        raise ValueError("offsets has to be a 1D Tensor but got None")
    if input.dim() == 1 and offsets is not None and offsets.dim() != 1:
        raise ValueError("offsets has to be a 1D Tensor")
    if input.dim() not in (1, 2):
        raise ValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension "
                         f"{input.dim()}")


def _checked_offsets(offsets: Tensor, count: Any) -> Tensor:
    if offsets.shape[0] == 0:
        return offsets
    if local.trace is not None:
        fit: Any = P.logical_and(P.eq(offsets[0], 0), P.le(offsets[-1], count))
        return ensured(
            offsets, fit, "RuntimeError: offsets[0] has to be 0, and offsets[-1] can not be "
            "greater than input's length"
        )
    first, last = int(offsets[0]), int(offsets[-1])
    if first != 0:
        raise RuntimeError(located(
            "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from "
            f"position 0. However, got {first}"
        ))
    if last > count:
        raise RuntimeError(located(
            f"offsets[-1] can not be greater than input's length {count} but got offsets[-1] of "
            f"{last}"
        ))
    return offsets


def _bags(offsets: Tensor, count: Any) -> Tensor:
    """The bag of each of so many indices: how many bags begin up to it, less one."""
    begin = T.zeros([count + 1], dtype=T.int64).index_add(
        0, offsets, T.ones([offsets.shape[0]], dtype=T.int64)
    )
    found: Tensor = begin.cumsum(0)[:-1] - 1
    return found


def _largest_of_equal(rows: Tensor, kept: Tensor, padding_idx: int | None) -> Tensor:
    """The maximum of each of [bags, n, D] over n; 0 where all of it is padding."""
    if padding_idx is None:
        best: Tensor = rows.max(1).values
        return best
    kept = kept.reshape([*rows.shape[:2], 1])
    best = T.where(kept, rows, T.full_like(rows, float("-inf"))).max(1).values
    return T.where(kept.any(1), best, T.zeros_like(best))


def _largest(rows: Tensor, bag: Tensor, kept: Tensor, bags: Any) -> Tensor:
    """The maximum of each bag; 0 of an empty one."""
    low = T.full_like(rows, float("-inf"))
    rows = T.where(kept.unsqueeze(1), rows, low)
    start = T.full([bags, rows.shape[1]], float("-inf"), dtype=rows.dtype)
    index = bag.unsqueeze(1).expand(*rows.shape)
    best: Any = start.scatter_reduce(0, index, rows, "amax")
    filled = T.zeros([bags], dtype=T.int64).index_add(0, bag, kept.long()) > 0
    return T.where(filled.unsqueeze(1), best, T.zeros_like(best))
