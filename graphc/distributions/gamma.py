"""torch.distributions.Gamma."""

from __future__ import annotations

from typing import Any

from .. import special
from ..frontend import functions as T
from ..frontend.tensor import Tensor
from . import constraints
from .exp_family import ExponentialFamily
from .utils import broadcast_all


class Gamma(ExponentialFamily):
    """Of given concentration and rate."""

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    _graphc_expanded = ("concentration", "rate")

    def __init__(
        self, concentration: Any, rate: Any, validate_args: bool | None = None
    ) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(self.concentration.size(), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate.pow(2)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        value = T._standard_gamma(self.concentration.expand(shape)) / self.rate.expand(shape)
        value.detach().clamp_(min=T.finfo(value.dtype).tiny)
        return value

    def log_prob(self, value: Tensor) -> Tensor:
        self._graphc_checked(value)
        return (
            T.xlogy(self.concentration, self.rate) + T.xlogy(self.concentration - 1, value)
            - self.rate * value - T.lgamma(self.concentration)
        )

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - T.log(self.rate) + T.lgamma(a) + (1.0 - a) * T.digamma(a)

    def cdf(self, value: Tensor) -> Tensor:
        self._graphc_checked(value)
        return special.gammainc(self.concentration, self.rate * value)
