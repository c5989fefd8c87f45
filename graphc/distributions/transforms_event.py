"""Transforms of whole vectors and matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .. import linalg
from ..frontend import functions as T
from ..frontend.tensor import Tensor
from ..nn.functional import pad, softplus
from . import constraints
from .transforms_base import Transform
from .transforms_scalar import _clipped_sigmoid
from .utils import tril_matrix_to_vec, vec_to_tril_matrix


class SoftmaxTransform(Transform):
    """Vectors to the simplex by softmax; not injective."""

    domain, codomain = constraints.real_vector, constraints.simplex

    def _call(self, x: Tensor) -> Tensor:
        probs = (x - x.max(-1, True)[0]).exp()
        return probs / probs.sum(-1, True)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()


class StickBreakingTransform(Transform):
    """Vectors of n numbers to the simplex of n + 1."""

    domain, codomain = constraints.real_vector, constraints.simplex
    bijective = True

    def _call(self, x: Tensor) -> Tensor:
        offset = x.shape[-1] + 1 - T.ones_like(x).cumsum(-1)
        z = _clipped_sigmoid(x - offset.log())
        left = (1 - z).cumprod(-1)
        return pad(z, [0, 1], value=1) * pad(left, [1, 0], value=1)

    def _inverse(self, y: Tensor) -> Tensor:
        head = y[..., :-1]
        offset = y.shape[-1] - T.ones_like(head).cumsum(-1)
        left = (1 - head.cumsum(-1)).clamp(min=T.finfo(y.dtype).tiny)
        return head.log() - left.log() + offset.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        offset = x.shape[-1] + 1 - T.ones_like(x).cumsum(-1)
        x = x - offset.log()
        return (-x - softplus(-x) + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        return (*tuple(shape)[:-1], shape[-1] + 1)

    def inverse_shape(self, shape: Any) -> Any:
        return (*tuple(shape)[:-1], shape[-1] - 1)


class LowerCholeskyTransform(Transform):
    """Matrices to lower triangular ones with a positive diagonal."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky

    def _call(self, x: Tensor) -> Tensor:
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(Transform):
    """Matrices to positive definite ones, through their Cholesky factors."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite

    def _call(self, x: Tensor) -> Tensor:
        lower = LowerCholeskyTransform()(x)
        return lower @ lower.mT

    def _inverse(self, y: Tensor) -> Tensor:
        return LowerCholeskyTransform().inv(linalg.cholesky(y))


class CorrCholeskyTransform(Transform):
    """Vectors of n (n - 1) / 2 numbers to Cholesky factors of correlation matrices."""

    domain, codomain = constraints.real_vector, constraints.corr_cholesky
    bijective = True

    def _call(self, x: Tensor) -> Tensor:
        limits = T.finfo(x.dtype)
        r = vec_to_tril_matrix(
            T.tanh(x).clamp(min=-1 + limits.eps, max=1 - limits.eps), diag=-1
        )
        left = (1 - r**2).sqrt().cumprod(-1)
        r = r + T.eye(r.shape[-1], dtype=r.dtype)
        return r * pad(left[..., :-1], [1, 0], value=1)

    def _inverse(self, y: Tensor) -> Tensor:
        left = 1 - (y * y).cumsum(-1)
        shifted = pad(left[..., :-1], [1, 0], value=1)
        t = tril_matrix_to_vec(y, diag=-1) / tril_matrix_to_vec(shifted, diag=-1).sqrt()
        return (t.log1p() - t.neg().log1p()) / 2

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        left = 1 - (y * y).cumsum(-1)
        stick = 0.5 * tril_matrix_to_vec(left, diag=-2).log().sum(-1)
        tanh = -2 * (x + softplus(-2 * x) - math.log(2.0)).sum(-1)
        return stick + tanh

    def forward_shape(self, shape: Any) -> Any:
        count = shape[-1]
        size = round((0.25 + 2 * count) ** 0.5 + 0.5)
        if size * (size - 1) // 2 != count:
            raise ValueError("Input is not a flattened lower-diagonal number")
        return (*tuple(shape)[:-1], size, size)

    def inverse_shape(self, shape: Any) -> Any:
        if shape[-2] != shape[-1]:
            raise ValueError("Input is not square")
        size = shape[-1]
        return (*tuple(shape)[:-2], size * (size - 1) // 2)


class CatTransform(Transform):
    """Transforms of pieces that lie side by side along a dimension."""

    def __init__(
        self, tseq: Sequence[Transform], dim: int = 0, lengths: Sequence[int] | None = None,
        cache_size: int = 0,
    ) -> None:
        super().__init__(cache_size=cache_size)
        self.transforms, self.dim = list(tseq), dim
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)

    @property
    def domain(self) -> Any:
        return constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths)

    @property
    def codomain(self) -> Any:
        return constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths)

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        return all(t.bijective for t in self.transforms)

    def _graphc_pieces(self, x: Tensor) -> Any:
        return x.split(self.lengths, self.dim)

    def _call(self, x: Tensor) -> Tensor:
        pairs = zip(self.transforms, self._graphc_pieces(x), strict=True)
        return T.cat([t(piece) for t, piece in pairs], self.dim)

    def _inverse(self, y: Tensor) -> Tensor:
        pairs = zip(self.transforms, self._graphc_pieces(y), strict=True)
        return T.cat([t.inv(piece) for t, piece in pairs], self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        parts = zip(self.transforms, self._graphc_pieces(x), self._graphc_pieces(y), strict=True)
        return T.cat([t.log_abs_det_jacobian(a, b) for t, a, b in parts], self.dim)


class StackTransform(Transform):
    """Transforms of the slices along a dimension."""

    def __init__(
        self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0
    ) -> None:
        super().__init__(cache_size=cache_size)
        self.transforms, self.dim = list(tseq), dim

    @property
    def domain(self) -> Any:
        return constraints.stack([t.domain for t in self.transforms], self.dim)

    @property
    def codomain(self) -> Any:
        return constraints.stack([t.codomain for t in self.transforms], self.dim)

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        return all(t.bijective for t in self.transforms)

    def _call(self, x: Tensor) -> Tensor:
        pairs = zip(self.transforms, x.unbind(self.dim), strict=True)
        return T.stack([t(piece) for t, piece in pairs], self.dim)

    def _inverse(self, y: Tensor) -> Tensor:
        pairs = zip(self.transforms, y.unbind(self.dim), strict=True)
        return T.stack([t.inv(piece) for t, piece in pairs], self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        parts = zip(self.transforms, x.unbind(self.dim), y.unbind(self.dim), strict=True)
        return T.stack([t.log_abs_det_jacobian(a, b) for t, a, b in parts], self.dim)
