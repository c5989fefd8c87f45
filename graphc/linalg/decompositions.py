"""QR, SVD, eigenvalues, and what follows from them; pytorch.org/docs/stable/linalg.html."""

from __future__ import annotations

from typing import Any

import graphc

from ..frontend.ownership import owns_result
from ._batches import (
    Tensor,
    apply,
    check_floating,
    located,
    ops,
    promote,
    result,
    same_dtype,
    with_out,
)


def _reduced(name: str, x: Tensor) -> tuple[int, int]:
    check_floating(name, x)
    if x.ndim < 2:
        raise RuntimeError(located(f"{name}: The input tensor A must have at least 2 dimensions."))
    return x.shape[-2], x.shape[-1]


@with_out
def qr(A: Tensor, mode: str = "reduced") -> Any:
    """Q and R; mode "reduced", "complete", or "r" (an empty Q)."""
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(located(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), "
            "'r', or 'complete'"
        ))
    rows, columns = _reduced("linalg.qr", A)
    if A.requires_grad and (mode == "r" or (mode == "complete" and rows > columns)):
        raise RuntimeError(located(
            "The QR decomposition is not differentiable when mode='complete' and nrows > ncols"
            if mode == "complete" else
            "The derivative of linalg.qr depends on Q, which is not computed when mode='r'. "
            "Please use linalg.qr(A, mode='reduced') if you are going to require gradients."
        ))
    q, r = apply(ops.linalg_qr, A, complete=mode == "complete")
    return result("qr", "Q", "R")(A.new_empty(0) if mode == "r" else q, r)


@with_out
def svd(A: Tensor, full_matrices: bool = True, *, driver: str | None = None) -> Any:
    """U, S and V^H of A = U diag(S) V^H."""
    rows, columns = _reduced("linalg.svd", A)
    if driver is not None:
        raise RuntimeError(located(
            "torch.linalg.svd: keyword argument `driver=` is only supported on CUDA inputs with "
            "cuSOLVER backend."
        ))
    full = bool(full_matrices) and rows != columns
    return result("svd", "U", "S", "Vh")(*apply(ops.linalg_svd, A, full=full))


@with_out
def svdvals(A: Tensor, *, driver: str | None = None) -> Tensor:
    """The singular values, largest first."""
    found: Tensor = svd(A, False, driver=driver)[1]
    return found


def _triangle(uplo: str) -> bool:
    if not isinstance(uplo, str) or uplo.upper() not in ("L", "U"):
        raise RuntimeError(located(
            f"linalg.eigh: Expected UPLO argument to be 'L' or 'U', but got {uplo}"
        ))
    return uplo.upper() == "U"


@with_out
def eigh(A: Tensor, UPLO: str = "L") -> Any:
    """Ascending eigenvalues and eigenvectors of matrices that are their own adjoint."""
    check_floating("linalg.eigh", A)
    found = apply(ops.linalg_eigh, A, upper=_triangle(UPLO))
    return result("eigh", "eigenvalues", "eigenvectors")(*found)


@with_out
def eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:
    """Ascending eigenvalues of matrices that are their own adjoint."""
    found: Tensor = eigh(A, UPLO)[0]
    return found


@with_out
def eig(A: Tensor) -> Any:
    """Complex eigenvalues and eigenvectors of norm 1."""
    check_floating("linalg.eig", A)
    return result("eig", "eigenvalues", "eigenvectors")(*apply(ops.linalg_eig, A))


@with_out
def eigvals(A: Tensor) -> Tensor:
    """Complex eigenvalues."""
    found: Tensor = eig(A)[0]
    return found


def _tolerance(name: str, kind: str, value: Any) -> Any:
    """A number, or a tensor of one for each matrix."""
    if not isinstance(value, Tensor):
        return 0.0 if value is None else float(value)
    if value.dtype.is_complex:
        raise RuntimeError(located(
            f"{name}: {kind} tensor of complex type is not supported. Got "
            f"{promote._name(value.dtype)}"
        ))
    return value.detach()


def _tolerances(name: str, x: Tensor, atol: Any, rtol: Any) -> tuple[Any, Any]:
    """Defaults: rtol is eps times the larger size, where no atol above 0 is given."""
    least = _tolerance(name, "atol", atol)
    if rtol is not None:
        return least, _tolerance(name, "rtol", rtol)
    epsilon = graphc.finfo(x.dtype.real).eps * max(x.shape[-2:], default=0)
    if isinstance(least, Tensor):
        return least, graphc.where(least > 0, 0.0, epsilon)
    return least, 0.0 if least > 0 else epsilon


def _is_number(*values: Any) -> bool:
    return not any(isinstance(v, Tensor) and v.ndim for v in values)


