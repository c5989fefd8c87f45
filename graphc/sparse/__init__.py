"""torch.sparse: functions of sparse tensors, and torch's functions that make them."""

from __future__ import annotations

from typing import Any

from .. import unsupported
from ..frontend.errors import located
from ..frontend.functions import addmm as _dense_addmm
from ..frontend.functions import mm as _mm
from ..frontend.tensor import Tensor
from ..ir import dtypes as _dtypes
from . import methods as _methods
from .arithmetic import softmax as _softmax
from .arithmetic import sparse_sum as _sum
from .conversions import is_sparse as _is_sparse
from .creation import LegacyType as _LegacyType
from .creation import rebuild_sparse_tensor as rebuild_sparse_tensor
from .creation import sparse_bsc_tensor as sparse_bsc_tensor
from .creation import sparse_bsr_tensor as sparse_bsr_tensor
from .creation import sparse_compressed_tensor as sparse_compressed_tensor
from .creation import sparse_coo_tensor as sparse_coo_tensor
from .creation import sparse_csc_tensor as sparse_csc_tensor
from .creation import sparse_csr_tensor as sparse_csr_tensor
from .dense_methods import DENSE_METHODS as DENSE_METHODS
from .diagonals import spdiags as spdiags
from .invariants import check_sparse_tensor_invariants as check_sparse_tensor_invariants
from .products import sampled_product as _sampled_product
from .reduced_products import reduced_product as _reduced
from .tensor import outside as _outside

_methods.attach()


def mm(mat1: Tensor, mat2: Tensor, reduce: str = "sum") -> Tensor:
    """The product of two matrices: sparse, if both are. pytorch.org/docs/stable/sparse.html"""
    if reduce != "sum":
        return _reduced(mat1, mat2, reduce)
    found: Tensor = _mm(mat1, mat2)
    return found


def addmm(
    mat: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1.0, alpha: Any = 1.0
) -> Tensor:
    """beta * mat + alpha * (mat1 @ mat2), with a sparse mat1."""
    found: Tensor = _dense_addmm(mat, mat1, mat2, beta=beta, alpha=alpha)
    return found


def sum(input: Tensor, dim: Any = None, dtype: Any = None) -> Tensor:
    """The sum of all elements (dense), or over dims: sparse where sparse dims are left."""
    return _outside(_sum)(input, dim, dtype)


def softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """The softmax of the entries along a dim; what is no entry counts as minus infinity."""
    return _normalised("softmax", input, dim, dtype)


def log_softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """The logarithm of softmax()."""
    return _normalised("log_softmax", input, dim, dtype)


def _normalised(name: str, x: Tensor, dim: int, dtype: Any) -> Tensor:
    if not _is_sparse(x):
        raise RuntimeError(located(
            f"torch.sparse.{name}: expected a sparse tensor, got a dense one. Cure: x.to_sparse()"
        ))
    given: Any = x if dtype is None else x.to(dtype)
    if not -x.ndim <= dim < x.ndim:
        raise IndexError(located(
            f"Dimension out of range (expected to be in range of [{-x.ndim}, {x.ndim - 1}], but "
            f"got {dim})"
        ))
    found: Tensor = _outside(_softmax)(given, dim, name == "log_softmax")
    return found


def sampled_addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1.0, alpha: Any = 1.0
) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2) at the places of a sparse CSR matrix."""
    mask: Any = input
    product = _outside(_sampled_product)(mask, mat1, mat2)
    return input * beta + product * alpha


globals().update(unsupported.table("torch.sparse", "use dense tensors", functions="""
    spsolve as_sparse_gradcheck to_sparse_semi_structured
""", kinds="SparseSemiStructuredTensor"))
for _name, _dtype in {
    "Float": _dtypes.f32, "Double": _dtypes.f64, "Half": _dtypes.f16, "BFloat16": _dtypes.bf16,
    "Long": _dtypes.i64, "Int": _dtypes.i32, "Short": _dtypes.i16, "Char": _dtypes.i8,
    "Byte": _dtypes.u8,
}.items():
    globals()[f"{_name}Tensor"] = _LegacyType(f"{_name}Tensor", _dtype)
