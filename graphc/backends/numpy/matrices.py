"""Linear algebra on batches of matrices, by NumPy's LAPACK; what it lacks is written plainly."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from graphc.ir.op import LinAlgError

from . import lapack
from .common import Array, Function, as_array

# --- solving ---------------------------------------------------------------------------------


def _batches(x: Array) -> Any:
    """The indices of the matrices of a batch."""
    return product(*(range(n) for n in x.shape[:-2]))


def _place(index: tuple[int, ...]) -> str:
    """Where in a batch, as torch's messages say it."""
    if not index:
        return ""
    return f"(Batch element {index[0] if len(index) == 1 else index}): "


def _zero_pivot(a: Array) -> int:
    """1-based number of the first pivot of LU that is exactly 0, or 0."""
    diagonal = np.diagonal(_lu_one(a)[0])
    zero = np.flatnonzero(diagonal == 0)
    return int(zero[0]) + 1 if zero.size else 0


def _solve(a: Array, b: Array) -> Array:
    if b.size == 0:
        return b.copy()
    try:
        return as_array(np.linalg.solve(a, b))
    except np.linalg.LinAlgError:
        raise _singular(a, "torch.linalg.solve: {}The solver failed because the input matrix is "
                           "singular.") from None


def _singular(a: Array, message: str) -> LinAlgError:
    for index in _batches(a):
        if _zero_pivot(a[index]):
            return LinAlgError(message.format(_place(index)))
    return LinAlgError(message.format(""))


def _inv(a: Array, *, check: bool) -> tuple[Array, Array]:
    info = np.zeros(a.shape[:-2], np.int32)
    if a.size == 0:
        return a.copy(), info
    try:
        return as_array(np.linalg.inv(a)), info
    except np.linalg.LinAlgError:
        pass
    result = np.empty(a.shape, a.dtype)
    for index in _batches(a):
        try:
            result[index] = np.linalg.inv(a[index])
        except np.linalg.LinAlgError:
            result[index] = np.inf
            info[index] = max(_zero_pivot(a[index]), 1)
            if check:
                raise LinAlgError(
                    f"linalg.inv: {_place(index)}The diagonal element {info[index]} is zero, the "
                    "inversion could not be completed because the input matrix is singular."
                ) from None
    return result, info


def _cofactor(a: Array) -> Array:
    """det(U V^H) U diag(products of the other singular values) V^H, conjugated."""
    if a.size == 0:
        return a.copy()
    u, s, v = np.linalg.svd(a)
    n = s.shape[-1]
    others = np.empty_like(s)
    for i in range(n):
        others[..., i] = np.prod(np.delete(s, i, -1), axis=-1)
    turned = np.linalg.det(u @ v)[..., None, None]
    return as_array((turned * np.conj((u * others[..., None, :]) @ v)).astype(a.dtype))


def _slogdet(a: Array) -> tuple[Array, Array]:
    sign, log = np.linalg.slogdet(a)
    return as_array(sign), as_array(log)


_LARGE = 32  # rows from which on a call of LAPACK is worth Python's own for each matrix


def _cholesky(a: Array, *, check: bool) -> tuple[Array, Array]:
    info = np.zeros(a.shape[:-2], np.int32)
    if a.size == 0:
        return a.copy(), info
    found = lapack.cholesky(a) if a.shape[-1] >= _LARGE else None
    if found is not None:
        return found, info
    try:
        return as_array(np.linalg.cholesky(a)), info
    except np.linalg.LinAlgError:
        pass
    result = np.empty(a.shape, a.dtype)
    for index in _batches(a):
        result[index], info[index] = _cholesky_partial(a[index])
        if check and info[index]:
            raise LinAlgError(
                f"linalg.cholesky: {_place(index)}The factorization could not be completed because "
                f"the input is not positive-definite (the leading minor of order {info[index]} is "
                "not positive-definite)."
            )
    return result, info


def _cholesky_partial(a: Array) -> tuple[Array, int]:
    """L as far as it goes, and the order of the first minor that is not positive (0: none)."""
    low = np.tril(a)
    for j in range(a.shape[0]):
        pivot = (low[j, j] - np.vdot(low[j, :j], low[j, :j])).real
        if not pivot > 0:
            return low, j + 1
        low[j, j] = math.sqrt(pivot)
        low[j + 1 :, j] -= low[j + 1 :, :j] @ np.conj(low[j, :j])
        low[j + 1 :, j] /= low[j, j]
    return low, 0


