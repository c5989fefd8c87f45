"""AdaptiveLogSoftmaxWithLoss."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from typing import Any

from ...frontend import functions as T
from ...frontend.context import local
from ...frontend.tensor import Tensor
from .. import functional as F
from .container import ModuleList, Sequential
from .linear import Linear
from .module import Module

_ASMoutput = namedtuple("_ASMoutput", ["output", "loss"])


class AdaptiveLogSoftmaxWithLoss(Module):
    """A softmax over many classes in clusters by frequency (Grave et al. 2017)."""

    def __init__(
        self, in_features: int, n_classes: int, cutoffs: Sequence[int], div_value: float = 4.0,
        head_bias: bool = False, device: Any = None, dtype: Any = None,
    ) -> None:
        super().__init__()
        bounds = list(cutoffs)
        if not bounds:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        if (
            bounds != sorted(set(bounds)) or min(bounds) <= 0 or max(bounds) > n_classes - 1
            or any(int(bound) != bound for bound in bounds)
        ):
            raise ValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an "
                "increasing order, where each value is between 1 and n_classes-1"
            )
        self.in_features, self.n_classes = in_features, n_classes
        self.cutoffs = [*bounds, n_classes]
        self.div_value, self.head_bias = div_value, head_bias
        self.shortlist_size, self.n_clusters = self.cutoffs[0], len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        kind = {"device": device, "dtype": dtype}
        self.head = Linear(in_features, self.head_size, bias=head_bias, **kind)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            width = int(in_features // (div_value ** (i + 1)))
            count = self.cutoffs[i + 1] - self.cutoffs[i]
            self.tail.append(Sequential(
                Linear(in_features, width, bias=False, **kind),
                Linear(width, count, bias=False, **kind),
            ))

    def reset_parameters(self) -> None:
        """Initialise all layers afresh."""
        self.head.reset_parameters()
        for cluster in self.tail:
            for layer in cluster:
                layer.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> _ASMoutput:
        _check(input_, target_)
        batched = target_.dim() > 0
        input = input_ if batched else input_.unsqueeze(0)
        target = target_ if batched else target_.unsqueeze(0)
        if local.trace is None and bool(((target < 0) | (target >= self.n_classes)).any()):
            raise RuntimeError(
                f"Target values should be in [0, {self.n_classes - 1}], but values in range "
                f"[{target.min().item()}, {target.max().item()}] were found. "
            )
        place = target
        total = T.zeros([input.shape[0]], dtype=input.dtype)
        # every cluster sees every row, so that nothing depends on the targets' values
        for i, layers in enumerate(self.tail):
            low, high = self.cutoffs[i], self.cutoffs[i + 1]
            inside = (target >= low) & (target < high)
            local_target = (target - low).clamp(0, high - low - 1)
            log_probs = F.log_softmax(layers(input), dim=1)
            found = log_probs.gather(1, local_target.unsqueeze(1)).squeeze(1)
            total = total + T.where(inside, found, T.zeros_like(found))
            place = T.where(inside, self.shortlist_size + i, place)
        head = F.log_softmax(self.head(input), dim=1)
        output = total + head.gather(1, place.unsqueeze(1)).squeeze(1)
        loss = (-output).mean()
        return _ASMoutput(output if batched else output.squeeze(0), loss)

    def log_prob(self, input: Tensor) -> Tensor:
        """Log-probabilities of all classes, [N, n_classes]."""
        head = F.log_softmax(self.head(input), dim=1)
        parts = [head[:, : self.shortlist_size]]
        for i, layers in enumerate(self.tail):
            within = F.log_softmax(layers(input), dim=1)
            parts.append(within + head[:, self.shortlist_size + i].unsqueeze(1))
        return T.cat(parts, 1)

    def predict(self, input: Tensor) -> Tensor:
        """The class of highest probability of each row; a cluster's only where it wins."""
        best = self.head(input).argmax(1)
        full = self.log_prob(input).argmax(1)
        return T.where(best >= self.shortlist_size, full, best)


def _check(input: Tensor, target: Tensor) -> None:
    if target.dim() == 1:
        if input.shape[0] != target.shape[0]:
            raise RuntimeError(
                "Input and target should have the same size in the batch dimension."
            )
        if input.dim() != 2:
            raise RuntimeError(
                "1D target tensor expects 2D input tensors, but found inputs with size "
                f"{input.size()}"
            )
    elif target.dim() == 0:
        if input.dim() != 1:
            raise RuntimeError(
                "0D target tensor expects 1D input tensors, but found inputs with size "
                f"{input.size()}"
            )
    else:
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
