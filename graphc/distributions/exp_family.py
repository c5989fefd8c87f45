"""torch.distributions.ExponentialFamily."""

from __future__ import annotations

from typing import Any

from ..frontend.autograd import grad
from ..frontend.tensor import Tensor
from .distribution import Distribution
from .utils import _sum_rightmost


class ExponentialFamily(Distribution):
    """Distributions whose density is exp(natural parameters . statistics - log normaliser).

    Subclasses that give `_natural_params`, `_log_normalizer` and `_mean_carrier_measure` have
    entropies, and divergences of each other, by the gradient of the log normaliser: the mean of the
    statistics (Nielsen and Nock, Entropies and cross-entropies of exponential families, 2010).
    """

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        raise _not_given(self, "_natural_params")

    def _log_normalizer(self, *natural_params: Any) -> Tensor:
        raise _not_given(self, "_log_normalizer")

    @property
    def _mean_carrier_measure(self) -> Any:
        raise _not_given(self, "_mean_carrier_measure")

    def entropy(self) -> Tensor:
        carrier = self._mean_carrier_measure
        params, normaliser, means = _means(self)
        result = normaliser - carrier
        for param, mean in zip(params, means, strict=True):
            result = result - _sum_rightmost(param * mean, param.ndim - len(self._batch_shape))
        return result


def _not_given(p: ExponentialFamily, name: str) -> NotImplementedError:
    return NotImplementedError(
        f"{type(p).__name__} does not give {name}, by which entropies and divergences of "
        f"exponential families are computed. Cure: define it, or entropy() and a rule by "
        f"torch.distributions.kl.register_kl"
    )


def _means(p: ExponentialFamily) -> tuple[list[Tensor], Tensor, tuple[Any, ...]]:
    """The natural parameters, the log normaliser, and the mean of each statistic."""
    params = [
        x if x.requires_grad else x.detach().requires_grad_() for x in p._natural_params
    ]
    normaliser = p._log_normalizer(*params)
    return params, normaliser, grad(normaliser.sum(), params, create_graph=True)


def divergence(p: Any, q: Any) -> Tensor:
    """KL(p || q) of two members of a family."""
    if type(p) is not type(q):
        raise NotImplementedError(
            f"kl_divergence({type(p).__name__}, {type(q).__name__}): families that differ have no "
            f"divergence by their log normalisers. Cure: torch.distributions.kl.register_kl"
        )
    params, normaliser, means = _means(p)
    others = q._natural_params
    result = q._log_normalizer(*others) - normaliser
    for param, other, mean in zip(params, others, means, strict=True):
        result = result - _sum_rightmost((other - param) * mean, len(q.event_shape))
    return result
