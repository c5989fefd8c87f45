"""What CuPy computes of each operator: functions of it and arrays like those of the NumPy backend,
of which none is empty. A LinAlgError, or Unfit, hands the call to NumPy, which has torch's words
for what is wrong, and numbers for what is not."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from graphc.backends.cuda.routines.library import CuPy
from graphc.ir import dtypes
from graphc.ir.dtypes import DType

Array = Any  # cupy.ndarray
Function = Callable[..., Any]
DTYPES: tuple[DType, ...] = (dtypes.f32, dtypes.f64, dtypes.c64, dtypes.c128)


class Unfit(Exception):
    """These numbers, CuPy does not say what is wrong with."""


# --- Fourier ---------------------------------------------------------------------------------


def _scaled(x: Array, scale: float) -> Array:
    return x if scale == 1.0 else x * x.real.dtype.type(scale)


def _fft_complex(
    library: CuPy, x: Array, *, dims: Sequence[int], inverse: bool, scale: float
) -> Array:
    fft = library.cupy.fft
    if dims:
        x = fft.ifftn(x, axes=dims, norm="forward") if inverse else fft.fftn(x, axes=dims)
    return _scaled(x, scale)


def _fft_real(library: CuPy, x: Array, *, dims: Sequence[int], scale: float) -> Array:
    return _scaled(library.cupy.fft.rfftn(x, axes=dims), scale)


def _fft_inverse_real(
    library: CuPy, x: Array, *, dims: Sequence[int], size: int, scale: float
) -> Array:
    sizes = [x.shape[dim] for dim in dims[:-1]] + [size]
    return _scaled(library.cupy.fft.irfftn(x, sizes, axes=dims, norm="forward"), scale)


# --- matrices --------------------------------------------------------------------------------


def _lead(library: CuPy, a: Array, b: Array) -> tuple[Array, Array]:
    """Both as batches of the same shape."""
    if a.shape[:-2] == b.shape[:-2]:
        return a, b
    # the shape that both broadcast to, by NumPy's rule
    rank = max(a.ndim, b.ndim) - 2
    one, other = ((1,) * (rank + 2 - x.ndim) + x.shape[:-2] for x in (a, b))
    lead = tuple(m if n == 1 else n for m, n in zip(one, other, strict=True))
    to = library.cupy.broadcast_to
    return to(a, (*lead, *a.shape[-2:])), to(b, (*lead, *b.shape[-2:]))


def _solve(library: CuPy, a: Array, b: Array) -> Array:
    return library.cupy.linalg.solve(*_lead(library, a, b))


def _solve_triangular(library: CuPy, a: Array, b: Array, *, upper: bool, unit: bool) -> Array:
    a, b = _lead(library, a, b)
    return library.scipy_linalg.solve_triangular(a, b, lower=not upper, unit_diagonal=unit)


def _sound(library: CuPy, a: Array) -> Array:
    """An array of what the host has no words for."""
    return library.cupy.zeros(a.shape[:-2], "i4")


def _inv(library: CuPy, a: Array, *, check: bool) -> tuple[Array, Array]:
    return library.cupy.linalg.inv(a), _sound(library, a)


def _cholesky(library: CuPy, a: Array, *, check: bool) -> tuple[Array, Array]:
    return library.cupy.linalg.cholesky(a), _sound(library, a)


def _slogdet(library: CuPy, a: Array) -> tuple[Array, Array]:
    sign, log = library.cupy.linalg.slogdet(a)
    return sign, log


def _qr(library: CuPy, a: Array, *, complete: bool) -> tuple[Array, Array]:
    q, r = library.cupy.linalg.qr(a, "complete" if complete else "reduced")
    return q, r


def _finite(library: CuPy, a: Array) -> None:
    """What converges need not say so of numbers that are none."""
    if not bool(library.cupy.isfinite(a).all()):
        raise Unfit


def _svd(library: CuPy, a: Array, *, full: bool) -> tuple[Array, Array, Array]:
    _finite(library, a)
    u, s, v = library.cupy.linalg.svd(a, full_matrices=full)
    return u, s, v


def _eigh(library: CuPy, a: Array, *, upper: bool) -> tuple[Array, Array]:
    _finite(library, a)
    values, vectors = library.cupy.linalg.eigh(a, "U" if upper else "L")
    return values, vectors


def _cofactor(library: CuPy, a: Array) -> Array:
    """det(U V^H) U diag(products of the other singular values) V^H, conjugated."""
    xp = library.cupy
    u, s, v = _svd(library, a, full=True)
    n = s.shape[-1]
    others = xp.empty_like(s)
    for i in range(n):
        others[..., i] = xp.prod(xp.where(xp.arange(n) == i, 1, s), axis=-1)
    turned = xp.linalg.det(xp.matmul(u, v))[..., None, None]
    return turned * xp.conj(xp.matmul(u * others[..., None, :], v))


def _pinv(library: CuPy, a: Array, *, atol: float, rtol: float, hermitian: bool) -> Array:
    xp = library.cupy
    if hermitian:
        values, u = _eigh(library, a, upper=False)
        s, v = xp.abs(values), xp.sign(values)[..., None] * xp.conj(xp.swapaxes(u, -1, -2))
    else:
        u, s, v = _svd(library, a, full=False)
    least = xp.maximum(rtol * s.max(axis=-1, keepdims=True), atol)
    inverse = xp.where(s > least, 1 / xp.where(s > least, s, 1), 0).astype(s.dtype)
    right = xp.conj(xp.swapaxes(v, -1, -2)) * inverse[..., None, :]
    return xp.matmul(right, xp.conj(xp.swapaxes(u, -1, -2)))


def _matrix_exp(library: CuPy, a: Array) -> Array:
    """Scaling and squaring with the diagonal Pade approximant of order 13 (Higham, 2005), as the
    NumPy backend has it."""
    xp = library.cupy
    x = a.astype("c16" if a.dtype.kind == "c" else "f8")
    _finite(library, x)
    norm = float(xp.abs(x).sum(axis=-2).max())
    squarings = max(math.ceil(math.log2(norm / 5.37)), 0) if norm > 0 else 0
    x = x / 2.0**squarings
    order, coefficient = 13, 1.0
    term = xp.broadcast_to(xp.eye(x.shape[-1], dtype=x.dtype), x.shape)
    up = down = term
    for k in range(1, order + 1):
        coefficient *= (order - k + 1) / (k * (2 * order - k + 1))
        term = xp.matmul(term, x)
        up = up + coefficient * term
        down = down + (-1) ** k * coefficient * term
    x = xp.linalg.solve(down, up)
    for _ in range(squarings):
        x = xp.matmul(x, x)
    return x


TABLE: Mapping[str, Function] = {
    "fft_complex": _fft_complex, "fft_real": _fft_real, "fft_inverse_real": _fft_inverse_real,
    "linalg_solve": _solve, "solve_triangular": _solve_triangular, "linalg_inv": _inv,
    "linalg_det": lambda library, a: library.cupy.linalg.det(a), "linalg_slogdet": _slogdet,
    "linalg_cofactor": _cofactor, "linalg_cholesky": _cholesky, "linalg_qr": _qr,
    "linalg_svd": _svd, "linalg_eigh": _eigh, "linalg_pinv": _pinv, "matrix_exp": _matrix_exp,
}
