"""What sparse tensors add to dense ones: the ways there, and errors for what is no entry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from ..frontend.errors import located
from ..frontend.layouts import sparse_bsc, sparse_bsr, sparse_csc, sparse_csr
from ..frontend.tensor import Tensor
from .conversions import sparse_mask, to_compressed, to_sparse


def to_sparse_csr(self: Tensor, dense_dim: Any = None) -> Tensor:
    """The matrix in compressed rows."""
    return to_compressed(self, sparse_csr)


def to_sparse_csc(self: Tensor, dense_dim: Any = None) -> Tensor:
    """The matrix in compressed columns."""
    return to_compressed(self, sparse_csc)


def to_sparse_bsr(self: Tensor, blocksize: Any, dense_dim: Any = None) -> Tensor:
    """The matrix in compressed rows of blocks."""
    return to_compressed(self, sparse_bsr, blocksize)


def to_sparse_bsc(self: Tensor, blocksize: Any, dense_dim: Any = None) -> Tensor:
    """The matrix in compressed columns of blocks."""
    return to_compressed(self, sparse_bsc, blocksize)


def _of_sparse_alone(name: str) -> Callable[..., NoReturn]:
    def missing(self: Tensor, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(located(
            f"{name} expected sparse tensor layout but got Strided. Cure: x.to_sparse()"
        ))

    missing.__name__ = name
    return missing


DENSE_METHODS: dict[str, Callable[..., Any]] = {
    "to_sparse": to_sparse, "to_sparse_coo": to_sparse, "to_sparse_csr": to_sparse_csr,
    "to_sparse_csc": to_sparse_csc, "to_sparse_bsr": to_sparse_bsr,
    "to_sparse_bsc": to_sparse_bsc, "sparse_mask": sparse_mask,
    **{name: _of_sparse_alone(name) for name in """
        coalesce is_coalesced indices values _indices _values _nnz crow_indices col_indices
        ccol_indices row_indices
    """.split()},
}
