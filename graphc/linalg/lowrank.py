"""torch.svd_lowrank and torch.pca_lowrank: a few singular values of a large matrix, by random
projections (Halko, Martinsson and Tropp, arXiv:0909.4061, algorithms 4.4 and 5.1)."""

from __future__ import annotations

import graphc

from . import decompositions
from ._batches import Tensor, located


def _range_of(A: Tensor, q: int, niter: int) -> Tensor:
    """Q [*, m, q] with orthonormal columns that A's image nearly lies in."""
    probe = graphc.randn(A.shape[-1], q, dtype=A.dtype)
    basis = decompositions.qr(A @ probe)[0]
    for _ in range(niter):
        other = decompositions.qr(A.mH @ basis)[0]
        basis = decompositions.qr(A @ other)[0]
    return basis


def svd_lowrank(
    A: Tensor, q: int | None = 6, niter: int | None = 2, M: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """U, S, V of A - M for about the q largest singular values."""
    matrix = A if M is None else A - M.expand(A.shape)
    rows, columns = matrix.shape[-2:]
    wide = rows < columns
    if wide:
        matrix = matrix.mH
    basis = _range_of(matrix, 6 if q is None else q, 2 if niter is None else niter)
    u, s, v = decompositions.svd(basis.mH @ matrix, False)
    left, right = basis @ u, v.mH
    return (right, s, left) if wide else (left, s, right)


def pca_lowrank(
    A: Tensor, q: int | None = None, center: bool = True, niter: int = 2
) -> tuple[Tensor, Tensor, Tensor]:
    """Principal components: U, S, V of A with (`center`) the columns' means taken away."""
    rows, columns = A.shape[-2:]
    least = min(rows, columns)
    if q is None:
        q = min(6, least)
    elif not 0 <= q <= least:
        raise ValueError(located(
            f"q(={q}) must be non-negative integer and not greater than min(m, n)={least}"
        ))
    if niter < 0:
        raise ValueError(located(f"niter(={niter}) must be non-negative integer"))
    centred = A - A.mean(dim=-2, keepdim=True) if center else A
    return svd_lowrank(centred, q, niter=niter)
