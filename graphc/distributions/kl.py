"""kl_divergence(p, q), by pairs of distributions; register_kl adds a pair."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .. import linalg
from ..frontend import functions as T
from ..frontend.tensor import Tensor
from .bernoulli import Bernoulli
from .beta import Beta
from .binomial import Binomial
from .categorical import Categorical
from .cauchy import Cauchy
from .continuous_bernoulli import ContinuousBernoulli
from .dirichlet import Dirichlet
from .exponential import Exponential
from .gamma import Gamma
from .geometric import Geometric
from .gumbel import Gumbel
from .half_normal import HalfNormal
from .independent import Independent
from .laplace import Laplace
from .log_normal import LogNormal
from .low_rank_multivariate_normal import LowRankMultivariateNormal
from .multivariate_normal import MultivariateNormal, batch_mahalanobis
from .normal import Normal
from .one_hot_categorical import OneHotCategorical
from .pareto import Pareto
from .poisson import Poisson
from .transformed_distribution import TransformedDistribution
from .uniform import Uniform
from .utils import _sum_rightmost, euler_constant

__all__ = ["kl_divergence", "register_kl"]

Rule = Callable[[Any, Any], Any]
_KL_REGISTRY: dict[tuple[type, type], Rule] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Rule], Rule]:
    """Decorate the function that gives the divergence of a pair of classes."""

    def decorate(rule: Rule) -> Rule:
        _KL_REGISTRY[type_p, type_q] = rule
        return rule

    return decorate


def kl_divergence(p: Any, q: Any) -> Tensor:
    """The Kullback-Leibler divergence KL(p || q). Raises NotImplementedError for a pair without
    a rule: the rule of the nearest common ancestors counts."""
    for type_p in type(p).__mro__:
        for type_q in type(q).__mro__:
            rule = _KL_REGISTRY.get((type_p, type_q))
            if rule is not None:
                result: Tensor = rule(p, q)
                return result
    raise NotImplementedError(
        f"No KL(p || q) is implemented for p type {type(p).__name__} and q type "
        f"{type(q).__name__}"
    )


@register_kl(Normal, Normal)
def _normal_normal(p: Any, q: Any) -> Any:
    ratio = (p.scale / q.scale).pow(2)
    away = ((p.loc - q.loc) / q.scale).pow(2)
    return 0.5 * (ratio + away - 1 - ratio.log())


@register_kl(HalfNormal, HalfNormal)
@register_kl(LogNormal, LogNormal)
@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: Any, q: Any) -> Any:
    if len(p.transforms) != len(q.transforms) or any(
        type(a) is not type(b) for a, b in zip(p.transforms, q.transforms, strict=True)
    ):
        raise NotImplementedError("the distributions have different transforms")
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Independent, Independent)
def _independent(p: Any, q: Any) -> Any:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("the distributions have different event dimensions")
    return _sum_rightmost(
        kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims
    )


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Any, q: Any) -> Any:
    ones = T.where(q.probs == 0, math.inf, p.probs * (p.probs.log() - q.probs.log()))
    ones = T.where(p.probs == 0, 0.0, ones)
    no_p, no_q = 1 - p.probs, 1 - q.probs
    zeros = T.where(q.probs == 1, math.inf, no_p * (no_p.log() - no_q.log()))
    return ones + T.where(p.probs == 1, 0.0, zeros)


@register_kl(Categorical, Categorical)
def _categorical(p: Any, q: Any) -> Any:
    terms = p.probs * (p.logits - q.logits)
    terms = T.where((q.probs == 0).expand(terms.shape), math.inf, terms)
    return T.where((p.probs == 0).expand(terms.shape), 0.0, terms).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p: Any, q: Any) -> Any:
    return _categorical(p._categorical, q._categorical)


@register_kl(Beta, Beta)
def _beta(p: Any, q: Any) -> Any:
    return _dirichlet(p._dirichlet, q._dirichlet)


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Any, q: Any) -> Any:
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    front = total.lgamma() - b.sum(-1).lgamma() - (a.lgamma() - b.lgamma()).sum(-1)
    return front + ((a - b) * (a.digamma() - total.digamma().unsqueeze(-1))).sum(-1)


@register_kl(Gamma, Gamma)
def _gamma(p: Any, q: Any) -> Any:
    a, b = p.concentration, q.concentration
    return (
        b * (p.rate / q.rate).log() + T.lgamma(b) - T.lgamma(a) + (a - b) * T.digamma(a)
        + (q.rate - p.rate) * (a / p.rate)
    )


@register_kl(Exponential, Exponential)
def _exponential(p: Any, q: Any) -> Any:
    ratio = q.rate / p.rate
    return ratio - ratio.log() - 1


@register_kl(Poisson, Poisson)
def _poisson(p: Any, q: Any) -> Any:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Geometric, Geometric)
def _geometric(p: Any, q: Any) -> Any:
    return -p.entropy() - T.log1p(-q.probs) / p.probs - q.logits


@register_kl(Binomial, Binomial)
def _binomial(p: Any, q: Any) -> Any:
    if (p.total_count < q.total_count).any():
        raise NotImplementedError(
            "KL between Binomials where q.total_count > p.total_count is not implemented"
        )
    kl = p.total_count * (p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p())
    return T.where(p.total_count > q.total_count, math.inf, kl)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous(p: Any, q: Any) -> Any:
    return (
        p.mean * (p.logits - q.logits) + p._graphc_log_normaliser() + T.log1p(-p.probs)
        - q._graphc_log_normaliser() - T.log1p(-q.probs)
    )


@register_kl(Laplace, Laplace)
def _laplace(p: Any, q: Any) -> Any:
    ratio, away = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + away / q.scale + ratio * T.exp(-away / p.scale) - 1


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Any, q: Any) -> Any:
    top = ((p.scale + q.scale).pow(2) + (p.loc - q.loc).pow(2)).log()
    return top - (4 * p.scale * q.scale).log()


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Any, q: Any) -> Any:
    ratio, near, far = p.scale / q.scale, q.loc / q.scale, p.loc / q.scale
    return (
        -ratio.log() - near + far + ratio * euler_constant
        + T.exp(near + (1 + ratio).lgamma() - far) - (1 + euler_constant)
    )


@register_kl(Pareto, Pareto)
def _pareto(p: Any, q: Any) -> Any:
    ratio = q.alpha / p.alpha
    result = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return T.where(p.scale < q.scale, math.inf, result)


@register_kl(Uniform, Uniform)
def _uniform(p: Any, q: Any) -> Any:
    result = ((q.high - q.low) / (p.high - p.low)).log()
    return T.where((q.low > p.low) | (q.high < p.high), math.inf, result)


@register_kl(Uniform, Normal)
def _uniform_normal(p: Any, q: Any) -> Any:
    width = p.high - p.low
    term = (math.sqrt(math.pi * 2) * q.scale / width).log()
    square = (p.high.pow(2) + p.high * p.low + p.low.pow(2)) / 3
    middle = p.high + p.low
    return term + 0.5 * (square - middle * q.loc + q.loc.pow(2)) / q.scale.pow(2)


@register_kl(Normal, Laplace)
def _normal_laplace(p: Any, q: Any) -> Any:
    away = p.loc - q.loc
    ratio = away / p.scale
    mean = math.sqrt(2 / math.pi) * p.scale * T.exp(-0.5 * ratio.pow(2)) + away * T.erf(
        math.sqrt(0.5) * ratio
    )
    return -p.entropy() + (2 * q.scale).log() + mean / q.scale


@register_kl(Exponential, Gamma)
def _exponential_gamma(p: Any, q: Any) -> Any:
    ratio = q.rate / p.rate
    return (
        -q.concentration * ratio.log() + ratio + q.concentration.lgamma()
        + q.concentration * euler_constant - (1 + euler_constant)
    )


@register_kl(Gamma, Exponential)
def _gamma_exponential(p: Any, q: Any) -> Any:
    return -p.entropy() - q.rate.log() + q.rate * p.concentration / p.rate


@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
@register_kl(LowRankMultivariateNormal, MultivariateNormal)
@register_kl(MultivariateNormal, LowRankMultivariateNormal)
@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate(p: Any, q: Any) -> Any:
    if tuple(p.event_shape) != tuple(q.event_shape):
        raise ValueError(
            "KL-divergence between two Multivariate Normals with different event shapes cannot "
            "be computed"
        )
    half = q._graphc_half_log_det() - p._graphc_half_log_det()
    size = int(p.event_shape[0])
    lower_q, lower_p = q._unbroadcasted_scale_tril, p._unbroadcasted_scale_tril
    batch = tuple(T.broadcast_shapes(tuple(lower_q.shape)[:-2], tuple(lower_p.shape)[:-2]))
    both = linalg.solve_triangular(
        lower_q.expand((*batch, size, size)), lower_p.expand((*batch, size, size)), upper=False
    )
    trace = both.pow(2).sum((-2, -1))
    return half + 0.5 * (trace + batch_mahalanobis(lower_q, q.loc - p.loc) - size)
