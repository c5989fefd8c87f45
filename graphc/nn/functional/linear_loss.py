"""A last linear layer and its cross entropy in one."""

from __future__ import annotations

from typing import Any

from ...frontend.tensor import Tensor
from .conv import linear
from .loss import cross_entropy


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
