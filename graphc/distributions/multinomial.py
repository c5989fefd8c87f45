"""torch.distributions.Multinomial."""

from __future__ import annotations

import math
from typing import Any

from ..frontend import functions as T
from ..frontend.numbers import Size
from ..frontend.tensor import Tensor
from . import constraints
from .binomial import Binomial
from .categorical import Categorical
from .distribution import Distribution
from .utils import broadcast_all


class Multinomial(Distribution):
    """Counts of total_count draws of a class."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    total_count: int

    def __init__(
        self, total_count: int = 1, probs: Any = None, logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        self._categorical = Categorical(probs=probs, logits=logits)
        self._binomial = Binomial(total_count=total_count, probs=self.probs)
        shape = tuple(self._categorical.param_shape)
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        new.total_count, new._binomial = self.total_count, self._binomial
        new._categorical = self._categorical.expand(batch_shape)
        return new

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Any:
        """Counts of a sum of at most total_count."""
        return constraints.multinomial(self.total_count)

    @property
    def probs(self) -> Tensor:
        """Normalised probabilities."""
        return self._categorical.probs

    @property
    def logits(self) -> Tensor:
        """Normalised log-probabilities."""
        return self._categorical.logits

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter."""
        return self._categorical.param_shape

    @property
    def mean(self) -> Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        drawn = self._categorical.sample(Size((self.total_count, *tuple(sample_shape))))
        classes = drawn.permute(*range(1, drawn.dim()), 0)
        counts = T.zeros(tuple(self._extended_shape(sample_shape)), dtype=T.int64)
        counts = counts.scatter_add(-1, classes, T.ones_like(classes))
        return counts.type_as(self.probs)

    def log_prob(self, value: Tensor) -> Tensor:
        self._graphc_checked(value)
        logits, value = broadcast_all(self.logits, value)
        logits = T.where((value == 0) & (logits == -math.inf), 0.0, logits)
        ways = T.lgamma(value.sum(-1) + 1) - T.lgamma(value + 1).sum(-1)
        return ways + (logits * value).sum(-1)

    def entropy(self) -> Tensor:
        n = T.tensor(float(self.total_count))
        entropy = self._categorical.entropy()
        support = self._binomial.enumerate_support(expand=False)[1:]
        weight = T.exp(self._binomial.log_prob(support)) * T.lgamma(support + 1)
        return n * entropy - T.lgamma(n + 1) + weight.sum([0, -1])
