"""torch's older names outside torch.linalg, and the Tensor methods of this field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import graphc

from . import decompositions, norms, solves
from ._batches import Tensor, apply, located, ops, result, with_out

logdet, lu_unpack = solves.logdet, solves.lu_unpack


def _of_input(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of torch.linalg, whose first argument these names call `input`."""
    def former(input: Tensor, *args: Any, **kwargs: Any) -> Any:
        return function(input, *args, **kwargs)

    former.__name__ = former.__qualname__ = name
    former.__doc__ = function.__doc__
    return former


det, inverse = _of_input("det", solves.det), _of_input("inverse", solves.inv)
slogdet = _of_input("slogdet", solves.slogdet)
matrix_exp = _of_input("matrix_exp", solves.matrix_exp)
matrix_power = _of_input("matrix_power", norms.matrix_power)
cholesky_inverse = _of_input("cholesky_inverse", solves.cholesky_inverse)


def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """The pseudo-inverse, from the singular values above rcond * the largest, of rounding alone,
    too; linalg.pinv() leaves those out."""
    found: Tensor = decompositions.pinv(input, rcond)
    return found


@with_out
def cholesky_solve(input: Tensor, input2: Tensor, upper: bool = False) -> Tensor:
    """X of A X = input, given A's Cholesky factor."""
    return solves.cholesky_solve(input, input2, upper)


@with_out
def cholesky(input: Tensor, upper: bool = False) -> Tensor:
    """torch.linalg.cholesky."""
    return solves.cholesky(input, upper=upper)


@with_out
def qr(input: Tensor, some: bool = True) -> Any:
    """Q and R; `some=False`: complete."""
    return result("qr", "Q", "R")(*decompositions.qr(input, "reduced" if some else "complete"))


@with_out
def svd(input: Tensor, some: bool = True, compute_uv: bool = True) -> Any:
    """U, S and V (not its adjoint) of U diag(S) V^H."""
    u, s, v = decompositions.svd(input, not some)
    if not compute_uv:
        u, v = u.detach() * 0, v.detach() * 0
    return result("svd", "U", "S", "Vh")(u, s, v.mH)


@with_out
def triangular_solve(
    input: Tensor, A: Tensor, upper: bool = True, transpose: bool = False,
    unitriangular: bool = False,
) -> Any:
    """X of A X = B (or A^T X = B) for a triangular A, and A."""
    matrix = A.transpose(-2, -1) if transpose else A
    found = solves.solve_triangular(
        matrix, input, upper=upper != transpose, unitriangular=unitriangular
    )
    return result("triangular_solve", "solution", "cloned_coefficient")(found, A.clone())


@with_out
def orgqr(input: Tensor, tau: Tensor) -> Tensor:
    """torch.linalg.householder_product."""
    return decompositions.householder_product(input, tau)


@with_out
def lu_solve(b: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
    """X of A X = b, given what lu_factor gives of A."""
    return solves.lu_solve(LU_data, LU_pivots, b)


@with_out
def lu(A: Tensor, pivot: bool = True, get_infos: bool = False) -> Any:
    """L and U in one matrix, pivots, and an info tensor if asked for."""
    if get_infos:
        return tuple(solves.lu_factor_ex(A, pivot=pivot))
    return tuple(solves.lu_factor(A, pivot=pivot))


@with_out
def geqrf(input: Tensor) -> Any:
    """R above the diagonal, the vectors of Householder reflections below, and their factors."""
    found = apply(ops.linalg_geqrf, input)
    return result("geqrf", "a", "tau")(*found)


@with_out
def ormqr(
    input: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False
) -> Tensor:
    """Q, Q^H, applied from the left or the right; Q in the form that geqrf gives."""
    for name, x in (("input", input), ("other", other)):
        if x.ndim < 2:
            raise RuntimeError(located(
                f"torch.ormqr: {name} must have at least 2 dimensions, got {x.ndim}"
            ))
    if tau.ndim != input.ndim - 1 or tau.shape[-1] > input.shape[-1]:
        raise RuntimeError(located(
            "torch.ormqr: Expected tau to have one dimension less than input equal to "
            f"input.ndim equal to {input.ndim} and tau.shape[-1] to be at most input.shape[-1], "
            f"got tau of shape {list(tau.shape)}"
        ))
    if other.shape[-2 if left else -1] != input.shape[-2]:
        raise RuntimeError(located(
            f"torch.ormqr: other.shape[{-2 if left else -1}] must be equal to input.shape[-2]: "
            f"{other.shape[-2 if left else -1]} and {input.shape[-2]}"
        ))
    rows = input.shape[-2]
    vectors = input.tril(-1) + graphc.eye(rows, input.shape[-1], dtype=input.dtype)
    whole = graphc.eye(rows, dtype=input.dtype)
    for i in range(tau.shape[-1]):
        vector = vectors[..., :, i : i + 1]
        whole = whole - tau[..., i, None, None] * ((whole @ vector) @ vector.mH)
    whole = whole.mH if transpose else whole
    return whole @ other if left else other @ whole


@with_out
def nuclear_norm(input: Tensor, dim: Any = (-2, -1), keepdim: bool = False) -> Tensor:
    """The sum of the singular values; nuclear_norm(x, keepdim) likewise."""
    if isinstance(dim, bool):
        dim, keepdim = (-2, -1), dim
    return norms.matrix_norm(input, "nuc", dim, keepdim)


@with_out
def frobenius_norm(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The root of the sum of squares."""
    return norms.vector_norm(input, 2, dim, keepdim)


def _removed(name: str, instead: str) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(located(
            f"This function was deprecated since version 1.9 and is now removed. Use {instead} "
            f"instead of torch.{name}."
        ))

    function.__name__ = name
    function.__doc__ = f"Removed from torch: {instead}."
    return function


symeig = _removed("symeig", "torch.linalg.eigh")
eig = _removed("eig", "torch.linalg.eig")
lstsq = _removed("lstsq", "torch.linalg.lstsq")
solve = _removed("solve", "torch.linalg.solve")
matrix_rank = _removed("matrix_rank", "torch.linalg.matrix_rank")
