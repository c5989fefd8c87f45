"""Factors L D L^T (or L D L^H) of symmetric matrices that need not be positive."""

from __future__ import annotations

from typing import Any

import graphc

from ._batches import (
    Tensor,
    apply,
    as_batch,
    check_floating,
    located,
    ops,
    promote,
    result,
    with_out,
)


@with_out
def ldl_factor_ex(A: Tensor, *, hermitian: bool = False, check_errors: bool = False) -> Any:
    """L and D in one matrix, LAPACK's pivots, and the order of the first zero of D, or 0."""
    check_floating("torch.linalg.ldl_factor_ex", A)
    found = apply(ops.linalg_ldl_factor, A, hermitian=bool(hermitian))
    if check_errors and bool((found[2] != 0).any()):
        first = int(found[2][found[2] != 0][0])
        raise graphc.linalg.LinAlgError(located(
            f"torch.linalg.ldl_factor: The diagonal element {first} of D is zero, the factor "
            "cannot be used to solve with"
        ))
    return result("ldl_factor_ex", "LD", "pivots", "info")(*found)


@with_out
def ldl_factor(A: Tensor, *, hermitian: bool = False) -> Any:
    """L and D in one matrix, and LAPACK's pivots, of a symmetric (or `hermitian`) matrix."""
    packed, pivots, _ = ldl_factor_ex(A, hermitian=hermitian)
    return result("ldl_factor", "LD", "pivots")(packed, pivots)


@with_out
def ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False) -> Tensor:
    """X of A X = B, given what ldl_factor gives of A."""
    check_floating("torch.linalg.ldl_solve", LD)
    if LD.ndim < 2 or B.ndim < 2:
        raise RuntimeError(located(
            "torch.linalg.ldl_solve: Expected B to have at least 2 dimensions, but it has "
            f"{min(LD.ndim, B.ndim)} dimensions instead"
        ))
    if tuple(pivots.shape) != tuple(LD.shape[:-1]):
        raise RuntimeError(located(
            "torch.linalg.ldl_solve: Expected LD.shape[:-1] and pivots.shape to be the same, but "
            f"got pivots with shape {list(pivots.shape)} instead"
        ))
    if pivots.dtype.is_floating_point or pivots.dtype.is_complex or pivots.dtype is graphc.bool:
        raise RuntimeError(located(
            "torch.linalg.ldl_solve: Expected pivots to be integers. Got "
            f"{promote._name(pivots.dtype)}"
        ))
    if LD.dtype is not B.dtype:
        raise RuntimeError(located(
            f"Expected b and A to have the same dtype, but found b of type "
            f"{promote._name(B.dtype)} and A of type {promote._name(LD.dtype)} instead."
        ))
    if LD.shape[-1] != B.shape[-2]:
        raise RuntimeError(located(
            f"Incompatible matrix sizes for torch.linalg.ldl_solve: each A matrix is "
            f"{LD.shape[-1]} by {LD.shape[-1]} but each b matrix is {B.shape[-2]} by {B.shape[-1]}"
        ))
    factors, right = as_batch(LD, B)
    turns = pivots.to(graphc.int32).expand(factors.shape[:-1])
    found: Tensor = apply(ops.linalg_ldl_solve, factors, turns, right, hermitian=bool(hermitian))
    return found
