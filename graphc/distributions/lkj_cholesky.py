"""torch.distributions.LKJCholesky."""

from __future__ import annotations

import math
from typing import Any

from .. import special
from ..frontend import functions as T
from ..frontend.grad_mode import no_grad
from ..frontend.tensor import Tensor
from . import constraints
from .beta import Beta
from .distribution import Distribution
from .utils import _standard_normal, broadcast_all


class LKJCholesky(Distribution):
    """Cholesky factors of correlation matrices; Lewandowski, Kurowicka and Joe's onion method
    (J. Multivariate Analysis 100, 2009). A concentration of 1 is uniform over the matrices."""

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky

    def __init__(
        self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None
    ) -> None:
        if dim < 2:
            raise ValueError(
                f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}."
            )
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        self._beta = self._graphc_radii()
        shape = tuple(self.concentration.shape)
        super().__init__(shape, (dim, dim), validate_args=validate_args)

    def _graphc_radii(self) -> Beta:
        """The squared length below the diagonal of each row."""
        marginal = self.concentration + 0.5 * (self.dim - 2)
        dtype = self.concentration.dtype
        offset = T.cat([T.zeros(1, dtype=dtype), T.arange(self.dim - 1, dtype=dtype)])
        return Beta(offset + 0.5, marginal.unsqueeze(-1) - 0.5 * offset)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(LKJCholesky, _instance)
        shape = tuple(batch_shape)
        new.dim, new.concentration = self.dim, self.concentration.expand(shape)
        new._beta = self._beta.expand((*shape, self.dim))
        Distribution.__init__(new, shape, tuple(self._event_shape), validate_args=False)
        new._validate_args = self._validate_args
        return new

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Each row: a direction on a sphere, times a root of a beta number."""
        with no_grad():
            radius = self._beta.sample(sample_shape).unsqueeze(-1)
            normal = _standard_normal(
                self._extended_shape(sample_shape), self.concentration.dtype,
                self.concentration.device,
            ).tril(-1)
            length = normal.norm(dim=-1, keepdim=True)
            first = (T.arange(self.dim) == 0).unsqueeze(-1)  # has nothing below the diagonal
            direction = T.where(first, 0.0, normal / T.where(first, 1.0, length))
            below = radius.sqrt() * direction
            least = T.finfo(below.dtype).tiny
            diagonal = T.clamp(1 - (below**2).sum(-1), min=least).sqrt()
            return below + T.diag_embed(diagonal)

    def log_prob(self, value: Tensor) -> Tensor:
        self._graphc_checked(value)
        diagonal = value.diagonal(dim1=-1, dim2=-2)[..., 1:]
        dtype = self.concentration.dtype
        order = T.arange(2, self.dim + 1, dtype=dtype)
        powers = 2 * (self.concentration - 1).unsqueeze(-1) + self.dim - order
        unnormalised = (powers * diagonal.log()).sum(-1)
        rows = self.dim - 1
        alpha = self.concentration + 0.5 * rows
        constant = 0.5 * rows * math.log(math.pi)
        gammas = special.multigammaln(alpha - 0.5, rows) - T.lgamma(alpha) * rows
        return unnormalised - constant - gammas
