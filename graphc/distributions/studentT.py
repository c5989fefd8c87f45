"""torch.distributions.StudentT."""

from __future__ import annotations

import math
from typing import Any

from ..frontend import functions as T
from ..frontend.tensor import Tensor
from . import constraints
from .chi2 import Chi2
from .distribution import Distribution
from .utils import _standard_normal, broadcast_all


class StudentT(Distribution):
    """Of df degrees of freedom, around loc, of given scale."""

    arg_constraints = {
        "df": constraints.positive, "loc": constraints.real, "scale": constraints.positive,
    }
    support = constraints.real
    has_rsample = True
    _graphc_expanded = ("df", "loc", "scale")

    def __init__(
        self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None
    ) -> None:
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        self._chi2 = Chi2(self.df)
        super().__init__(self.df.size(), validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        new._chi2 = self._chi2.expand(batch_shape)
        return new

    @property
    def mean(self) -> Tensor:
        return T.where(self.df <= 1, math.nan, self.loc)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        found = T.where(self.df > 2, self.scale.pow(2) * self.df / (self.df - 2), math.inf)
        return T.where(self.df <= 1, math.nan, found)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        x = _standard_normal(self._extended_shape(sample_shape), self.df.dtype, self.df.device)
        z = self._chi2.rsample(sample_shape)
        return self.loc + self.scale * (x * T.rsqrt(z / self.df))

    def log_prob(self, value: Tensor) -> Tensor:
        self._graphc_checked(value)
        y = (value - self.loc) / self.scale
        normaliser = (
            self.scale.log() + 0.5 * self.df.log() + 0.5 * math.log(math.pi)
            + T.lgamma(0.5 * self.df) - T.lgamma(0.5 * (self.df + 1.0))
        )
        return -0.5 * (self.df + 1.0) * T.log1p(y**2.0 / self.df) - normaliser

    def entropy(self) -> Tensor:
        beta = T.lgamma(0.5 * self.df) + math.lgamma(0.5) - T.lgamma(0.5 * (self.df + 1))
        slope = T.digamma(0.5 * (self.df + 1)) - T.digamma(0.5 * self.df)
        return self.scale.log() + 0.5 * (self.df + 1) * slope + 0.5 * self.df.log() + beta
