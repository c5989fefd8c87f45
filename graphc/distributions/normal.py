"""torch.distributions.Normal."""

from __future__ import annotations

import math
from typing import Any

from ..frontend import functions as T
from ..frontend.grad_mode import no_grad
from ..frontend.joined import gains, joined
from ..frontend.tensor import Tensor
from . import constraints
from .exp_family import ExponentialFamily
from .utils import _standard_normal, broadcast_all


def _log_density(value: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    var = scale**2
    return (
        -((value - loc) ** 2) / (2 * var) - scale.log() - math.log(math.sqrt(2 * math.pi))
    )


_log_density_joined = joined(_log_density)


class Normal(ExponentialFamily):
    """Mean loc, standard deviation scale."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True
    _graphc_expanded = ("loc", "scale")

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.size(), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def stddev(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        return self.stddev.pow(2)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        loc, scale = self.loc, self.scale
        if sample_shape != ():
            shape = self._extended_shape(sample_shape)
            loc, scale = loc.expand(shape), scale.expand(shape)
        with no_grad():
            return T.normal(loc, scale)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.loc + _standard_normal(shape, self.loc.dtype, self.loc.device) * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        given = self._graphc_checked(value), self.loc, self.scale
        return _log_density_joined(*given) if gains(*given) else _log_density(*given)

    def cdf(self, value: Tensor) -> Tensor:
        self._graphc_checked(value)
        z = (value - self.loc) * self.scale.reciprocal() / math.sqrt(2)
        return 0.5 * (1 + T.erf(z))

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * T.erfinv(2 * value - 1) * math.sqrt(2)

    def entropy(self) -> Tensor:
        return 0.5 + 0.5 * math.log(2 * math.pi) + T.log(self.scale)
