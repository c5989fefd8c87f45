"""Losses."""

from __future__ import annotations

from typing import Any

from .....frontend import functions as T
from .....frontend.tensor import Tensor
from ..table import Node, operator


def _likelihood(
    node: Node, scores: Tensor, target: Tensor, weight: Tensor | None
) -> Tensor:
    """-scores at the target, [N, C, *]."""
    ignored = node.get("ignore_index")
    how = node.one_of("reduction", "mean", ("none", "mean", "sum"))
    target = target.long()
    counted = None if ignored is None else target != ignored
    index = target if counted is None else T.where(counted, target, T.zeros_like(target))
    loss = -scores.gather(1, index.unsqueeze(1)).squeeze(1)
    factor = None if weight is None else weight.index_select(0, index.reshape(-1)).reshape(
        target.shape
    )
    if counted is not None:
        kept = counted.to(loss.dtype)
        factor = kept if factor is None else factor * kept
        loss = T.where(counted, loss, T.zeros_like(loss))
    loss = loss if factor is None else loss * factor
    if how == "none":
        return loss
    if how == "sum" or factor is None:
        return loss.sum() if how == "sum" else loss.mean()
    return loss.sum() / factor.sum()


@operator("NegativeLogLikelihoodLoss", 12, settings=(2,))
def likelihood(node: Node, scores: Tensor, target: Tensor, weight: Tensor | None = None) -> Any:
    return _likelihood(node, scores, target, weight)


@operator("SoftmaxCrossEntropyLoss", 12, settings=(2,))
def cross_entropy(
    node: Node, scores: Tensor, target: Tensor, weight: Tensor | None = None
) -> Any:
    logs = T.log_softmax(scores, 1)
    return _likelihood(node, logs, target, weight), logs
