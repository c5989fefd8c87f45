"""Solving with matrices; pytorch.org/docs/stable/linalg.html."""

from __future__ import annotations

from typing import Any

import graphc

from ..frontend.ownership import owns_result
from ._batches import (
    Tensor,
    apply,
    as_batch,
    check_floating,
    located,
    ops,
    result,
    same_dtype,
    transpose,
    with_out,
)


def _is_vector(a: Tensor, b: Tensor) -> bool:
    return b.ndim == 1 or (b.ndim == a.ndim - 1 and tuple(b.shape) == tuple(a.shape[:-1]))


@with_out
@owns_result
def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """X of A X = B, or of X A = B. Raises LinAlgError where A is singular."""
    check_floating("linalg.solve", A)
    same_dtype("linalg.solve", A, B)
    vector = left and _is_vector(A, B)
    if vector:
        B = B.unsqueeze(-1)
    if not left:
        A, B = transpose(A), transpose(B)
    _same_rows("linalg.solve", A, B)
    found: Tensor = apply(ops.linalg_solve, *as_batch(A, B))
    if vector:
        return found.squeeze(-1)
    return found if left else transpose(found)


def _same_rows(name: str, a: Tensor, b: Tensor) -> None:
    if a.ndim < 2 or b.ndim < 2:
        raise RuntimeError(located(
            f"{name}: The input tensor {'A' if a.ndim < 2 else 'B'} must have at least 2 "
            "dimensions."
        ))
    if a.shape[-1] != b.shape[-2]:
        sizes = ["x".join(str(n) for n in x.shape[-2:]) for x in (a, b)]
        raise RuntimeError(located(
            f"{name}: Incompatible shapes of A and B for the equation AX = B "
            f"({sizes[0]} and {sizes[1]})"
        ))


@with_out
@owns_result
def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> Any:
    """The solution, and an info tensor that is not 0 where A is singular."""
    info = inv_ex(A, check_errors=check_errors)[1]
    singular = (info != 0)[..., None, None]
    found = solve(graphc.where(singular, graphc.eye(A.shape[-1], dtype=A.dtype), A), B, left=left)
    if left and _is_vector(A, B):
        singular = singular[..., 0]
    return result("solve_ex", "result", "info")(found.masked_fill(singular, float("nan")), info)


@with_out
def inv(A: Tensor) -> Tensor:
    """The inverse. Raises LinAlgError where there is none."""
    check_floating("linalg.inv", A)
    found: Tensor = apply(ops.linalg_inv, A, check=True)[0]
    return found


@with_out
def inv_ex(A: Tensor, *, check_errors: bool = False) -> Any:
    """The inverse, and an info tensor that is not 0 where there is none."""
    check_floating("linalg.inv", A)
    return result("inv_ex", "inverse", "info")(*apply(ops.linalg_inv, A, check=check_errors))


@with_out
def det(A: Tensor) -> Tensor:
    """The determinant."""
    check_floating("linalg.det", A)
    found: Tensor = apply(ops.linalg_det, A)
    return found


@with_out
def slogdet(A: Tensor) -> Any:
    """Sign of the determinant, and logarithm of its absolute value."""
    check_floating("linalg.slogdet", A)
    return result("slogdet", "sign", "logabsdet")(*apply(ops.linalg_slogdet, A))


def logdet(input: Tensor) -> Tensor:
    """The logarithm of the determinant; NaN where that is negative."""
    check_floating("linalg.slogdet", input)
    sign, log = apply(ops.linalg_slogdet, input)
    if sign.dtype.is_complex:
        return sign.log() + log
    return graphc.where(sign < 0, float("nan"), log)


@with_out
@owns_result
def cholesky(A: Tensor, *, upper: bool = False) -> Tensor:
    """Lower L of A = L L^H (or upper, of U^H U). Raises LinAlgError where A is not positive."""
    check_floating("linalg.cholesky", A)
    found: Tensor = apply(ops.linalg_cholesky, _lower(A, upper), check=True)[0]
    return found.mH if upper else found


def _lower(a: Tensor, upper: bool) -> Tensor:
    """What a factorisation that reads the lower triangle reads."""
    return a.mH if upper else a


@with_out
@owns_result
def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False) -> Any:
    """The factor, and the order of the first leading minor that is not positive, or 0."""
    check_floating("linalg.cholesky", A)
    found, info = apply(ops.linalg_cholesky, _lower(A, upper), check=check_errors)
    return result("cholesky_ex", "L", "info")(found.mH if upper else found, info)


