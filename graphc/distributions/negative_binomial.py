"""torch.distributions.NegativeBinomial."""

from __future__ import annotations

from typing import Any

from ..frontend import functions as T
from ..frontend.grad_mode import no_grad
from ..frontend.tensor import Tensor
from ..nn.functional import logsigmoid
from . import constraints
from .distribution import Distribution
from .gamma import Gamma
from .odds import Odds


class NegativeBinomial(Odds, Distribution):
    """Successes before total_count failures."""

    arg_constraints = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0), "logits": constraints.real,
    }
    support = constraints.nonnegative_integer
    _graphc_expanded = ("total_count", "probs", "logits", "_param")

    def __init__(
        self, total_count: Any, probs: Any = None, logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        (total_count,) = self._graphc_given(probs, logits, total_count)
        self.total_count = total_count.type_as(self._param)
        super().__init__(self._param.size(), validate_args=validate_args)

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter."""
        return self._param.size()

    @property
    def mean(self) -> Tensor:
        return self.total_count * T.exp(self.logits)

    @property
    def mode(self) -> Tensor:
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0)

    @property
    def variance(self) -> Tensor:
        return self.mean / T.sigmoid(-self.logits)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            gamma = Gamma(self.total_count, T.exp(-self.logits), validate_args=False)
            return T.poisson(gamma.sample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._graphc_checked(value)
        n = self.total_count
        weight = n * logsigmoid(-self.logits) + value * logsigmoid(self.logits)
        norm = -T.lgamma(n + value) + T.lgamma(1.0 + value) + T.lgamma(n)
        return weight - norm.masked_fill(n + value == 0.0, 0.0)
