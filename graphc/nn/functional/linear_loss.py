"""A last linear layer and its cross entropy in one."""

from __future__ import annotations

from typing import Any

from ...frontend.errors import located
from ...frontend.tensor import Tensor
from .conv import linear
from .loss import cross_entropy


def linear_cross_entropy(
    input: Tensor, linear_weight: Tensor, target: Tensor, *, linear_bias: Tensor | None = None,
    weight: Tensor | None = None, reduction: str = "mean", ignore_index: int | None = None,
    label_smoothing: float = 0.0, options: Any = None,
) -> Tensor:
    """cross_entropy of linear(input, linear_weight, linear_bias), input [N, I] or [I].

    linear_weight [C, I], or [C, d1, ..., I] of a loss of K dims, whose targets are [N, d1, ...].
    Raises RuntimeError for shapes that do not fit.
    """
    classes, *outputs, features = _fitting(input, linear_weight, linear_bias)
    if target.shape == (*input.shape[:-1], classes, *outputs) and ignore_index is not None:
        raise RuntimeError(located(
            "ignore_index cannot be specified when target contains probabilities"
        ))
    if outputs:
        linear_weight = linear_weight.reshape(-1, features)
        linear_bias = None if linear_bias is None else linear_bias.reshape(-1)
    logits = linear(input, linear_weight, linear_bias)
    if outputs:
        logits = logits.reshape(*input.shape[:-1], classes, *outputs)
    return cross_entropy(
        logits, target, weight, ignore_index=-100 if ignore_index is None else ignore_index,
        reduction=reduction, label_smoothing=label_smoothing,
    )


def _fitting(input: Tensor, weight: Tensor, bias: Tensor | None) -> Any:
    """The weight's shape, which fits the others."""
    shape = weight.shape
    if input.dim() not in (1, 2):
        raise RuntimeError(located(
            f"expected input with dimensionality 1 or 2, got {input.dim()}"
        ))
    if len(shape) < 2:
        raise RuntimeError(located(
            f"expected linear_weight with dimensionality at least 2, got {len(shape)}"
        ))
    if input.shape[-1] != shape[-1]:
        raise RuntimeError(located(
            "expected equal input and linear_weight last dimensions (in_features), got "
            f"{input.shape[-1]} and {shape[-1]}, respectively"
        ))
    if bias is not None and tuple(bias.shape) != tuple(shape[:-1]):
        raise RuntimeError(located(
            f"expected linear_bias shape {tuple(shape[:-1])}, got {tuple(bias.shape)}"
        ))
    if len(shape) > 2 and input.dim() < 2:
        raise RuntimeError(located(
            f"K-dimensional loss defined by linear_weight shape {tuple(shape)} requires batched "
            f"input, (N, {shape[-1]}), got unbatched input with shape {tuple(input.shape)}"
        ))
    return shape
