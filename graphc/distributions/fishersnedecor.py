"""torch.distributions.FisherSnedecor."""

from __future__ import annotations

import math
from typing import Any

from ..frontend import functions as T
from ..frontend.tensor import Tensor
from . import constraints
from .distribution import Distribution
from .gamma import Gamma
from .utils import broadcast_all


class FisherSnedecor(Distribution):
    """The ratio of two chi-squared numbers over their degrees of freedom."""

    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive
    has_rsample = True
    _graphc_expanded = ("df1", "df2")

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        self.df1, self.df2 = broadcast_all(df1, df2)
        self._gamma1 = Gamma(self.df1 * 0.5, self.df1)
        self._gamma2 = Gamma(self.df2 * 0.5, self.df2)
        super().__init__(self.df1.size(), validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        new._gamma1 = self._gamma1.expand(batch_shape)
        new._gamma2 = self._gamma2.expand(batch_shape)
        return new

    @property
    def mean(self) -> Tensor:
        return T.where(self.df2 <= 2, math.nan, self.df2 / (self.df2 - 2))

    @property
    def mode(self) -> Tensor:
        mode = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return T.where(self.df1 <= 2, math.nan, mode)

    @property
    def variance(self) -> Tensor:
        d1, d2 = self.df1, self.df2
        found = 2 * d2.pow(2) * (d1 + d2 - 2) / (d1 * (d2 - 2).pow(2) * (d2 - 4))
        return T.where(d2 <= 4, math.nan, found)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = tuple(sample_shape)
        top, bottom = self._gamma1.rsample(shape), self._gamma2.rsample(shape)
        tiny = T.finfo(bottom.dtype).tiny
        bottom.detach().clamp_(min=tiny)
        ratio = top / bottom
        ratio.detach().clamp_(min=tiny)
        return ratio

    def log_prob(self, value: Tensor) -> Tensor:
        self._graphc_checked(value)
        a, b = self.df1 * 0.5, self.df2 * 0.5
        ratio = self.df1 / self.df2
        front = (a + b).lgamma() - a.lgamma() - b.lgamma()
        return (
            front + a * ratio.log() + (a - 1) * value.log()
            - (a + b) * T.log1p(ratio * value)
        )
