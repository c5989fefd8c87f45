"""torch.distributions.Categorical."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..frontend import functions as T
from ..frontend.joined import gains, joined
from ..frontend.tensor import Tensor
from . import constraints
from .distribution import Distribution, numel
from .utils import is_probs, lazy_property, logits_to_probs, probs_to_logits


def _normal_probs(probs: Tensor) -> Tensor:
    return probs / probs.sum(-1, keepdim=True)


def _normal_logits(logits: Tensor) -> Tensor:
    return logits - logits.logsumexp(dim=-1, keepdim=True)


@joined
def _probs_first(probs: Tensor) -> tuple[Tensor, Tensor]:
    normal = _normal_probs(probs)
    return normal, probs_to_logits(normal)


@joined
def _logits_first(logits: Tensor) -> tuple[Tensor, Tensor]:
    normal = _normal_logits(logits)
    return normal, logits_to_probs(normal)


@joined
def _chosen(logits: Tensor, value: Tensor) -> Tensor:
    return logits.gather(-1, value).sum(-1)  # of one: no view, which would cost more to make


def _entropy(logits: Tensor, probs: Tensor) -> Tensor:
    return -(logits.clamp(min=T.finfo(logits.dtype).min) * probs).sum(-1)


_entropy_joined = joined(_entropy)


class Categorical(Distribution):
    """A class 0 .. K-1, of unnormalised probs (or log-probabilities) in the last dimension."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True
    _graphc_expanded = ("probs", "logits", "_param")
    # what was made of the parameter, its version then, and the other form, if that was made, too
    _graphc_beside: tuple[Tensor | None, int, Tensor | None] = None, 0, None

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        given = probs if is_probs(probs, logits) else logits
        if given.dim() < 1:
            name = "logits" if probs is None else "probs"
            raise ValueError(f"`{name}` parameter must be at least one-dimensional.")
        if gains(given):
            first, other = _logits_first(logits) if probs is None else _probs_first(probs)
            self._graphc_beside = first, first._graphc_storage.version, other
        else:
            first = _normal_logits(logits) if probs is None else _normal_probs(probs)
        if probs is not None:
            self.probs = first
        else:
            self.logits = first
        self._param = first
        self._num_events = self._param.size(-1)
        super().__init__(tuple(self._param.shape)[:-1], validate_args=validate_args)

    def _graphc_form_beside(self, given: Tensor, convert: Callable[[Tensor], Tensor]) -> Tensor:
        first, version, other = self._graphc_beside
        if other is not None and given is first and given._graphc_storage.version == version:
            return other
        return convert(given)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        new._num_events = self._num_events
        return new

    @lazy_property
    def logits(self) -> Tensor:
        """Normalised log-probabilities."""
        return self._graphc_form_beside(self.probs, probs_to_logits)

    @lazy_property
    def probs(self) -> Tensor:
        """Normalised probabilities."""
        return self._graphc_form_beside(self.logits, logits_to_probs)

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
        flat = self.probs if self.probs.dim() == 2 else self.probs.reshape(-1, self._num_events)
        drawn = T.multinomial(flat, count := numel(sample_shape), True)
        shape = tuple(self._extended_shape(sample_shape))
        return (drawn if count == 1 else drawn.T).reshape(shape)

    def log_prob(self, value: Tensor) -> Tensor:
        self._graphc_checked(value)
        value = value.long().unsqueeze(-1)
        if tuple(value.shape)[:-1] == tuple(self.logits.shape)[:-1]:
            if gains(self.logits):
                return _chosen(self.logits, value)
            return self.logits.gather(-1, value).squeeze(-1)
        value, log_pmf = T.broadcast_tensors(value, self.logits)
        return log_pmf.gather(-1, value[..., :1]).squeeze(-1)

    def entropy(self) -> Tensor:
        given = self.logits, self.probs
        return _entropy_joined(*given) if gains(*given) else _entropy(*given)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        rank = len(tuple(self._batch_shape))
        values = T.arange(self._num_events).view(-1, *[1] * rank)
        return values.expand(-1, *self._batch_shape) if expand else values
