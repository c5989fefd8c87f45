"""RReLU, FeatureAlphaDropout, CrossMapLRN2d, Container."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ...frontend.dispatch import constant
from ...frontend.functions.einsum import einsum
from ...frontend.tensor import Tensor
from .. import functional as F
from .constructors import own_constructors
from .dropout import _Dropout
from .module import Module


class RReLU(Module):
    """Leaky relu with random slopes in training (Xu et al. 2015)."""

    def __init__(
        self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False
    ) -> None:
        super().__init__()
        self.lower, self.upper, self.inplace = lower, upper, inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        text = f"lower={self.lower}, upper={self.upper}"
        return text + ", inplace=True" if self.inplace else text


class FeatureAlphaDropout(_Dropout):
    """AlphaDropout of whole channels."""

    def forward(self, input: Tensor) -> Tensor:
        return F.feature_alpha_dropout(input, self.p, self.training)


class CrossMapLRN2d(Module):
    """Response normalisation across channels, with torch's window."""

    def __init__(
        self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1
    ) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() != 4:
            raise ValueError(
                f"CrossMapLRN2d: Expected input to be 4D, got {input.dim()}D instead."
            )
        channels, reach = int(input.shape[1]), int((self.size - 1) / 2 + 1)
        window = np.abs(np.subtract.outer(np.arange(channels), np.arange(channels))) < reach
        window[:, 0] = True  # torch's running sum never takes the first channel out again
        sums = einsum("dc,nchw->ndhw", constant(window).to(input.dtype), input.square())
        return input * (sums * (self.alpha / self.size) + self.k).pow(-self.beta)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class Container(Module):
    """Modules by keyword (deprecated: use Sequential or a Module of one's own)."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__()
        warnings.warn(
            "nn.Container is deprecated. All of it's functionality is now implemented in "
            "nn.Module. Subclass that instead.",
            FutureWarning,
            stacklevel=2,
        )
        for key, value in kwargs.items():
            self.add_module(key, value)


own_constructors(globals())
