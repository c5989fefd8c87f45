"""torch.distributions.LowRankMultivariateNormal."""

from __future__ import annotations

import math
from typing import Any

from .. import linalg
from ..frontend import functions as T
from ..frontend.tensor import Tensor
from . import constraints
from .distribution import Distribution
from .multivariate_normal import batch_mahalanobis, batch_mv
from .utils import _standard_normal, lazy_property


class LowRankMultivariateNormal(Distribution):
    """Mean `loc`, covariance W W^T + D, with W = cov_factor [*, n, m] and D's diagonal cov_diag.

    Densities take the Woodbury identity and the determinant's lemma: work with m by m matrices.
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector
    has_rsample = True
    _graphc_expanded = ("loc", "cov_diag", "cov_factor")

    def __init__(
        self, loc: Any, cov_factor: Any, cov_diag: Any, validate_args: bool | None = None
    ) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        if cov_factor.dim() < 2:
            raise ValueError(
                "cov_factor must be at least two-dimensional, with optional leading batch "
                "dimensions"
            )
        event = tuple(loc.shape)[-1:]
        if tuple(cov_factor.shape)[-2:-1] != event:
            raise ValueError(f"cov_factor must be a batch of matrices with shape {event[0]} x m")
        if tuple(cov_diag.shape)[-1:] != event:
            raise ValueError(f"cov_diag must be a batch of vectors with shape {loc.shape[-1:]}")
        shapes = tuple(loc.shape)[:-1], tuple(cov_factor.shape)[:-2], tuple(cov_diag.shape)[:-1]
        try:
            batch = tuple(T.broadcast_shapes(*shapes))
        except RuntimeError as error:
            raise ValueError(
                f"Incompatible batch shapes: loc {loc.shape}, cov_factor {cov_factor.shape}, "
                f"cov_diag {cov_diag.shape}"
            ) from error
        self.loc = loc.expand((*batch, *event))
        self.cov_diag = cov_diag.expand((*batch, *event))
        self.cov_factor = cov_factor.expand((*batch, *tuple(cov_factor.shape)[-2:]))
        super().__init__(batch, event, validate_args=validate_args)

    def _graphc_weighted(self) -> Tensor:
        """W^T D^-1."""
        return self.cov_factor.mT / self.cov_diag.unsqueeze(-2)

    def _graphc_capacitance(self) -> Tensor:
        """The Cholesky factor of I + W^T D^-1 W."""
        inner = T.matmul(self._graphc_weighted(), self.cov_factor)
        return linalg.cholesky(inner + T.eye(inner.shape[-1], dtype=inner.dtype))

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @lazy_property
    def variance(self) -> Tensor:
        """The covariance's diagonal."""
        return self.cov_factor.pow(2).sum(-1) + self.cov_diag

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The covariance's Cholesky factor, scaled by D's root to be better conditioned."""
        root = self.cov_diag.sqrt().unsqueeze(-1)
        inner = self.cov_factor / root
        whole = T.matmul(inner, inner.mT) + T.eye(inner.shape[-2], dtype=inner.dtype)
        return root * linalg.cholesky(whole)

    @property
    def _unbroadcasted_scale_tril(self) -> Tensor:
        return self.scale_tril

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """W W^T + D."""
        return T.matmul(self.cov_factor, self.cov_factor.mT) + T.diag_embed(self.cov_diag)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The covariance's inverse."""
        root, weighted = self._graphc_capacitance(), self._graphc_weighted()
        a = linalg.solve_triangular(root, weighted, upper=False)
        return T.diag_embed(self.cov_diag.reciprocal()) - T.matmul(a.mT, a)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = tuple(self._extended_shape(sample_shape))
        dtype, device = self.loc.dtype, self.loc.device
        across = _standard_normal((*shape[:-1], self.cov_factor.shape[-1]), dtype, device)
        along = _standard_normal(shape, dtype, device)
        return self.loc + batch_mv(self.cov_factor, across) + self.cov_diag.sqrt() * along

    def _graphc_half_log_det(self) -> Tensor:
        inner = self._graphc_capacitance().diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return inner + 0.5 * self.cov_diag.log().sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        self._graphc_checked(value)
        apart = value - self.loc
        straight = (apart.pow(2) / self.cov_diag).sum(-1)
        root, weighted = self._graphc_capacitance(), self._graphc_weighted()
        along = batch_mahalanobis(root, batch_mv(weighted, apart))
        constant = int(self.event_shape[0]) * math.log(2 * math.pi)
        return -0.5 * (constant + straight - along) - self._graphc_half_log_det()

    def entropy(self) -> Tensor:
        size = int(self.event_shape[0])
        found = 0.5 * size * (1.0 + math.log(2 * math.pi)) + self._graphc_half_log_det()
        return found.expand(self._batch_shape)
