"""torch.distributions.Kumaraswamy."""

from __future__ import annotations

import math
from typing import Any

from ..frontend import functions as T
from ..frontend.tensor import Tensor
from . import constraints
from .transformed_distribution import TransformedDistribution
from .transforms import AffineTransform, PowerTransform
from .uniform import Uniform
from .utils import broadcast_all, euler_constant


class Kumaraswamy(TransformedDistribution):
    """On (0, 1), like Beta, with a closed-form cdf."""

    arg_constraints = {
        "concentration1": constraints.positive, "concentration0": constraints.positive,
    }
    support = constraints.unit_interval
    has_rsample = True

    def __init__(
        self, concentration1: Any, concentration0: Any, validate_args: bool | None = None
    ) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        base = Uniform(
            T.full_like(self.concentration0, 0), T.full_like(self.concentration0, 1),
            validate_args=validate_args,
        )
        chain = [
            PowerTransform(exponent=self.concentration0.reciprocal()),
            AffineTransform(loc=1.0, scale=-1.0),
            PowerTransform(exponent=self.concentration1.reciprocal()),
        ]
        super().__init__(base, chain, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(Kumaraswamy, _instance)
        shape = tuple(batch_shape)
        Kumaraswamy.__init__(
            new, self.concentration1.expand(shape), self.concentration0.expand(shape),
            self._validate_args,
        )
        return new

    def _graphc_moment(self, n: int) -> Tensor:
        a, b = 1 + n / self.concentration1, self.concentration0
        return T.exp(T.log(b) + T.lgamma(a) + T.lgamma(b) - T.lgamma(a + b))

    @property
    def mean(self) -> Tensor:
        return self._graphc_moment(1)

    @property
    def mode(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        found = (((a - 1) / (a * b - 1)).log() / a).exp()
        return T.where((a < 1) | (b < 1), math.nan, found)

    @property
    def variance(self) -> Tensor:
        return self._graphc_moment(2) - self._graphc_moment(1).pow(2)

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        harmonic = T.digamma(b + 1) + euler_constant
        return (1 - b.reciprocal()) + (1 - a.reciprocal()) * harmonic - T.log(a) - T.log(b)
