"""torch.distributions.Binomial."""

from __future__ import annotations

from typing import Any

from ..frontend import functions as T
from ..frontend.grad_mode import no_grad
from ..frontend.tensor import Tensor
from . import constraints
from .distribution import Distribution
from .odds import Odds


class Binomial(Odds, Distribution):
    """Successes among total_count trials."""

    arg_constraints = {
        "total_count": constraints.nonnegative_integer, "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    has_enumerate_support = True
    _graphc_expanded = ("total_count", "probs", "logits", "_param")

    def __init__(
        self, total_count: Any = 1, probs: Any = None, logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        (total_count,) = self._graphc_given(probs, logits, total_count)
        self.total_count = total_count.type_as(self._param)
        super().__init__(self._param.size(), validate_args=validate_args)

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter."""
        return self._param.size()

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        """0 .. total_count."""
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        return ((self.total_count + 1) * self.probs).floor().clamp(max=self.total_count)

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            return T.binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._graphc_checked(value)
        n = self.total_count
        ways = T.lgamma(n + 1) - T.lgamma(value + 1) - T.lgamma(n - value + 1)
        x = self.logits
        positive = (x.clamp(min=0) + x - x.clamp(max=0)) / 2  # its gradient at 0 is 1/2
        normaliser = n * positive + n * T.log1p(T.exp(-T.abs(self.logits)))
        return value * self.logits + ways - normaliser

    def entropy(self) -> Tensor:
        n = int(self.total_count.max())
        if not self.total_count.min() == n:
            raise NotImplementedError(
                "Inhomogeneous total count not supported by `entropy`."
            )
        log_prob = self.log_prob(self.enumerate_support(False))
        return -(T.exp(log_prob) * log_prob).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        n = int(self.total_count.max())
        if not self.total_count.min() == n:
            raise NotImplementedError(
                "Inhomogeneous total count not supported by `enumerate_support`."
            )
        rank = len(tuple(self._batch_shape))
        values = T.arange(1 + n, dtype=self._param.dtype).view(-1, *[1] * rank)
        return values.expand(1 + n, *self._batch_shape) if expand else values
