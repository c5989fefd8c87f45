"""torch.distributions.Categorical."""

from __future__ import annotations

import math
from typing import Any

from ..frontend import functions as T
from ..frontend.tensor import Tensor
from . import constraints
from .distribution import Distribution, numel
from .utils import is_probs, lazy_property, logits_to_probs, probs_to_logits


class Categorical(Distribution):
    """A class 0 .. K-1, of unnormalised probs (or log-probabilities) in the last dimension."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True
    _expanded = ("probs", "logits", "_param")

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        given = probs if is_probs(probs, logits) else logits
        if given.dim() < 1:
            name = "logits" if probs is None else "probs"
            raise ValueError(f"`{name}` parameter must be at least one-dimensional.")
        if probs is not None:
            self.probs = probs / probs.sum(-1, keepdim=True)
        else:
            self.logits = logits - logits.logsumexp(dim=-1, keepdim=True)
        self._param = self.probs if probs is not None else self.logits
        self._num_events = self._param.size(-1)
        super().__init__(tuple(self._param.shape)[:-1], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        new._num_events = self._num_events
        return new

    @lazy_property
    def logits(self) -> Tensor:
        """Normalised log-probabilities."""
        return probs_to_logits(self.probs)

    @lazy_property
    def probs(self) -> Tensor:
        """Normalised probabilities."""
        return logits_to_probs(self.logits)

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter."""
        return self._param.size()

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        """0 .. K-1."""
        return constraints.integer_interval(0, self._num_events - 1)

    @property
    def mean(self) -> Tensor:
        return T.full(tuple(self._batch_shape), math.nan, dtype=self.probs.dtype)

    @property
    def mode(self) -> Tensor:
        return self.probs.argmax(dim=-1)

    @property
    def variance(self) -> Tensor:
        return T.full(tuple(self._batch_shape), math.nan, dtype=self.probs.dtype)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        flat = self.probs.reshape(-1, self._num_events)
        drawn = T.multinomial(flat, count := numel(sample_shape), True)
        return (drawn if count == 1 else drawn.T).reshape(self._extended_shape(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._checked(value)
        value = value.long().unsqueeze(-1)
        if tuple(value.shape)[:-1] == tuple(self.logits.shape)[:-1]:
            return self.logits.gather(-1, value).squeeze(-1)
        value, log_pmf = T.broadcast_tensors(value, self.logits)
        return log_pmf.gather(-1, value[..., :1]).squeeze(-1)

    def entropy(self) -> Tensor:
        logits = self.logits.clamp(min=T.finfo(self.logits.dtype).min)
        return -(logits * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        rank = len(tuple(self._batch_shape))
        values = T.arange(self._num_events).view(-1, *[1] * rank)
        return values.expand(-1, *self._batch_shape) if expand else values
