"""torch.distributions.MultivariateNormal."""

from __future__ import annotations

import math
from typing import Any

from .. import linalg
from ..frontend import functions as T
from ..frontend.tensor import Tensor
from . import constraints
from .distribution import Distribution
from .utils import _standard_normal, lazy_property


def batch_mv(matrix: Tensor, vector: Tensor) -> Tensor:
    """Matrices times vectors."""
    return T.matmul(matrix, vector.unsqueeze(-1)).squeeze(-1)


def batch_mahalanobis(lower: Tensor, x: Tensor) -> Tensor:
    """x^T (L L^T)^-1 x."""
    shape = T.broadcast_shapes(tuple(lower.shape)[:-1], tuple(x.shape))
    wide = lower.expand((*tuple(shape), lower.shape[-1]))
    z = linalg.solve_triangular(wide, x.expand(shape).unsqueeze(-1), upper=False)
    return z.squeeze(-1).pow(2).sum(-1)


def precision_to_scale_tril(precision: Tensor) -> Tensor:
    """The Cholesky factor of the inverse of a matrix."""
    flipped = linalg.cholesky(T.flip(precision, (-2, -1)))
    inverse = T.transpose(T.flip(flipped, (-2, -1)), -2, -1)
    eye = T.eye(precision.shape[-1], dtype=precision.dtype).expand(precision.shape)
    return linalg.solve_triangular(inverse, eye, upper=False)


class MultivariateNormal(Distribution):
    """Mean loc; one of the covariance, its inverse, or its Cholesky factor."""

    arg_constraints = {
        "loc": constraints.real_vector, "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support = constraints.real_vector
    has_rsample = True
    _graphc_expanded = ("loc", "covariance_matrix", "precision_matrix", "scale_tril")
    _graphc_shared = ("_unbroadcasted_scale_tril",)

    def __init__(
        self, loc: Any, covariance_matrix: Any = None, precision_matrix: Any = None,
        scale_tril: Any = None, validate_args: bool | None = None,
    ) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        given = {
            "scale_tril": scale_tril, "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
        }
        named = [(name, m) for name, m in given.items() if m is not None]
        if len(named) != 1:
            raise ValueError(
                "Exactly one of covariance_matrix or precision_matrix or scale_tril may be "
                "specified."
            )
        ((name, matrix),) = named
        if matrix.dim() < 2:
            raise ValueError(
                f"{name} must be at least two-dimensional, with optional leading batch dimensions"
            )
        batch = tuple(T.broadcast_shapes(tuple(matrix.shape)[:-2], tuple(loc.shape)[:-1]))
        setattr(self, name, matrix.expand((*batch, *tuple(matrix.shape)[-2:])))
        self.loc = loc.expand((*batch, loc.shape[-1]))
        super().__init__(batch, tuple(self.loc.shape)[-1:], validate_args=validate_args)
        if name == "scale_tril":
            lower = matrix
        elif name == "covariance_matrix":
            lower = linalg.cholesky(matrix)
        else:
            lower = precision_to_scale_tril(matrix)
        self._unbroadcasted_scale_tril = lower

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The covariance's Cholesky factor."""
        n = tuple(self._event_shape)
        return self._unbroadcasted_scale_tril.expand((*self._batch_shape, *n, *n))

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance."""
        lower = self._unbroadcasted_scale_tril
        n = tuple(self._event_shape)
        return T.matmul(lower, lower.mT).expand((*self._batch_shape, *n, *n))

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The covariance's inverse."""
        n = tuple(self._event_shape)
        return linalg.inv(self.covariance_matrix).expand((*self._batch_shape, *n, *n))

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        variance = self._unbroadcasted_scale_tril.pow(2).sum(-1)
        return variance.expand((*self._batch_shape, *self._event_shape))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        eps = _standard_normal(self._extended_shape(sample_shape), self.loc.dtype, self.loc.device)
        return self.loc + batch_mv(self._unbroadcasted_scale_tril, eps)

    def _graphc_half_log_det(self) -> Tensor:
        return self._unbroadcasted_scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        self._graphc_checked(value)
        m = batch_mahalanobis(self._unbroadcasted_scale_tril, value - self.loc)
        size = int(self.event_shape[0])
        return -0.5 * (size * math.log(2 * math.pi) + m) - self._graphc_half_log_det()

    def entropy(self) -> Tensor:
        size = int(self.event_shape[0])
        entropy = 0.5 * size * (1.0 + math.log(2 * math.pi)) + self._graphc_half_log_det()
        return entropy.expand(self._batch_shape)
