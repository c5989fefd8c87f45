"""torch.distributions.VonMises."""

from __future__ import annotations

import math
from typing import Any

from .. import special
from ..frontend import functions as T
from ..frontend.grad_mode import no_grad
from ..frontend.tensor import Tensor
from . import constraints
from .distribution import Distribution
from .utils import broadcast_all, lazy_property

_FLAT = 1e-5  # a concentration below it is taken by its series


class VonMises(Distribution):
    """Angles in [-pi, pi) around `loc`; Best and Fisher's sampler (Applied Statistics, 1979)."""

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real
    has_rsample = False
    _graphc_expanded = ("loc", "concentration")

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(tuple(self.loc.shape), validate_args=validate_args)

    def log_prob(self, value: Tensor) -> Tensor:
        self._graphc_checked(value)
        k = self.concentration
        log_i0 = special.i0e(k).log() + k
        return k * T.cos(value - self.loc) - math.log(2 * math.pi) - log_i0

    @lazy_property
    def _proposal_r(self) -> Tensor:
        """The shape of the wrapped Cauchy distribution that is proposed from, in float64."""
        k = self.concentration.double()
        tau = 1 + (1 + 4 * k.pow(2)).sqrt()
        rho = (tau - (2 * tau).sqrt()) / (2 * k)
        return T.where(k < _FLAT, 1 / k + k, (1 + rho.pow(2)) / (2 * rho))

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Draws by rejection, in float64 as in torch, until all are accepted."""
        shape = tuple(self._extended_shape(sample_shape))
        with no_grad():
            k, r = self.concentration.double().expand(shape), self._proposal_r.expand(shape)
            angles = T.zeros(shape, dtype=T.float64)
            done = T.zeros(shape, dtype=T.bool)
            while not bool(done.all()):
                first, second, third = T.rand((3, *shape), dtype=T.float64).unbind()
                z = T.cos(math.pi * first)
                f = (1 + r * z) / (r + z)
                c = k * (r - f)
                accepted = (c * (2 - c) - second > 0) | ((c / second).log() + 1 - c >= 0)
                angles = T.where(accepted, (third - 0.5).sign() * f.acos(), angles)
                done = done | accepted
            turned = (angles + math.pi + self.loc.double()) % (2 * math.pi) - math.pi
            return turned.to(self.loc.dtype)

    @property
    def mean(self) -> Tensor:
        """The circular mean."""
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @lazy_property
    def variance(self) -> Tensor:
        """The circular variance, 1 - I1 / I0."""
        k = self.concentration
        return 1 - special.i1e(k) / special.i0e(k)
