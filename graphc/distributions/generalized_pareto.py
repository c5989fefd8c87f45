"""torch.distributions.GeneralizedPareto."""

from __future__ import annotations

import math
from typing import Any

from ..frontend import functions as T
from ..frontend.tensor import Tensor
from . import constraints
from .distribution import Distribution
from .utils import broadcast_all, standard_uniform


class GeneralizedPareto(Distribution):
    """Excesses over `loc`; a concentration of 0 is the exponential distribution."""

    arg_constraints = {
        "loc": constraints.real, "scale": constraints.positive, "concentration": constraints.real,
    }
    has_rsample = True
    _graphc_expanded = ("loc", "scale", "concentration")

    def __init__(
        self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None
    ) -> None:
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        super().__init__(tuple(self.loc.shape), validate_args=validate_args)

    def _graphc_by_concentration(self, exponential: Tensor, other: Any) -> Tensor:
        """`other` of a concentration that is not 0, where it is not."""
        flat = T.isclose(self.concentration, T.zeros_like(self.concentration))
        safe = T.where(flat, 1.0, self.concentration)
        found: Tensor = T.where(flat, exponential, other(safe))
        return found

    def _z(self, value: Tensor) -> Tensor:
        return (value - self.loc) / self.scale

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.icdf(standard_uniform(self._extended_shape(sample_shape), self.loc.dtype))

    def log_prob(self, value: Tensor) -> Tensor:
        z = self._z(self._graphc_checked(value))
        tail = self._graphc_by_concentration(-z, lambda c: -(1 + 1 / c) * T.log1p(c * z))
        return tail - self.scale.log()

    def log_survival_function(self, value: Tensor) -> Tensor:
        """log(1 - cdf)."""
        z = self._z(self._graphc_checked(value))
        return self._graphc_by_concentration(-z, lambda c: -T.log1p(c * z) / c)

    def log_cdf(self, value: Tensor) -> Tensor:
        """log(cdf)."""
        return T.log1p(-T.exp(self.log_survival_function(value)))

    def cdf(self, value: Tensor) -> Tensor:
        return T.exp(self.log_cdf(value))

    def icdf(self, value: Tensor) -> Tensor:
        log_left = T.log1p(-value)
        z = self._graphc_by_concentration(-log_left, lambda c: T.expm1(-c * log_left) / c)
        return self.loc + self.scale * z

    @property
    def mean(self) -> Tensor:
        c = self.concentration
        return T.where(c < 1, self.loc + self.scale / (1 - c), math.nan)

    @property
    def variance(self) -> Tensor:
        c = self.concentration
        spread = self.scale.pow(2) / ((1 - c).pow(2) * (1 - 2 * c))
        return T.where(c < 0.5, spread, math.nan)

    def entropy(self) -> Tensor:
        return self.scale.log() + self.concentration + 1

    @property
    def mode(self) -> Tensor:
        return self.loc

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        """From loc on, up to loc - scale / concentration where that is above."""
        end = self.loc - self.scale / self.concentration
        return constraints.interval(
            self.loc, T.where(self.concentration < 0, end, math.inf)
        )