def _lu_one(a: Array, pivot: bool = True) -> tuple[Array, Array, int]:
    found = lapack.lu(a) if pivot else None
    if found is not None:
        return found
    lu = a.copy()
    m, n = lu.shape
    k = min(m, n)
    pivots = np.arange(1, k + 1, dtype=np.int32)
    info = 0
    for j in range(k):
        if pivot:
            column = lu[j:, j]
            best = j + int(np.argmax(np.abs(column.real) + np.abs(column.imag)))
            pivots[j] = best + 1
            if best != j:
                lu[[j, best]] = lu[[best, j]]
        if lu[j, j] == 0:
            info = info or j + 1
            continue
        lu[j + 1 :, j] /= lu[j, j]
        lu[j + 1 :, j + 1 :] -= np.outer(lu[j + 1 :, j], lu[j, j + 1 :])
    return lu, pivots, info


def _lu(a: Array, *, pivot: bool, check: str) -> tuple[Array, Array, Array]:
    lead, k = a.shape[:-2], min(a.shape[-2:])
    lu, pivots = np.empty(a.shape, a.dtype), np.empty((*lead, k), np.int32)
    info = np.zeros(lead, np.int32)
    for index in _batches(a):
        lu[index], pivots[index], info[index] = _lu_one(a[index], pivot)
        if check and info[index]:
            raise RuntimeError(
                f"torch.linalg.{check}: {_place(index)}U[{info[index]},{info[index]}] is zero and "
                "using it on lu_solve would result in a division by zero. If you still want to "
                "perform the factorization, consider calling linalg.lu(A, pivot) or "
                "linalg.lu_factor_ex(A, pivot)"
            )
    return lu, pivots, info


def _lu_permutation(pivots: Array, *, size: int) -> Array:
    lead = pivots.shape[:-1]
    order = np.empty((*lead, size), np.int64)
    order[...] = np.arange(size)
    for index in product(*(range(n) for n in lead)):
        row = order[index]
        for i, other in enumerate((pivots[index] - 1).tolist()):
            row[i], row[other] = row[other], row[i]
    return order


def _solve_triangular(a: Array, b: Array, *, upper: bool, unit: bool) -> Array:
    n = a.shape[-1]
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    x = np.array(np.broadcast_to(b, (*lead, *b.shape[-2:])), order="C")
    each = np.ascontiguousarray(np.broadcast_to(a, (*lead, n, n)))
    if lapack.solve_triangular(each, x, upper, unit):
        return x
    for i in reversed(range(n)) if upper else range(n):
        known = slice(i + 1, n) if upper else slice(0, i)
        row = a[..., i : i + 1, known]
        if row.shape[-1]:
            x[..., i, :] -= np.matmul(row, x[..., known, :])[..., 0, :]
        if not unit:
            x[..., i, :] /= a[..., i, i][..., None]
    return x


# --- decompositions --------------------------------------------------------------------------


def _qr(a: Array, *, complete: bool) -> tuple[Array, Array]:
    m, n = a.shape[-2:]
    if a.size == 0:
        k = m if complete else min(m, n)
        q = np.zeros((*a.shape[:-2], m, k), a.dtype)
        q[..., np.arange(min(m, k)), np.arange(min(m, k))] = 1
        return q, np.zeros((*a.shape[:-2], k, n), a.dtype)
    q, r = np.linalg.qr(a, "complete" if complete else "reduced")
    return as_array(q), as_array(r)


def _geqrf(a: Array) -> tuple[Array, Array]:
    """LAPACK's geqrf: numpy.linalg.qr(mode="raw") gives it transposed."""
    lead, k = a.shape[:-2], min(a.shape[-2:])
    found, tau = np.empty(a.shape, a.dtype), np.empty((*lead, k), a.dtype)
    for index in _batches(a):
        raw, tau[index] = np.linalg.qr(a[index], "raw")
        found[index] = raw.T
    return found, tau


def _converges(name: str, a: Array, function: Callable[[], Any]) -> Any:
    if not np.isfinite(a).all():
        raise LinAlgError(
            f"{name}: The algorithm failed to converge because the input matrix contained "
            "non-finite values."
        )
    try:
        return function()
    except np.linalg.LinAlgError:
        raise LinAlgError(
            f"{name}: The algorithm failed to converge because the input matrix is ill-conditioned "
            "or has too many repeated singular values."
        ) from None


