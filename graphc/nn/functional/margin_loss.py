"""Losses that ask for margins between classes, pairs and triplets, or for signs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...frontend import functions as T
from ...frontend import promote
from ...frontend.autocast import listed
from ...frontend.errors import located
from ...frontend.functions.arguments import recorded_as
from ...frontend.replayed import replayed
from ...frontend.tensor import Tensor
from .activation import logsigmoid
from .loss import _legacy, _reduce
from .padding import cosine_similarity, pairwise_distance


@listed
@replayed
def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, size_average: Any = None,
    reduce: Any = None, reduction: str = "mean",
) -> Tensor:
    """x where target is 1, max(0, margin - x) where it is -1."""
    zero = T.zeros((), dtype=input.dtype)
    loss = T.where(target == -1, zero, input) + T.where(
        target == 1, zero, (margin - input).clamp_min(0)
    )
    return _reduce(loss, _legacy(size_average, reduce, reduction))


@listed
@replayed
def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0, size_average: Any = None,
    reduce: Any = None, reduction: str = "mean",
) -> Tensor:
    """max(0, -target * (x1 - x2) + margin)."""
    loss = (-target * (input1 - input2) + float(margin)).clamp_min(0)
    return _reduce(loss, _legacy(size_average, reduce, reduction))


@listed
@replayed
@recorded_as("SoftMarginLossBackward0")
def soft_margin_loss(
    input: Tensor, target: Tensor, size_average: Any = None, reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """log(1 + exp(-target * x))."""
    if target.dtype is T.bool and input.dtype is not T.bool:
        target = target.to(input.dtype)
    loss = T.log1p(T.exp(-target * input))
    if loss.dtype is not input.dtype:
        loss = promote.check_inplace(input, loss).to(input.dtype)
    return _reduce(loss, _legacy(size_average, reduce, reduction))


@listed
@replayed
def multilabel_soft_margin_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: Any = None,
    reduce: Any = None, reduction: str = "mean",
) -> Tensor:
    """Mean over classes of binary cross entropy with logits."""
    loss = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    if weight is not None:
        loss = loss * weight
    return _reduce(loss.mean(-1), _legacy(size_average, reduce, reduction))


@listed
@replayed
def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0, size_average: Any = None,
    reduce: Any = None, reduction: str = "mean",
) -> Tensor:
    """1 - cos where target is 1, max(0, cos - margin) where it is -1."""
    input1, input2 = (
        x if x.dtype.is_floating_point else x.to(T.get_default_dtype()) for x in (input1, input2)
    )
    cosine = cosine_similarity(input1, input2, -1)
    zero = T.zeros_like(cosine)
    loss = T.where(target == 1, 1 - cosine, zero) + T.where(
        target == -1, (cosine - margin).clamp_min(0), zero
    )
    return _reduce(loss, _legacy(size_average, reduce, reduction))


@listed
@replayed
def triplet_margin_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2,
    eps: float = 1e-6, swap: bool = False, size_average: Any = None, reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, d(a, p) - d(a, n) + margin)."""
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise RuntimeError(located(
            "The anchor, positive, and negative tensors are expected to have the same number of "
            f"dimensions, but got: anchor {anchor.ndim}D, positive {positive.ndim}D, and negative "
            f"{negative.ndim}D inputs"
        ))
    near = pairwise_distance(anchor, positive, p, eps)
    far = pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = T.minimum(far, pairwise_distance(positive, negative, p, eps))
    loss = (near - far + margin).clamp_min(0)
    return _reduce(loss, _legacy(size_average, reduce, reduction))


@listed
@replayed
@recorded_as("MultiMarginLossBackward0")
def multi_margin_loss(
    input: Tensor, target: Tensor, p: int = 1, margin: float = 1.0, weight: Tensor | None = None,
    size_average: Any = None, reduce: Any = None, reduction: str = "mean",
) -> Tensor:
    """Mean over wrong classes of max(0, margin - x[target] + x)^p."""
    reduction = _legacy(size_average, reduce, reduction)
    size_average = reduce = None
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    if weight is not None and weight.dim() != 1:
        raise ValueError("weight must be one-dimensional")
    if input.dim() < 2:
        shape = list(target.shape) if reduction == "none" else []
        input, target = input.reshape(1, -1), target.reshape(1)
        return multi_margin_loss(
            input, target, p, margin, weight, size_average, reduce, reduction
        ).reshape(shape)
    if input.dim() == 2 and tuple(target.shape) != (input.shape[0],):
        raise RuntimeError(
            "target tensor should be 1-D with size equal to the batch's. Expected target size "
            f"[{input.shape[0]}], but got {list(target.shape)}"
        )
    if weight is not None and weight.shape[0] != input.shape[-1]:
        raise RuntimeError(
            f"inconsistent weight size, expected {input.shape[-1]} but got {list(weight.shape)}"
        )
    chosen = input.gather(-1, target.unsqueeze(-1))
    terms = (margin - chosen + input).clamp_min(0)
    if p == 2:
        terms = terms.square()
    if weight is not None:
        terms = terms * weight[target].unsqueeze(-1)
    wrong = T.arange(input.shape[-1]) != target.unsqueeze(-1)
    loss = T.where(wrong, terms, T.zeros_like(terms)).sum(-1) / input.shape[-1]
    return _reduce(loss, _legacy(size_average, reduce, reduction))


@listed
@replayed
@recorded_as("MultilabelMarginLossBackward0")
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
