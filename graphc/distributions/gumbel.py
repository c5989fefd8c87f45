"""torch.distributions.Gumbel."""

from __future__ import annotations

import math
from typing import Any

from ..frontend import functions as T
from ..frontend.tensor import Tensor
from . import constraints
from .transformed_distribution import TransformedDistribution
from .transforms import AffineTransform, ExpTransform
from .uniform import Uniform
from .utils import broadcast_all, euler_constant


class Gumbel(TransformedDistribution):
    """The extreme value distribution."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        limits = T.finfo(self.loc.dtype)
        base = Uniform(
            T.full_like(self.loc, limits.tiny), T.full_like(self.loc, 1 - limits.eps),
            validate_args=validate_args,
        )
        chain = [
            ExpTransform().inv, AffineTransform(0, -T.ones_like(self.scale)), ExpTransform().inv,
            AffineTransform(self.loc, -self.scale),
        ]
        super().__init__(base, chain, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(Gumbel, _instance)
        shape = tuple(batch_shape)
        Gumbel.__init__(
            new, self.loc.expand(shape), self.scale.expand(shape), self._validate_args
        )
        return new

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * euler_constant

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def stddev(self) -> Tensor:
        return math.pi / math.sqrt(6) * self.scale

    @property
    def variance(self) -> Tensor:
        return self.stddev.pow(2)

    def log_prob(self, value: Tensor) -> Tensor:
        y = (self.loc - self._graphc_checked(value)) / self.scale
        return y - y.exp() - self.scale.log()

    def entropy(self) -> Tensor:
        return self.scale.log() + (1 + euler_constant)
