"""kl_divergence of distributions of two families: -H(p) - E_p[log q], by the expectations that the
density of q is made of."""

from __future__ import annotations

import itertools
import math
from typing import Any

from ..frontend import functions as T
from .bernoulli import Bernoulli
from .beta import Beta
from .binomial import Binomial
from .continuous_bernoulli import ContinuousBernoulli
from .exp_family import ExponentialFamily, divergence
from .exponential import Exponential
from .gamma import Gamma
from .gumbel import Gumbel
from .kl import register_kl
from .laplace import Laplace
from .normal import Normal
from .pareto import Pareto
from .poisson import Poisson
from .uniform import Uniform

_UNIT, _REAL = (Beta, ContinuousBernoulli), (Gumbel, Laplace, Normal)
_POSITIVE = (Exponential, Gamma)

# p has mass where q has none
_INFINITE = [
    *itertools.product(_UNIT, [Pareto]),
    *itertools.product(_POSITIVE, [*_UNIT, Pareto, Uniform]),
    *itertools.product(_REAL, [*_UNIT, *_POSITIVE, Pareto, Uniform]),
    *itertools.product([Pareto], [*_UNIT, Uniform]),
    *itertools.product([Poisson], [Bernoulli, Binomial]),
]


def _infinite(p: Any, q: Any) -> Any:
    return T.full_like(p.mean.detach(), math.inf)


for _pair in _INFINITE:
    register_kl(*_pair)(_infinite)
register_kl(ExponentialFamily, ExponentialFamily)(divergence)


def _mean_log(p: Any) -> Any:
    """E[log x]"""
    if isinstance(p, Beta):
        return p.concentration1.digamma() - (p.concentration1 + p.concentration0).digamma()
    if isinstance(p, Pareto):
        return p.scale.log() + p.alpha.reciprocal()
    return _mean_log_between(p.low, p.high)


def _mean_log_between(low: Any, high: Any) -> Any:
    return (T.xlogy(high, high) - T.xlogy(low, low)) / (high - low) - 1


@register_kl(Beta, Normal)
@register_kl(ContinuousBernoulli, Normal)
@register_kl(Exponential, Normal)
@register_kl(Gamma, Normal)
@register_kl(Gumbel, Normal)
@register_kl(Laplace, Normal)
@register_kl(Pareto, Normal)
def _to_normal(p: Any, q: Any) -> Any:
    square = p.variance + (p.mean - q.loc).pow(2)
    return -p.entropy() + (q.scale * math.sqrt(2 * math.pi)).log() + square / (2 * q.scale.pow(2))


@register_kl(Beta, Exponential)
@register_kl(ContinuousBernoulli, Exponential)
@register_kl(Pareto, Exponential)
def _to_exponential(p: Any, q: Any) -> Any:
    return -p.entropy() - q.rate.log() + q.rate * p.mean


@register_kl(Beta, Gamma)
@register_kl(Pareto, Gamma)
def _to_gamma(p: Any, q: Any) -> Any:
    a, rate = q.concentration, q.rate
    return -p.entropy() + a.lgamma() - a * rate.log() - (a - 1) * _mean_log(p) + rate * p.mean


@register_kl(Uniform, Exponential)
@register_kl(Uniform, Gamma)
def _uniform_to_positive(p: Any, q: Any) -> Any:
    rule = _to_gamma if isinstance(q, Gamma) else _to_exponential
    return T.where(p.low < 0, math.inf, rule(p, q))


@register_kl(Beta, Uniform)
@register_kl(ContinuousBernoulli, Uniform)
def _to_uniform(p: Any, q: Any) -> Any:
    inside = -p.entropy() + (q.high - q.low).log()
    return T.where((q.low > 0) | (q.high < 1), math.inf, inside)


@register_kl(Uniform, Beta)
def _uniform_to_beta(p: Any, q: Any) -> Any:
    a, b = q.concentration1, q.concentration0
    front = a.lgamma() + b.lgamma() - (a + b).lgamma()
    rest = (b - 1) * _mean_log_between(1 - p.high, 1 - p.low)
    inside = -p.entropy() + front - (a - 1) * _mean_log(p) - rest
    return T.where((p.high > 1) | (p.low < 0), math.inf, inside)


@register_kl(Uniform, ContinuousBernoulli)
def _uniform_to_continuous(p: Any, q: Any) -> Any:
    """Finite for Uniform(0, 1), too, where PyTorch has infinity."""
    return T.where((p.high > 1) | (p.low < 0), math.inf, _to_continuous(p, q))


@register_kl(Beta, ContinuousBernoulli)
def _to_continuous(p: Any, q: Any) -> Any:
    return (
        -p.entropy() - p.mean * q.logits - T.log1p(-q.probs) - q._graphc_log_normaliser()
    )


@register_kl(Uniform, Pareto)
def _uniform_to_pareto(p: Any, q: Any) -> Any:
    front = q.alpha.log() + q.alpha * q.scale.log()
    inside = -p.entropy() - front + (q.alpha + 1) * _mean_log(p)
    return T.where(p.low < q.scale, math.inf, inside)


@register_kl(Exponential, Gumbel)
@register_kl(Gamma, Gumbel)
@register_kl(Normal, Gumbel)
@register_kl(Uniform, Gumbel)
def _to_gumbel(p: Any, q: Any) -> Any:
    near = q.loc / q.scale
    return (
        -p.entropy() + q.scale.log() + p.mean / q.scale - near + _mean_fall(p, near, q.scale)
    )


def _mean_fall(p: Any, near: Any, scale: Any) -> Any:
    """E[exp(near - x / scale)]"""
    if isinstance(p, Exponential):
        return near.exp() / (1 + (p.rate * scale).reciprocal())
    if isinstance(p, Gamma):
        return (near - p.concentration * (p.rate * scale).reciprocal().log1p()).exp()
    if isinstance(p, Normal):
        return (near - p.loc / scale + 0.5 * (p.scale / scale).pow(2)).exp()
    low, high = near - p.low / scale, near - p.high / scale
    return (low.exp() - high.exp()) / (low - high)


@register_kl(Bernoulli, Poisson)
def _bernoulli_to_poisson(p: Any, q: Any) -> Any:
    return -p.entropy() - T.xlogy(p.probs, q.rate) + q.rate
