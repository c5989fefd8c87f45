"""Stochastic depth (Huang et al. 2016, arxiv.org/abs/1603.09382)."""

from __future__ import annotations

import graphc
from graphc import Tensor, nn


def stochastic_depth(input: Tensor, p: float, mode: str, training: bool = True) -> Tensor:
    """Zero the whole input (mode "batch") or whole samples ("row") with probability p.

    What is kept is scaled by 1 / (1 - p). Raises ValueError for another p or mode.
    """
    if p < 0.0 or p > 1.0:
        raise ValueError(f"drop probability has to be between 0 and 1, but got {p}")
    if mode not in ("batch", "row"):
        raise ValueError(f"mode has to be either 'batch' or 'row', but got {mode}")
    if not training or p == 0.0:
        return input
    rows = input.shape[0] if mode == "row" else 1
    keep = graphc.empty((rows, *[1] * (input.ndim - 1)), dtype=input.dtype, device=input.device)
    keep = keep.bernoulli_(1.0 - p)
    return input * (keep / (1.0 - p) if p < 1.0 else keep)


class StochasticDepth(nn.Module):
    """`stochastic_depth` while training."""

    def __init__(self, p: float, mode: str) -> None:
        super().__init__()
        self.p = p
        self.mode = mode

    def forward(self, input: Tensor) -> Tensor:
        """Any shape; dimension 0 is the samples."""
        return stochastic_depth(input, self.p, self.mode, self.training)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(p={self.p}, mode={self.mode})"
