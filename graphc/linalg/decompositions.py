"""QR, SVD, eigenvalues, and what follows from them; pytorch.org/docs/stable/linalg.html."""

from __future__ import annotations

from typing import Any

import graphc

from ._batches import (
    Tensor,
    apply,
    check_floating,
    located,
    ops,
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
        ))  # fmt: skip
    rows, columns = _reduced("linalg.qr", A)
    if A.requires_grad and (mode == "r" or (mode == "complete" and rows > columns)):
        raise RuntimeError(located(
            "The QR decomposition is not differentiable when mode='complete' and nrows > ncols"
            if mode == "complete" else
            "The derivative of linalg.qr depends on Q, which is not computed when mode='r'. "
            "Please use linalg.qr(A, mode='reduced') if you are going to require gradients."
        ))  # fmt: skip
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
        ))  # fmt: skip
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
        ))  # fmt: skip
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


def _tolerance(value: Any, otherwise: float) -> float:
    if isinstance(value, Tensor):
        return float(value.item())
    return otherwise if value is None else float(value)


def _tolerances(x: Tensor, atol: Any, rtol: Any, rcond: Any = None) -> tuple[float, float]:
    """Defaults: rtol is eps times the larger size, unless an atol is given."""
    if rcond is not None:
        rtol = rcond
    given = _tolerance(atol, 0.0)
    epsilon = graphc.finfo(x.dtype.real).eps * max(x.shape[-2:], default=0)
    return given, _tolerance(rtol, 0.0 if given > 0 else epsilon)


@with_out
def pinv(
    A: Tensor, rcond: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None
) -> Tensor:
    """The pseudo-inverse, from the singular values above max(atol, rtol * largest)."""
    _reduced("linalg.pinv", A)
    least, relative = _tolerances(A, atol, rtol, rcond)
    found: Tensor = apply(
        ops.linalg_pinv, A, atol=least, rtol=relative, hermitian=bool(hermitian)
    )
    return found


@with_out
def matrix_rank(
    A: Tensor, tol: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None
) -> Tensor:
    """The number of singular values above max(atol, rtol * largest)."""
    rows, columns = _reduced("linalg.matrix_rank", A)
    if rows == 0 or columns == 0:
        return graphc.zeros(A.shape[:-2], dtype=graphc.int64)
    A = A.detach()
    values = eigvalsh(A).abs() if hermitian else svdvals(A)
    if tol is not None:
        return (values > tol).sum(-1)
    least, relative = _tolerances(A, atol, rtol)
    bound = (values.amax(-1, keepdim=True) * relative).clamp(min=least)
    return (values > bound).sum(-1)


@with_out
def lstsq(A: Tensor, B: Tensor, rcond: Any = None, *, driver: str | None = None) -> Any:
    """Solution, residuals, rank and singular values of the least-squares problem of A X = B."""
    rows, columns = _reduced("torch.linalg.lstsq", A)
    same_dtype("torch.linalg.lstsq", A, B)
    chosen = "gelsy" if driver is None else driver
    if chosen not in ("gels", "gelsy", "gelsd", "gelss"):
        raise RuntimeError(located(
            "torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)"
        ))  # fmt: skip
    vector = B.ndim == A.ndim - 1
    right = B.unsqueeze(-1) if vector else B
    if right.shape[-2] != rows:
        raise RuntimeError(located(
            "torch.linalg.lstsq: input.size(-2) should match other.size(-2)"
        ))  # fmt: skip
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
