"""torch.distributions.Dirichlet."""

from __future__ import annotations

from typing import Any

from ..frontend import functions as T
from ..frontend.tensor import Tensor
from . import constraints
from .exp_family import ExponentialFamily


class Dirichlet(ExponentialFamily):
    """Points of the simplex, with concentrations in the last dimension."""

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex
    has_rsample = True
    _graphc_expanded = ("concentration",)

    def __init__(self, concentration: Any, validate_args: bool | None = None) -> None:
        if concentration.dim() < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        shape = tuple(concentration.shape)
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.concentration.sum(-1, True)

    @property
    def mode(self) -> Tensor:
        less = (self.concentration - 1).clamp(min=0.0)
        mode = less / less.sum(-1, True)
        below = (self.concentration < 1).all(-1).unsqueeze(-1)
        top = T.zeros_like(mode).scatter(-1, mode.nan_to_num().argmax(-1, keepdim=True), 1.0)
        return T.where(below, top, mode)

    @property
    def variance(self) -> Tensor:
        total = self.concentration.sum(-1, True)
        return (
            self.concentration * (total - self.concentration) / (total.pow(2) * (total + 1))
        )

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return T._sample_dirichlet(self.concentration.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        self._graphc_checked(value)
        a = self.concentration
        return T.xlogy(a - 1.0, value).sum(-1) + T.lgamma(a.sum(-1)) - T.lgamma(a).sum(-1)

    def entropy(self) -> Tensor:
        a, k = self.concentration, self.concentration.size(-1)
        total = a.sum(-1)
        return (
            T.lgamma(a).sum(-1) - T.lgamma(total) - (k - total) * T.digamma(total)
            - ((a - 1.0) * T.digamma(a)).sum(-1)
        )
