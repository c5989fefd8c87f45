"""torch.distributions.Wishart."""

from __future__ import annotations

import math
import warnings
from typing import Any

from .. import linalg, special
from ..frontend import functions as T
from ..frontend import promote
from ..frontend.tensor import Tensor
from ..linalg.solves import cholesky_solve
from . import constraints
from .chi2 import Chi2
from .exp_family import ExponentialFamily
from .multivariate_normal import precision_to_scale_tril
from .utils import _standard_normal, lazy_property

_LOG_2 = math.log(2.0)


def _digammas(x: Tensor, size: int) -> Tensor:
    """The derivative of multigammaln."""
    steps = T.arange(size, dtype=x.dtype) / 2
    return T.digamma(x.unsqueeze(-1) - steps).sum(-1)


class Wishart(ExponentialFamily):
    """Positive definite matrices, of df degrees of freedom (more than their size less 1) and one
    of the covariance, its inverse, or its Cholesky factor."""

    support = constraints.positive_definite
    has_rsample = True
    arg_constraints = {
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky, "df": constraints.greater_than(0),
    }
    _graphc_expanded = ("df", "covariance_matrix", "precision_matrix", "scale_tril")
    _graphc_shared = ("_unbroadcasted_scale_tril",)

    def __init__(
        self, df: Any, covariance_matrix: Any = None, precision_matrix: Any = None,
        scale_tril: Any = None, validate_args: bool | None = None,
    ) -> None:
        given = {
            "scale_tril": scale_tril, "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
        }
        named = [(name, m) for name, m in given.items() if m is not None]
        if len(named) != 1:
            raise AssertionError(
                "Exactly one of covariance_matrix or precision_matrix or scale_tril may be "
                "specified."
            )
        ((name, matrix),) = named
        if matrix.dim() < 2:
            raise ValueError(
                f"{name} must be at least two-dimensional, with optional leading batch dimensions"
            )
        many = T.tensor(df, dtype=matrix.dtype) if promote.is_number(df) else df
        batch = tuple(T.broadcast_shapes(tuple(matrix.shape)[:-2], tuple(many.shape)))
        event = tuple(matrix.shape)[-2:]
        self.df = many.expand(batch)
        least = event[-1] - 1
        if bool((self.df <= least).any()):
            raise ValueError(
                f"Value of df={df} expected to be greater than ndim - 1 = {least}."
            )
        setattr(self, name, matrix.expand((*batch, *event)))
        super().__init__(batch, event, validate_args=validate_args)
        if bool((self.df < event[-1]).any()):
            warnings.warn(
                "Low df values detected. Singular samples are highly likely to occur for "
                "ndim - 1 < df < ndim.", stacklevel=2,
            )
        if name == "scale_tril":
            self._unbroadcasted_scale_tril = matrix
        elif name == "covariance_matrix":
            self._unbroadcasted_scale_tril = linalg.cholesky(matrix)
        else:
            self._unbroadcasted_scale_tril = precision_to_scale_tril(matrix)

    def _graphc_whole(self, matrix: Tensor) -> Tensor:
        return matrix.expand((*self._batch_shape, *self._event_shape))

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The covariance's Cholesky factor."""
        return self._graphc_whole(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance."""
        lower = self._unbroadcasted_scale_tril
        return self._graphc_whole(T.matmul(lower, lower.mT))

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The covariance's inverse."""
        lower = self._unbroadcasted_scale_tril
        eye = T.eye(lower.shape[-1], dtype=lower.dtype)
        return self._graphc_whole(cholesky_solve(eye.expand(lower.shape), lower))

    @property
    def mean(self) -> Tensor:
        return self.df.unsqueeze(-1).unsqueeze(-1) * self.covariance_matrix

    @property
    def mode(self) -> Tensor:
        factor = self.df - self.covariance_matrix.shape[-1] - 1
        factor = T.where(factor <= 0, math.nan, factor)
        return factor.unsqueeze(-1).unsqueeze(-1) * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        v = self.covariance_matrix
        diagonal = v.diagonal(dim1=-2, dim2=-1)
        outer = diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2)
        return self.df.unsqueeze(-1).unsqueeze(-1) * (v.pow(2) + outer)

    def rsample(self, sample_shape: Any = (), max_try_correction: int | None = None) -> Tensor:
        """Draws; singular ones are drawn again, up to max_try_correction (10) times.

        torch's test of the first draws is the wrong way round: it throws the good ones away. So
        that a seed gives its numbers, that is done here as well.
        """
        lead, event = tuple(sample_shape), (*self._batch_shape, *self._event_shape)
        apart = math.prod(self._batch_shape)  # no -1: there may be no draws
        drawn = self._graphc_bartlett(lead).reshape(math.prod(lead), *event)
        again = self.support.check(drawn).reshape(drawn.shape[0], apart).any(-1)
        wrong = ~again
        for _ in range(10 if max_try_correction is None else max_try_correction):
            if not bool(again.any()):
                if not bool(wrong.any()):
                    break
                again, wrong = wrong, T.zeros_like(wrong)
            places = again.nonzero().squeeze(-1)
            fresh = self._graphc_bartlett((places.shape[0],))
            drawn = drawn.index_copy(0, places, fresh)
            good = self.support.check(fresh).reshape(fresh.shape[0], apart).all(-1)
            again = again.index_copy(0, places, ~good)
        return drawn.reshape(*lead, *event)

    def _graphc_bartlett(self, sample_shape: Any) -> Tensor:
        """Bartlett's decomposition: a triangle of normals with chi numbers on its diagonal."""
        size = int(self.event_shape[-1])
        lead = (*tuple(sample_shape), *self._batch_shape)
        freedom = self.df.unsqueeze(-1) - T.arange(size, dtype=self.df.dtype)
        least = T.finfo(self.df.dtype).eps
        diagonal = Chi2(freedom).rsample(sample_shape).sqrt().clamp(min=least)
        rows, columns = T.tril_indices(size, size, -1)
        count = size * (size - 1) // 2
        normal = _standard_normal((*lead, count), self.df.dtype, self.df.device)
        place = (rows * size + columns).expand(normal.shape)
        below = T.zeros((*lead, size * size), dtype=normal.dtype).scatter(-1, place, normal)
        noise = below.reshape(*lead, size, size) + T.diag_embed(diagonal)
        lower = T.matmul(self._unbroadcasted_scale_tril, noise)
        return T.matmul(lower, lower.mT)

    def _graphc_half_log_det(self) -> Tensor:
        return self._unbroadcasted_scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        self._graphc_checked(value)
        nu, size = self.df, int(self.event_shape[-1])
        lower = self._unbroadcasted_scale_tril
        shape = tuple(T.broadcast_shapes(tuple(lower.shape), tuple(value.shape)))
        solved = cholesky_solve(value.expand(shape), lower.expand(shape))
        trace = solved.diagonal(dim1=-2, dim2=-1).sum(-1)
        return (
            -nu * (size * _LOG_2 / 2 + self._graphc_half_log_det())
            - special.multigammaln(nu / 2, size)
            + (nu - size - 1) / 2 * linalg.slogdet(value).logabsdet - trace / 2
        )

    def entropy(self) -> Tensor:
        nu, size = self.df, int(self.event_shape[-1])
        return (
            (size + 1) * (size * _LOG_2 / 2 + self._graphc_half_log_det())
            + special.multigammaln(nu / 2, size)
            - (nu - size - 1) / 2 * _digammas(nu / 2, size) + nu * size / 2
        )
