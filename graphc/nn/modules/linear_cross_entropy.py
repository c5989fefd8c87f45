"""A last linear layer and its cross entropy in one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...frontend.tensor import Tensor
from .. import functional as F
from .linear import Linear
from .module import Module


@dataclass
class LinearCrossEntropyOptions:
    """How torch splits the work of linear_cross_entropy; graphc needs no hints."""

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: Any = None


class LinearCrossEntropyLoss(Module):
    """A last linear layer and its cross entropy in one."""

    def __init__(
        self, in_features: int, num_classes: int, *, out_features: tuple[int, ...] = (),
        bias: bool = False, device: Any = None, dtype: Any = None, reduction: str = "mean",
        weight: Tensor | None = None, ignore_index: int | None = None,
        label_smoothing: float = 0.0, options: Any = None,
    ) -> None:
        super().__init__()
        if out_features:
            raise NotImplementedError(
                "LinearCrossEntropyLoss: out_features of several dims is not supported, got "
                f"{out_features}; flatten the targets instead"
            )
        self.in_features, self.num_classes = in_features, num_classes
        self.reduction, self.ignore_index = reduction, ignore_index
        self.label_smoothing, self.options = label_smoothing, options
        self.linear = Linear(in_features, num_classes, bias, device, dtype)
        self.register_buffer("weight", weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.linear_cross_entropy(
            input, self.linear.weight, target, linear_bias=self.linear.bias, weight=self.weight,
            reduction=self.reduction, ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
        )