@with_out
@owns_result
def solve_triangular(
    A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """X of A X = B, or of X A = B, for a triangular A."""
    check_floating("linalg.solve_triangular", A)
    same_dtype("linalg.solve_triangular", A, B)
    if not left:
        A, B, upper = transpose(A), transpose(B), not upper
    _same_rows("linalg.solve_triangular", A, B)
    a, b = as_batch(A, B)
    found: Tensor = apply(
        ops.solve_triangular, a, b, upper=bool(upper), unit=bool(unitriangular)
    )
    return found if left else transpose(found)


@with_out
def cholesky_solve(B: Tensor, L: Tensor, upper: bool = False) -> Tensor:
    """X of A X = B, given A's Cholesky factor."""
    lower = L.mH if upper else L
    inner = solve_triangular(lower, B, upper=False)
    return solve_triangular(lower.mH, inner, upper=True)


@with_out
def cholesky_inverse(L: Tensor, upper: bool = False) -> Tensor:
    """The inverse of A, given its Cholesky factor."""
    size = L.shape[-1]
    identity = graphc.eye(size, dtype=L.dtype).expand(*L.shape[:-2], size, size)
    return cholesky_solve(identity, L, upper)


@with_out
def lu_factor(A: Tensor, *, pivot: bool = True) -> Any:
    """L and U in one matrix, and 1-based pivots. Raises RuntimeError where U's diagonal has a 0."""
    check_floating("linalg.lu_factor", A)
    found = apply(ops.linalg_lu, A, pivot=bool(pivot), check="lu_factor")
    return result("lu_factor", "LU", "pivots")(*found[:2])


@with_out
def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> Any:
    """L and U in one matrix, pivots, and the number of the first zero on U's diagonal, or 0."""
    check_floating("linalg.lu_factor", A)
    check = "lu_factor_ex" if check_errors else ""
    found = apply(ops.linalg_lu, A, pivot=bool(pivot), check=check)
    return result("lu_factor_ex", "LU", "pivots", "info")(*found)


def _permutation(pivots: Tensor, size: int, dtype: Any) -> Tensor:
    """P of A = P L U: column i has its one in row order[i]."""
    order = apply(ops.lu_permutation, pivots, size=size)
    rows = graphc.arange(size).unsqueeze(-1)
    return (rows == order.unsqueeze(-2)).to(dtype)


def _factors(packed: Tensor) -> tuple[Tensor, Tensor]:
    rows, columns = packed.shape[-2:]
    k = min(rows, columns)
    identity = graphc.eye(rows, k, dtype=packed.dtype)
    return packed[..., :, :k].tril(-1) + identity, packed[..., :k, :].triu()


@with_out
def lu(A: Tensor, *, pivot: bool = True) -> Any:
    """P, L and U of A = P L U; P is empty without pivoting."""
    packed, pivots, _ = lu_factor_ex(A, pivot=pivot)
    low, up = _factors(packed)
    order = _permutation(pivots, A.shape[-2], A.dtype) if pivot else A.new_empty(0)
    return result("lu", "P", "L", "U")(order, low, up)


@with_out
def lu_unpack(
    LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> Any:
    """P, L and U of what lu_factor gives; an empty tensor for what is not asked for."""
    empty = LU_data.new_empty(0)
    order = _permutation(LU_pivots, LU_data.shape[-2], LU_data.dtype) if unpack_pivots else empty
    low, up = _factors(LU_data) if unpack_data else (empty, empty)
    return result("lu_unpack", "P", "L", "U")(order, low, up)


@with_out
def lu_solve(
    LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False
) -> Tensor:
    """X of A X = B, given what lu_factor gives of A."""
    if not left:
        return lu_solve(LU, pivots, B.mH, adjoint=not adjoint).mH
    order = _permutation(pivots, LU.shape[-2], LU.dtype)
    if adjoint:
        inner = solve_triangular(LU.mH, B, upper=False)
        inner = solve_triangular(LU.mH, inner, upper=True, unitriangular=True)
        return order @ inner
    inner = solve_triangular(LU, transpose(order) @ B, upper=False, unitriangular=True)
    return solve_triangular(LU, inner, upper=True)


@with_out
def tensorinv(A: Tensor, ind: int = 2) -> Tensor:
    """The inverse with regard to the product that sums over the trailing dims."""
    if ind <= 0:
        raise RuntimeError(located(f"Expected a strictly positive integer for 'ind' but got {ind}"))
    shape = tuple(A.shape)
    rows = 1
    for n in shape[:ind]:
        rows *= n
    return inv(A.reshape(rows, -1)).reshape(*shape[ind:], *shape[:ind])


@with_out
def tensorsolve(A: Tensor, B: Tensor, dims: Any = None) -> Tensor:
    """X of tensordot(A, X, X.ndim) = B."""
    if dims is not None:
        A = A.movedim(tuple(dims), tuple(range(A.ndim - len(dims), A.ndim)))
    shape = tuple(A.shape[B.ndim :])
    found = solve(A.reshape(B.numel(), -1), B.reshape(-1))
    return found.reshape(shape)


@with_out
def matrix_exp(A: Tensor) -> Tensor:
    """The exponential of square matrices."""
    check_floating("linalg.matrix_exp", A)
    if A.dtype.bits == 16:
        return matrix_exp(A.float()).to(A.dtype)
    found: Tensor = apply(ops.matrix_exp, A)
    return found
