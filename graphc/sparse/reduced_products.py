"""torch.sparse.mm(reduce=...): of a row's entries times rows of a dense matrix not the sum."""

from __future__ import annotations

from ..frontend import functions as T
from ..frontend.errors import located
from ..frontend.tensor import Tensor

_KINDS = ("mean", "amax", "amin")


def reduced_product(mat1: Tensor, mat2: Tensor, reduce: str) -> Tensor:
    """[rows of mat1, columns of mat2]: the mean, largest or smallest of products of a row's
    entries; 0 where it has none. Raises RuntimeError for a mat1 that is not in CSR."""
    if reduce not in _KINDS:
        raise RuntimeError(located(
            f"sparse_mm_reduce: reduce type of {reduce} has not been enabled. Cure: one of "
            f"{', '.join(_KINDS)}"
        ))
    if str(mat1.layout) != "torch.sparse_csr":
        raise RuntimeError(located(
            f"torch.sparse.mm(reduce={reduce!r}) takes a matrix in CSR, got {mat1.layout}. Cure: "
            "to_sparse_csr()"
        ))
    counts = T.diff(mat1.crow_indices()).to(T.int64)
    rows = T.repeat_interleave(T.arange(len(counts), device=counts.device), counts)
    products = mat1.values().unsqueeze(1) * mat2[mat1.col_indices().to(T.int64)]
    zeros = products.new_zeros((len(counts), mat2.shape[1]))
    result: Tensor = zeros.scatter_reduce(
        0, rows.unsqueeze(1).expand_as(products), products, reduce, include_self=False
    )
    return result
