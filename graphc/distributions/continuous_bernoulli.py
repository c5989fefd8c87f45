"""torch.distributions.ContinuousBernoulli."""

from __future__ import annotations

import math
from typing import Any

from ..frontend import functions as T
from ..frontend.tensor import Tensor
from ..nn.functional import binary_cross_entropy_with_logits
from . import constraints
from .exp_family import ExponentialFamily
from .odds import Odds
from .utils import broadcast_all


class ContinuousBernoulli(Odds, ExponentialFamily):
    """On [0, 1], with density proportional to probs^x (1-probs)^(1-x)."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True
    _graphc_expanded = ("probs", "logits", "_param")

    def __init__(
        self, probs: Any = None, logits: Any = None, lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        self._graphc_given(probs, logits)
        self._lims = lims
        super().__init__(self._param.size(), validate_args=validate_args)

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter."""
        return self._param.size()

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        new._lims = self._lims
        return new

    def _graphc_outside(self) -> Tensor:
        """Where probs is far enough from 1/2 for the closed forms."""
        return (self.probs <= self._lims[0]) | (self.probs > self._lims[1])

    def _graphc_cut(self) -> Tensor:
        return T.where(self._graphc_outside(), self.probs, self._lims[0])

    def _graphc_log_normaliser(self) -> Tensor:
        cut = self._graphc_cut()
        below = T.where(cut <= 0.5, cut, 0.0)
        above = T.where(cut >= 0.5, cut, 1.0)
        norm = T.log(T.abs(T.log1p(-cut) - T.log(cut))) - T.where(
            cut <= 0.5, T.log1p(-2.0 * below), T.log(2.0 * above - 1.0)
        )
        x = (self.probs - 0.5) ** 2
        return T.where(self._graphc_outside(), norm, math.log(2.0) + (4.0 / 3 + 104.0 / 45 * x) * x)

    @property
    def mean(self) -> Tensor:
        cut, x = self._graphc_cut(), self.probs - 0.5
        exact = cut / (2.0 * cut - 1.0) + 1.0 / (T.log1p(-cut) - T.log(cut))
        return T.where(self._graphc_outside(), exact, 0.5 + (1.0 / 3 + 16.0 / 45 * x**2) * x)

    @property
    def variance(self) -> Tensor:
        cut, x = self._graphc_cut(), (self.probs - 0.5) ** 2
        exact = cut * (cut - 1.0) / (1.0 - 2.0 * cut) ** 2 + 1.0 / (
            T.log1p(-cut) - T.log(cut)
        ) ** 2
        return T.where(self._graphc_outside(), exact, 1.0 / 12 - (1.0 / 15 - 128.0 / 945 * x) * x)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.icdf(T.rand(tuple(self._extended_shape(sample_shape)), dtype=self.probs.dtype))

    def log_prob(self, value: Tensor) -> Tensor:
        self._graphc_checked(value)
        logits, value = broadcast_all(self.logits, value)
        return (
            -binary_cross_entropy_with_logits(logits, value, reduction="none")
            + self._graphc_log_normaliser()
        )

    def cdf(self, value: Tensor) -> Tensor:
        self._graphc_checked(value)
        cut = self._graphc_cut()
        top = T.pow(cut, value) * T.pow(1.0 - cut, 1.0 - value) + cut - 1.0
        inside = T.where(self._graphc_outside(), top / (2.0 * cut - 1.0), value)
        return T.where(value <= 0, 0.0, T.where(value >= 1, 1.0, inside))

    def icdf(self, value: Tensor) -> Tensor:
        cut = self._graphc_cut()
        exact = (T.log1p(-cut + value * (2.0 * cut - 1.0)) - T.log1p(-cut)) / (
            T.log(cut) - T.log1p(-cut)
        )
        return T.where(self._graphc_outside(), exact, value)

    def entropy(self) -> Tensor:
        log0, log1 = T.log1p(-self.probs), T.log(self.probs)
        return self.mean * (log0 - log1) - self._graphc_log_normaliser() - log0
