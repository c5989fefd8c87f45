"""torch.distributions.MixtureSameFamily."""

from __future__ import annotations

from typing import Any

from ..frontend import functions as T
from ..frontend.grad_mode import no_grad
from ..frontend.tensor import Tensor
from . import constraints
from .categorical import Categorical
from .distribution import Distribution


class MixtureSameFamily(Distribution):
    """A Categorical mixture of the distributions along the last batch dimension."""

    arg_constraints: Any = {}

    def __init__(
        self, mixture_distribution: Any, component_distribution: Any,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError(
                " The Mixture distribution needs to be an instance of "
                "torch.distributions.Categorical"
            )
        if not isinstance(component_distribution, Distribution):
            raise ValueError(
                "The Component distribution need to be an instance of "
                "torch.distributions.Distribution"
            )
        self._mixture_distribution = mixture_distribution
        self._component_distribution = component_distribution
        batch = tuple(component_distribution.batch_shape)
        mixed = tuple(mixture_distribution.batch_shape)
        for a, b in zip(reversed(mixed), reversed(batch[:-1]), strict=False):
            if 1 not in (a, b) and a != b:
                raise ValueError(
                    f"`mixture_distribution.batch_shape` ({mixed}) is not compatible with "
                    f"`component_distribution.batch_shape`({batch})"
                )
        self._num_component = batch[-1]
        if mixture_distribution._num_events != self._num_component:
            raise ValueError(
                f"`mixture_distribution component` ({mixture_distribution._num_events}) does not "
                f"equal `component_distribution.batch_shape[-1]` ({self._num_component})"
            )
        event = tuple(component_distribution.event_shape)
        self._event_ndims = len(event)
        super().__init__(batch[:-1], event, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        batch = tuple(batch_shape)
        new._num_component, new._event_ndims = self._num_component, self._event_ndims
        new._component_distribution = self._component_distribution.expand(
            (*batch, self._num_component)
        )
        new._mixture_distribution = self._mixture_distribution.expand(batch)
        return new

    @constraints.dependent_property
    def support(self) -> Any:
        """The components' support."""
        return constraints.MixtureSameFamilyConstraint(self._component_distribution.support)

    @property
    def mixture_distribution(self) -> Any:
        """The Categorical that chooses a component."""
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Any:
        """The components."""
        return self._component_distribution

    def _graphc_weights(self) -> Tensor:
        probs = self._mixture_distribution.probs
        return probs.reshape(*tuple(probs.shape), *[1] * self._event_ndims)

    @property
    def mean(self) -> Tensor:
        dim = -1 - self._event_ndims
        return (self._graphc_weights() * self._component_distribution.mean).sum(dim)

    @property
    def variance(self) -> Tensor:
        dim = -1 - self._event_ndims
        means = self._component_distribution.mean
        inside = (self._graphc_weights() * self._component_distribution.variance).sum(dim)
        between = (self._graphc_weights() * (means - self.mean.unsqueeze(dim)).pow(2)).sum(dim)
        return inside + between

    def sample(self, sample_shape: Any = ()) -> Tensor:
        dim = len(tuple(sample_shape)) + len(tuple(self._batch_shape))
        with no_grad():
            which = self._mixture_distribution.sample(sample_shape)
            drawn = self._component_distribution.sample(sample_shape)
            event = tuple(self._event_shape)
            which = which.reshape(*tuple(which.shape), 1, *[1] * self._event_ndims)
            which = which.expand(*tuple(which.shape)[: dim + 1], *event)
            return drawn.gather(dim, which).squeeze(dim)

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._graphc_padded(self._graphc_checked(value))
        weights = T.log_softmax(self._mixture_distribution.logits, -1)
        return T.logsumexp(self._component_distribution.log_prob(value) + weights, -1)

    def cdf(self, value: Tensor) -> Tensor:
        below = self._component_distribution.cdf(self._graphc_padded(value))
        return (below * self._mixture_distribution.probs).sum(-1)

    def _graphc_padded(self, value: Tensor) -> Tensor:
        return value.unsqueeze(-1 - self._event_ndims)

    def __repr__(self) -> str:
        return (
            f"MixtureSameFamily(\n  {self._mixture_distribution},\n  "
            f"{self._component_distribution})"
        )