@with_out
def pinv(
    A: Tensor, rcond: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None
) -> Tensor:
    """The pseudo-inverse, from the singular values above max(atol, rtol * largest)."""
    _reduced("linalg.pinv", A)
    least, relative = _tolerances("linalg.pinv", A, atol, rcond if rtol is None else rtol)
    if _is_number(least, relative):
        found: Tensor = apply(
            ops.linalg_pinv, A, atol=float(least), rtol=float(relative), hermitian=bool(hermitian)
        )
        return found
    return _pinv_by_matrix(A, least, relative, hermitian)


def _pinv_by_matrix(a: Tensor, least: Any, relative: Any, hermitian: bool) -> Tensor:
    """The pseudo-inverse where each matrix has tolerances of its own: that of the matrix without
    its small singular values, of which rounding is all that is left."""
    fixed = a.detach()
    if hermitian:
        values, u = eigh(fixed)
        sizes, right = values.abs(), u.mH * values.sgn().unsqueeze(-1).to(a.dtype)
    else:
        u, sizes, right = svd(fixed, False)
    kept = graphc.where(sizes > _bound(sizes, least, relative), sizes, 0.0).to(a.dtype)
    cut = (u * kept.unsqueeze(-2)) @ right
    noise = 4 * graphc.finfo(a.dtype.real).eps * max(a.shape[-2:], default=0)
    lead = cut.shape[:-2]
    found: Tensor = apply(
        ops.linalg_pinv, cut + (a - fixed).expand(*lead, *a.shape[-2:]), atol=0.0, rtol=noise,
        hermitian=bool(hermitian),
    )
    return found


def _bound(values: Tensor, least: Any, relative: Any) -> Tensor:
    """max(atol, rtol * largest), by matrix."""
    largest = values.detach().amax(-1)
    bound = graphc.maximum(
        graphc.as_tensor(least, dtype=values.dtype),
        largest * graphc.as_tensor(relative, dtype=values.dtype),
    )
    return bound.unsqueeze(-1)


@with_out
def matrix_rank(
    A: Tensor, tol: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None
) -> Tensor:
    """The number of singular values above max(atol, rtol * largest)."""
    rows, columns = _reduced("linalg.matrix_rank", A)
    name = "torch.linalg.matrix_rank"
    if tol is not None:
        least, relative = _tolerance(name, "tol", tol), 0.0
    else:
        least, relative = _tolerances(name, A, atol, rtol)
    if rows == 0 or columns == 0:
        return graphc.zeros(A.shape[:-2], dtype=graphc.int64)
    A = A.detach()
    values = eigvalsh(A).abs() if hermitian else svdvals(A)
    return (values > _bound(values, least, relative)).sum(-1)


@with_out
def lstsq(A: Tensor, B: Tensor, rcond: Any = None, *, driver: str | None = None) -> Any:
    """Solution, residuals, rank and singular values of the least-squares problem of A X = B."""
    rows, columns = _reduced("torch.linalg.lstsq", A)
    same_dtype("torch.linalg.lstsq", A, B)
    chosen = "gelsy" if driver is None else driver
    if chosen not in ("gels", "gelsy", "gelsd", "gelss"):
        raise RuntimeError(located(
            "torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)"
        ))
    vector = B.ndim == A.ndim - 1
    right = B.unsqueeze(-1) if vector else B
    if right.shape[-2] != rows:
        raise RuntimeError(located(
            "torch.linalg.lstsq: input.size(-2) should match other.size(-2)"
        ))
    solution = pinv(A, rcond) @ right
    rank: Tensor = A.new_empty(0, dtype=graphc.int64)
    if chosen != "gels":
        rank = matrix_rank(A, rtol=rcond)
    values = svdvals(A.detach()) if chosen in ("gelsd", "gelss") else A.new_empty(0)
    values = values.real
    residuals = A.new_empty(0).real
    if rows > columns and chosen != "gelsy" and (chosen == "gels" or bool(rank.eq(columns).all())):
        residuals = (A @ solution - right).abs().square().sum(-2)
        if vector:
            residuals = residuals.squeeze(-1)
    fields = ("solution", "residuals", "rank", "singular_values")
    return result("lstsq", *fields)(
        solution.squeeze(-1) if vector else solution, residuals, rank, values
    )


@with_out
@owns_result
def householder_product(A: Tensor, tau: Tensor) -> Tensor:
    """The first columns of the product of Householder reflections 1 - tau v v^H."""
    rows, columns = _reduced("linalg.householder_product", A)
    identity = graphc.eye(rows, columns, dtype=A.dtype).expand(*A.shape)
    found = identity
    vectors = A.tril(-1) + graphc.eye(rows, columns, dtype=A.dtype)
    for i in reversed(range(tau.shape[-1])):
        vector = vectors[..., :, i : i + 1]
        scale = tau[..., i].unsqueeze(-1).unsqueeze(-1)
        found = found - scale * (vector @ (vector.mH @ found))
    return found
