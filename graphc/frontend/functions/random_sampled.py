"""poisson, binomial and gamma numbers with parameters by element, and their gradients."""

from __future__ import annotations

from typing import Any

from graphc.ir import dtypes

from .. import promote
from ..context import local
from ..errors import located
from ..placement import beside, place_at
from ..random_state import Generator, draw_from
from ..tensor import Tensor
from ..transfer import moved
from . import pointwise as P
from .ranges import arange
from .repetition import broadcast_tensors

_TERMS = 256  # of the series for gradients; enough below _LARGE
_LARGE = 100.0


def _float(input: Tensor, name: str) -> Tensor:
    if not input.dtype.is_float:
        raise NotImplementedError(located(
            f"\"{name}_cpu\" not implemented for '{promote._name(input.dtype)}'"
        ))
    return input.detach()


@beside
def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Poisson numbers of the rates in `input`."""
    return draw_from("poisson", generator, _float(input, "poisson"))


@beside
def binomial(
    count: Tensor, prob: Tensor, generator: Generator | None = None
) -> Tensor:
    """Numbers of successes among `count` trials of probability `prob`."""
    if count.dtype is not prob.dtype:
        raise RuntimeError(located(
            f"Found dtype {prob.dtype} but expected {count.dtype}: count and prob have one dtype"
        ))
    trials, probability = broadcast_tensors(_float(count, "binomial"), _float(prob, "binomial"))
    return draw_from("binomial", generator, trials, probability)


@beside
def _standard_gamma(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Gamma numbers with the shape parameters in `input` and scale 1, differentiable in it."""
    drawn = draw_from("gamma", generator, _float(input, "standard_gamma"))
    return _along(drawn, input, lambda: gamma_gradient(input.detach(), drawn))


def _along(drawn: Tensor, parameter: Tensor, slope: Any) -> Tensor:
    """`drawn`, whose derivative with respect to the parameter is slope()."""
    if not parameter.requires_grad:
        return drawn
    result: Tensor = drawn + (parameter - parameter.detach()) * slope()
    return result


def gamma_gradient(alpha: Tensor, value: Tensor) -> Tensor:
    """d value / d alpha of a gamma number at a fixed quantile: -(dP/dalpha) / pdf, by the series
    of the lower incomplete gamma function; by Wilson and Hilferty's approximation above 100."""
    a, x = (promote.cast(t, dtypes.f64) for t in (alpha, value))
    a1, x1 = a.clamp(max=_LARGE).unsqueeze(-1), x.unsqueeze(-1)
    k = arange(_TERMS, dtype=dtypes.f64)
    log_x = x1.log()
    rising = a1 + k + 1
    terms = (k * log_x + a1.lgamma() - rising.lgamma()).exp() * (log_x - rising.digamma())
    series = -x * terms.sum(-1)
    root = (x / a).pow(1.0 / 3)
    z = (root - 1 + 1 / (9 * a)) * 3 * a.sqrt()
    slope = 1 / (9 * a * a) - z / (6 * a * a.sqrt())
    hilferty = root.pow(3) + 3 * a * root * root * slope
    return promote.cast(P.where(a > _LARGE, hilferty, series), alpha.dtype)


@beside
def _sample_dirichlet(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Dirichlet numbers of the concentrations in the last dimension, differentiable in them."""
    given = _float(input, "dirichlet")
    if local.trace is None:  # draws are on the host, and float64, which a device may lack
        given = moved(given, None)
    gamma = draw_from("gamma", generator, promote.cast(given, dtypes.f64))
    ratio = promote.cast(gamma / gamma.sum(-1, keepdim=True), input.dtype)
    if local.trace is None:
        ratio = moved(ratio, place_at(input))
    tiny, below = _ENDS[input.dtype]
    drawn = ratio.clamp(tiny, below)
    if not input.requires_grad:
        return drawn  # type: ignore[no-any-return]
    slope = beta_gradient(input.detach(), input.detach().sum(-1, keepdim=True), drawn)
    change = (input - input.detach()) * slope
    result: Tensor = drawn + change - drawn * change.sum(-1, keepdim=True)
    return result


_ENDS = {
    dtypes.f32: (2.0**-126, 1 - 2.0**-24), dtypes.f64: (2.0**-1022, 1 - 2.0**-53),
    dtypes.f16: (2.0**-14, 1 - 2.0**-11), dtypes.bf16: (2.0**-126, 1 - 2.0**-8),
}


def beta_gradient(alpha: Tensor, total: Tensor, value: Tensor) -> Tensor:
    """torch's slope of a Dirichlet number: d value / d alpha of Beta(alpha, total - alpha) at a
    fixed quantile, divided by 1 - value (what the others lose is taken from them in proportion)."""
    a, n, x = (promote.cast(t, dtypes.f64) for t in (alpha, total, value))
    b = n - a
    a1, b1 = a.unsqueeze(-1), b.unsqueeze(-1)
    lower = x <= 0.5
    far = n * P.where(lower, x, 1 - x) > _LARGE  # too far for the series
    k = arange(_TERMS, dtype=dtypes.f64)
    log_x, log_y = x.log().unsqueeze(-1), (-x).log1p().unsqueeze(-1)
    both = (a1 + b1 + k).lgamma() - (a1 + b1).lgamma()
    # I_x(a, b) / pdf by its series from 0, or 1 - I from 1; then its derivative by a
    up = (both + a1.lgamma() - (a1 + k + 1).lgamma() + k * log_x).exp() * (
        (a1 + b1 + k).digamma() - (a1 + k + 1).digamma() + log_x
    )
    down = (both + b1.lgamma() - (b1 + k + 1).lgamma() + k * log_y).exp() * (
        (a1 + b1 + k).digamma() - a1.digamma() + log_x
    )
    series = P.where(lower, -(x * (1 - x)) * up.sum(-1), (x * (1 - x)) * down.sum(-1))
    slope = P.where(far, _paulson(a, b, x), series) / (1 - x)
    return promote.cast(slope, alpha.dtype)


def _paulson(a: Tensor, b: Tensor, x: Tensor) -> Tensor:
    """d x / d a of a Beta(a, b) number at a fixed quantile, by Paulson's normal approximation
    z = n / d (Annals of Mathematical Statistics 13, 1942), good for large a and b."""
    f = (x * b / ((1 - x) * a)).pow(1.0 / 3)
    near = 1 - 1 / (9 * b)
    n = near * f - (1 - 1 / (9 * a))
    d = (f * f / (9 * b) + 1 / (9 * a)).sqrt()
    f_a, f_x = -f / (3 * a), f / (3 * x * (1 - x))
    n_a, n_x = near * f_a - 1 / (9 * a * a), near * f_x
    d_a, d_x = (2 * f * f_a / (9 * b) - 1 / (9 * a * a)) / (2 * d), f * f_x / (9 * b) / d
    result: Tensor = -(n_a * d - n * d_a) / (n_x * d - n * d_x)
    return result