def _svd(a: Array, *, full: bool) -> tuple[Array, Array, Array]:
    if a.size == 0:
        return _svd_of_nothing(a, full)
    found = _converges("linalg.svd", a, lambda: np.linalg.svd(a, full_matrices=full))
    return as_array(found[0]), as_array(found[1]), as_array(found[2])


def _svd_of_nothing(a: Array, full: bool) -> tuple[Array, Array, Array]:
    lead, (m, n) = a.shape[:-2], a.shape[-2:]
    k = min(m, n)
    u = np.zeros((*lead, m, m if full else k), a.dtype)
    v = np.zeros((*lead, n if full else k, n), a.dtype)
    u[...] = np.eye(*u.shape[-2:])
    v[...] = np.eye(*v.shape[-2:])
    return u, np.zeros((*lead, k), a.real.dtype), v


def _eigh(a: Array, *, upper: bool) -> tuple[Array, Array]:
    if a.size == 0:
        return np.zeros(a.shape[:-1], a.real.dtype), a.copy()
    values, vectors = _converges(
        "linalg.eigh", a, lambda: np.linalg.eigh(a, "U" if upper else "L")
    )
    return as_array(values), as_array(vectors)


def _eig(a: Array) -> tuple[Array, Array]:
    kind = np.result_type(a.dtype, np.complex64)
    if a.size == 0:
        return np.zeros(a.shape[:-1], kind), np.zeros(a.shape, kind)
    if not np.isfinite(a).all():
        raise LinAlgError("torch.linalg.eig: input tensor should not contain infs or NaNs.")
    values, vectors = np.linalg.eig(a)
    return as_array(values.astype(kind)), as_array(vectors.astype(kind))


def _pinv(a: Array, *, atol: float, rtol: float, hermitian: bool) -> Array:
    if a.size == 0:
        return np.zeros((*a.shape[:-2], a.shape[-1], a.shape[-2]), a.dtype)
    if hermitian:
        values, u = np.linalg.eigh(a)
        s, v = np.abs(values), np.sign(values)[..., None] * np.conj(np.swapaxes(u, -1, -2))
    else:
        u, s, v = np.linalg.svd(a, full_matrices=False)
    least = np.maximum(atol, rtol * s.max(axis=-1, keepdims=True))
    inverse = np.where(s > least, 1 / np.where(s > least, s, 1), 0).astype(s.dtype)
    right = np.conj(np.swapaxes(v, -1, -2)) * inverse[..., None, :]
    return as_array(np.matmul(right, np.conj(np.swapaxes(u, -1, -2))))


def _matrix_exp(a: Array) -> Array:
    """Scaling and squaring with the diagonal Pade approximant of order 13 (Higham, 2005)."""
    if a.size == 0:
        return a.copy()
    work = np.complex128 if a.dtype.kind == "c" else np.float64
    x = a.astype(work)
    norm = np.abs(x).sum(axis=-2).max(axis=-1)
    finite = np.where(np.isfinite(norm), norm, 1.0)
    squarings = np.ceil(np.log2(np.maximum(finite / 5.37, 1.0))).astype(np.int64)
    x = x / np.exp2(squarings)[..., None, None]
    x = _pade(x)
    for step in range(int(squarings.max(initial=0))):
        more = (squarings > step)[..., None, None]
        x = np.where(more, x @ x, x)
    return as_array(x.astype(a.dtype))


def _pade(x: Array) -> Array:
    order = 13
    term = np.broadcast_to(np.eye(x.shape[-1], dtype=x.dtype), x.shape)
    up = down = term
    coefficient = 1.0
    for k in range(1, order + 1):
        coefficient *= (order - k + 1) / (k * (2 * order - k + 1))
        term = term @ x
        up = up + coefficient * term
        down = down + (-1) ** k * coefficient * term
    return as_array(np.linalg.solve(down, up))


TABLE: dict[str, Function] = {
    "linalg_solve": _solve, "linalg_inv": _inv, "linalg_cofactor": _cofactor,
    "linalg_det": lambda a: as_array(np.linalg.det(a)),
    "linalg_slogdet": _slogdet, "linalg_cholesky": _cholesky, "linalg_lu": _lu,
    "lu_permutation": _lu_permutation, "solve_triangular": _solve_triangular,
    "linalg_qr": _qr, "linalg_geqrf": _geqrf, "linalg_svd": _svd, "linalg_eigh": _eigh,
    "linalg_eig": _eig, "linalg_pinv": _pinv, "matrix_exp": _matrix_exp,
}
