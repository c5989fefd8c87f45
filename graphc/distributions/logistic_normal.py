"""torch.distributions.LogisticNormal."""

from __future__ import annotations

from typing import Any

from ..frontend.tensor import Tensor
from . import constraints
from .normal import Normal
from .transformed_distribution import TransformedDistribution
from .transforms import StickBreakingTransform


class LogisticNormal(TransformedDistribution):
    """Normal numbers mapped to the simplex by stick breaking."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.simplex
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        if not tuple(base.batch_shape):
            base = base.expand([1])
        super().__init__(base, StickBreakingTransform(), validate_args=validate_args)

    @property
    def loc(self) -> Tensor:
        """The normal numbers' mean."""
        return self.base_dist.base_dist.loc

    @property
    def scale(self) -> Tensor:
        """The normal numbers' standard deviation."""
        return self.base_dist.base_dist.scale
