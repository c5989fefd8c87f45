"""Losses of several labels, of triplets with any distance, and of a fused last layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...frontend import functions as T
from ...frontend.autocast import full_precision
from ...frontend.tensor import Tensor
from .conv import linear
from .loss import _legacy, _reduce, cross_entropy
from .padding import pairwise_distance


@full_precision
def multilabel_margin_loss(
    input: Tensor, target: Tensor, size_average: Any = None, reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """Margins between the labels before the first -1 and all other classes; input [N, C]."""
    reduction = _legacy(size_average, reduce, reduction)
    if input.dim() not in (0, 1, 2) or tuple(target.shape) != tuple(input.shape):
        raise RuntimeError(
            f"inconsistent target size: {list(target.shape)} for multi-label target of size: "
            f"{list(input.shape)}"
        )
    batched = input.dim() == 2
    x, labels = (input, target) if batched else (input.reshape(1, -1), target.reshape(1, -1))
    classes = x.shape[1]
    used = (labels < 0).long().cumsum(1) == 0
    safe = T.where(used, labels, T.zeros_like(labels))
    is_label = T.zeros_like(labels).scatter_add(1, safe, used.long()) > 0
    chosen = x.gather(1, safe)
    margins = (1 - (chosen.unsqueeze(2) - x.unsqueeze(1))).clamp_min(0)
    counted = used.unsqueeze(2) & ~is_label.unsqueeze(1)
    loss = T.where(counted, margins, T.zeros_like(margins)).sum((1, 2)) / classes
    return _reduce(loss if batched else loss.squeeze(0), reduction)


def triplet_margin_with_distance_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None, margin: float = 1.0,
    swap: bool = False, reduction: str = "mean",
) -> Tensor:
    """max(0, d(a, p) - d(a, n) + margin) with a distance of one's own."""
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    distance = pairwise_distance if distance_function is None else distance_function
    if not anchor.dim() == positive.dim() == negative.dim():
        raise RuntimeError(
            "The anchor, positive, and negative tensors are expected to have the same number of "
            f"dimensions, but got: anchor {anchor.dim()}D, positive {positive.dim()}D, and "
            f"negative {negative.dim()}D inputs"
        )
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = T.minimum(far, distance(positive, negative))
    return _reduce((near - far + margin).clamp_min(0), reduction)


def linear_cross_entropy(
    input: Tensor, linear_weight: Tensor, target: Tensor, *, linear_bias: Tensor | None = None,
    weight: Tensor | None = None, reduction: str = "mean", ignore_index: int | None = None,
    label_smoothing: float = 0.0, options: Any = None,
) -> Tensor:
    """cross_entropy of linear(input, linear_weight, linear_bias)."""
    if linear_weight.dim() > 2 and input.dim() < 2:
        raise RuntimeError(
            f"K-dimensional loss defined by linear_weight shape {tuple(linear_weight.shape)} "
            f"requires batched input, (N, {linear_weight.shape[-1]}), got unbatched input with "
            f"shape {tuple(input.shape)}"
        )
    logits = linear(input, linear_weight, linear_bias)
    return cross_entropy(
        logits, target, weight, ignore_index=-100 if ignore_index is None else ignore_index,
        reduction=reduction, label_smoothing=label_smoothing,
    )
