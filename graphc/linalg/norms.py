"""Norms of vectors and matrices, and condition numbers; pytorch.org/docs/stable/linalg.html."""

from __future__ import annotations

import operator
from typing import Any

import graphc
from graphc.frontend.functions.norms import vector_norm as _vector_norm
from graphc.frontend.functions.zero_gradient import flat_in

from ..frontend.ownership import owns_result
from . import decompositions
from ._batches import Tensor, check_floating, located, with_out
from .solves import inv


@with_out
def vector_norm(
    x: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """The norm of vectors: over `dim`, or of all elements."""
    check_floating("linalg.vector_norm", x)
    x = x if dtype is None else x.to(dtype)
    if x.dtype.is_complex:
        x = x.abs()
    given = dim is None or isinstance(dim, (tuple, list))
    dims = dim if given else (int(dim),)
    if dims is not None and x.ndim:
        dims = tuple(d % x.ndim if -x.ndim <= d < x.ndim else _out_of_range(d, x) for d in dims)
    elif dims is not None and all(d in (0, -1) for d in dims):
        dims = ()
    if not dims:
        dims = tuple(range(x.ndim))
    if isinstance(ord, (str, bool)):
        raise TypeError(located(
            f"linalg_vector_norm(): argument 'ord' must be Number, not {type(ord).__name__}"
        ))
    sizes = [x.shape[d] for d in dims]
    if 0 in sizes and (ord < 0 or ord == float("inf")):
        raise RuntimeError(located(
            f"linalg.vector_norm cannot compute the {ord} norm on an empty tensor because the "
            "operation does not have an identity"
        ))
    return _vector_norm(x, float(ord), dims, bool(keepdim))


def _out_of_range(dim: int, x: Tensor) -> int:
    raise IndexError(located(
        f"Dimension out of range (expected to be in range of [{-x.ndim}, {x.ndim - 1}], but got "
        f"{dim})"
    ))


def _two_dims(x: Tensor, dim: Any) -> tuple[int, int]:
    if x.ndim < 2:
        raise RuntimeError(located(
            "linalg.matrix_norm: The input tensor A must have at least 2 dimensions."
        ))
    if not isinstance(dim, (tuple, list)) or len(dim) != 2:
        raise RuntimeError(located("linalg.matrix_norm: dim must be a 2-tuple"))
    for d in dim:
        if not -x.ndim <= d < x.ndim:
            _out_of_range(d, x)
    rows, columns = (d % x.ndim for d in dim)
    if rows == columns:
        raise RuntimeError(located("linalg.matrix_norm: dims must be different"))
    return rows, columns


@with_out
@owns_result
def matrix_norm(
    A: Tensor, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """The norm of matrices: "fro", "nuc", inf, -inf, 1, -1, 2 or -2."""
    check_floating("linalg.matrix_norm", A)
    x = A if dtype is None else A.to(dtype)
    rows, columns = _two_dims(x, dim)
    if ord == "fro":
        return vector_norm(x, 2, (rows, columns), keepdim)
    if ord in ("nuc", 2, -2):
        values = decompositions.svdvals(x.movedim((rows, columns), (-2, -1)))
        if ord == "nuc" or (ord == 2 and values.shape[-1] == 0):
            found = values.sum(-1)
        else:
            found = values.amax(-1) if ord == 2 else values.amin(-1)
        return _restored(found, x, rows, columns) if keepdim else found
    if ord not in (1, -1, float("inf"), -float("inf")) or isinstance(ord, str):
        raise RuntimeError(located(f"linalg.matrix_norm: Order {ord} not supported."))
    first, then = (rows, columns) if abs(ord) == 1 else (columns, rows)
    sums = x.abs().sum(first, keepdim=True)
    if ord > 0 and sums.shape[then] == 0:
        return sums.sum((rows, columns), keepdim)  # the largest of no sums is 0
    found = sums.amax(then, keepdim=True) if ord > 0 else sums.amin(then, keepdim=True)
    if keepdim:
        return found
    return found.squeeze((rows, columns))


def _restored(found: Tensor, x: Tensor, rows: int, columns: int) -> Tensor:
    shape = [1 if d in (rows, columns) else n for d, n in enumerate(x.shape)]
    return found.reshape(shape)


@with_out
def norm(
    A: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """A vector norm, or a matrix norm where `ord` and `dim` say so."""
    check_floating("linalg.norm", A)
    dims = dim if dim is None or isinstance(dim, (tuple, list)) else (int(dim),)
    if ord is None:
        return vector_norm(A, 2, dims, keepdim, dtype=dtype)
    if dims is not None:
        if len(dims) not in (1, 2):
            raise RuntimeError(located(
                "linalg.norm: If dim is specified, it must be of length 1 or 2. Got "
                f"{list(dims)}"
            ))
        if len(dims) == 1 and isinstance(ord, str):
            raise RuntimeError(located(
                f"linalg.norm: If ord is a str, dim must be of length 2. Got {list(dims)}"
            ))
    elif A.ndim not in (1, 2) or (A.ndim == 1 and isinstance(ord, str)):
        raise RuntimeError(located(
            "linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got "
            f"{A.ndim}D."
        ))
    if (A.ndim if dims is None else len(dims)) == 1:
        return vector_norm(A, ord, dims, keepdim, dtype=dtype)
    found: Tensor = matrix_norm(A, ord, (0, 1) if dims is None else dims, keepdim, dtype=dtype)
    return found


@with_out
def cond(A: Tensor, p: Any = None) -> Tensor:
    """The condition number with regard to a matrix norm."""
    check_floating("linalg.cond", A)
    if A.ndim < 2:
        raise RuntimeError(located(
            "linalg.cond: The input tensor A must have at least 2 dimensions."
        ))
    if p in (None, 2, -2):
        values = decompositions.svdvals(A)
        largest, least = values[..., 0], values[..., -1]
        return least / largest if p == -2 else largest / least
    if A.shape[-1] != A.shape[-2]:
        raise RuntimeError(located(
            f"linalg.cond: with norm {p} A must be batches of square matrices, but they are "
            f"{A.shape[-2]} by {A.shape[-1]} matrices"
        ))
    return matrix_norm(A, p) * matrix_norm(inv(A), p)


@with_out
def matrix_power(A: Tensor, n: int) -> Tensor:
    """A multiplied with itself; the inverse for a negative power."""
    n = operator.index(n)
    if n < 0:
        check_floating("linalg.matrix_power", A)
    if A.ndim < 2 or A.shape[-1] != A.shape[-2]:
        raise RuntimeError(located(
            "linalg.matrix_power: A must be batches of square matrices, but they are "
            f"{A.shape[-2]} by {A.shape[-1]} matrices" if A.ndim >= 2 else
            "linalg.matrix_power: The input tensor A must have at least 2 dimensions."
        ))
    if n < 0:
        A, n = inv(A), -n
    if n == 0:
        identity = graphc.eye(A.shape[-1], dtype=A.dtype).expand(A.shape).clone()
        return flat_in(A, identity)
    found: Tensor = A.clone() if n & 1 else A
    started = bool(n & 1)
    while n := n >> 1:
        A = A @ A
        if n & 1:
            found = found @ A if started else A
            started = True
    return found
