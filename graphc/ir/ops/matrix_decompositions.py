"""Decompositions of matrices: QR, SVD, eigenvalues; and the pseudo-inverse and exponential.

Their rules conjugate by themselves (`adjoint`): most are not holomorphic. For real matrices a
conjugate transpose is a transpose.
"""

from __future__ import annotations

from typing import Any

from ..dim import DimEnv, minimum
from ..dtypes import complex_of
from ..op import Attrs, Op, register
from ..rounding import SUMMED
from ..types import TensorType, TupleType, Type
from ._matrices import (
    diagonal,
    diagonal_matrix,
    eye_mask,
    matmul,
    mH,
    real,
    require_matrix,
    require_square,
    spread,
    triangle,
)
from ._rules import cast, number, ops, unsqueeze, zeros
from ._types import Types


def _sum(a: Any, b: Any) -> Any:
    return b if a is None else a if b is None else a + b


def _cut(x: Any, dim: int, start: Any, stop: Any) -> Any:
    """x[start:stop] along `dim`, counted from the end."""
    shape = x.type.shape
    where = len(shape) + dim
    return ops.slice(
        x, starts=tuple(start if i == where else 0 for i in range(len(shape))),
        stops=tuple(stop if i == where else n for i, n in enumerate(shape)),
        steps=(1,) * len(shape),
    )


# --- QR --------------------------------------------------------------------------------------


def _qr_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    (x,) = types
    require_matrix("linalg.qr", x)
    lead, (m, n) = x.shape[:-2], x.shape[-2:]
    k = m if attrs["complete"] else minimum(m, n)
    return TupleType((TensorType(x.dtype, (*lead, m, k)), TensorType(x.dtype, (*lead, k, n))))


def _qr_vjp(grads: Any, inputs: Any, outs: Any, needs: Any, *, complete: bool) -> Any:
    """Walter and Lehmann (2012); a wide matrix is its square part and what that Q rotates."""
    (gq, gr), (q, r) = grads, outs
    rows, columns = inputs[0].type.shape[-2:]
    if minimum(rows, columns) == columns:
        return (_qr_square(q, r, gq, gr),)
    first = _cut(r, -1, 0, rows)
    if gr is None:
        ga = _qr_square(q, first, gq, None)
        return (ops.concat(ga, zeros(_cut(r, -1, rows, columns)), dim=len(q.type.shape) - 1),)
    rest, g_rest = _cut(r, -1, rows, columns), _cut(gr, -1, rows, columns)
    left = _qr_square(q, first, _wide_share(q, gq, rest, g_rest), _cut(gr, -1, 0, rows))
    return (ops.concat(left, matmul(q, g_rest), dim=len(q.type.shape) - 1),)


def _wide_share(q: Any, gq: Any, rest: Any, g_rest: Any) -> Any:
    """Q^H A2 = R2: its gradient reaches Q through A2 = Q R2."""
    return _sum(gq, matmul(matmul(q, rest), mH(g_rest)))


def _qr_square(q: Any, r: Any, gq: Any, gr: Any) -> Any:
    inner = None if gr is None else matmul(gr, mH(r))
    if gq is not None:
        inner = _sum(inner, -matmul(mH(q), gq))
    own = cast(real(diagonal(inner)), q.type.dtype)
    half = triangle(inner, True, strict=True) + diagonal_matrix(own) * 0.5
    whole = matmul(q, half + mH(half))
    if gq is not None:
        whole = gq + whole
    return mH(ops.solve_triangular(r, mH(whole), upper=True, unit=False))


# --- SVD -------------------------------------------------------------------------------------


def _svd_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    (x,) = types
    require_matrix("linalg.svd", x)
    lead, (m, n) = x.shape[:-2], x.shape[-2:]
    k = minimum(m, n)
    left, right = (m, n) if attrs["full"] else (k, k)
    return TupleType((
        TensorType(x.dtype, (*lead, m, left)), TensorType(x.dtype.real, (*lead, k)),
        TensorType(x.dtype, (*lead, right, n)),
    ))


def _svd_vjp(grads: Any, inputs: Any, outs: Any, needs: Any, *, full: bool) -> Any:
    """Townsend, Differentiating the singular value decomposition (2016)."""
    (gu, gs, gv), (u, s, v) = grads, outs
    dtype = u.type.dtype
    m, n = inputs[0].type.shape[-2:]
    k = minimum(m, n)
    if full:
        u, v = _cut(u, -1, 0, k), _cut(v, -2, 0, k)
        gu = None if gu is None else _cut(gu, -1, 0, k)
        gv = None if gv is None else _cut(gv, -2, 0, k)
    if gu is None and gv is None:
        return (matmul(u * spread(gs, dtype, False), v),)
    squares = s * s
    gaps = unsqueeze(squares, len(s.type.shape) - 1) - unsqueeze(squares, len(s.type.shape))
    gaps = cast(ops.where(eye_mask(gaps), number(gaps, 1), gaps), dtype)
    inner = None
    if gu is not None:
        turn = matmul(mH(u), gu)
        inner = (turn - mH(turn)) / gaps * spread(s, dtype, False)
        if dtype.is_complex:
            own = diagonal(turn)
            inner = inner + diagonal_matrix(
                (own - cast(real(own), dtype)) / cast(s, dtype)
            )
    if gv is not None:
        turn = matmul(v, mH(gv))
        inner = _sum(inner, spread(s, dtype, True) * ((turn - mH(turn)) / gaps))
    if gs is not None:
        inner = _sum(inner, diagonal_matrix(cast(gs, dtype)))
    found = matmul(matmul(u, inner), v)
    return (_svd_beyond(found, u, s, v, gu, gv, m, n),)


def _svd_beyond(
    found: Any, u: Any, s: Any, v: Any, gu: Any, gv: Any, m: Any, n: Any
) -> Any:
    """What is orthogonal to the k singular vectors of a matrix that is not square."""
    dtype = u.type.dtype
    k = s.type.shape[-1]
    if gu is not None and m != k:
        scaled = gu / spread(s, dtype, False)
        outside = scaled - matmul(u, matmul(mH(u), scaled))
        found = found + matmul(outside, v)
    if gv is not None and n != k:
        scaled = gv / spread(s, dtype, True)
        outside = scaled - matmul(matmul(scaled, mH(v)), v)
        found = found + matmul(u, outside)
    return found


# --- eigenvalues -----------------------------------------------------------------------------


def _eigh_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    (x,) = types
    n = require_square("linalg.eigh", x, env)
    return TupleType((TensorType(x.dtype.real, (*x.shape[:-2], n)), x))


def _eigh_vjp(grads: Any, inputs: Any, outs: Any, needs: Any, *, upper: bool) -> Any:
    (gl, gv), (values, vectors) = grads, outs
    dtype = vectors.type.dtype
    if gv is None:
        return (matmul(vectors * spread(gl, dtype, False), mH(vectors)),)
    rank = len(values.type.shape)
    gaps = unsqueeze(values, rank - 1) - unsqueeze(values, rank)
    mask = eye_mask(gaps)
    gaps = cast(ops.where(mask, number(gaps, 1), gaps), dtype)
    turn = matmul(mH(vectors), gv) / gaps
    inner = ops.where(mask, number(turn, 0), turn)
    if gl is not None:
        inner = inner + diagonal_matrix(cast(gl, dtype))
    return (matmul(matmul(vectors, inner), mH(vectors)),)


def _eig_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    (x,) = types
    n = require_square("linalg.eig", x, env)
    dtype = complex_of(x.dtype)
    return TupleType((TensorType(dtype, (*x.shape[:-2], n)), x.with_dtype(dtype)))


def _eig_vjp(grads: Any, inputs: Any, outs: Any, needs: Any) -> Any:
    """Boeddeker et al. (2019), with vectors of norm 1."""
    (gl, gv), (values, vectors) = grads, outs
    dtype = vectors.type.dtype
    inner = None
    if gv is not None:
        turn = matmul(mH(vectors), gv)
        own = matmul(mH(vectors), vectors) * spread(real(diagonal(turn)), dtype, False)
        rank = len(values.type.shape)
        gaps = ops.conj(unsqueeze(values, rank - 1) - unsqueeze(values, rank))
        mask = eye_mask(gaps)
        gaps = ops.where(mask, number(gaps, 1), gaps)
        inner = ops.where(mask, number(turn, 0), (turn - own) / gaps)
    if gl is not None:
        inner = _sum(inner, diagonal_matrix(gl))
    found = ops.linalg_solve(mH(vectors), matmul(inner, mH(vectors)))
    return (cast(found, inputs[0].type.dtype),)


# --- functions of matrices -------------------------------------------------------------------


def _pinv_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    (x,) = types
    require_matrix("linalg.pinv", x)
    return TensorType(x.dtype, (*x.shape[:-2], x.shape[-1], x.shape[-2]))


def _pinv_vjp(
    grads: Any, inputs: Any, outs: Any, needs: Any, *, atol: float, rtol: float, hermitian: bool
) -> Any:
    """dP = -P dA P + P P^H dA^H (1 - A P) + (1 - P A) dA^H P^H P, Golub and Pereyra (1973)."""
    (g,), (a,), (p,) = grads, inputs, outs
    ph, gh = mH(p), mH(g)
    beside = matmul(matmul(gh, p), ph)
    above = matmul(matmul(ph, p), gh)
    found = beside - matmul(a, matmul(p, beside)) + above - matmul(matmul(above, p), a)
    return (found - matmul(matmul(ph, g), ph),)


def _exp_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    (x,) = types
    require_square("linalg.matrix_exp", x, env)
    return x


def _exp_vjp(grads: Any, inputs: Any, outs: Any, needs: Any) -> Any:
    """exp([[A^H, G], [0, A^H]]) has the gradient at its upper right (Mathias, 1996)."""
    (g,), (a,) = grads, inputs
    ah = mH(a)
    n = a.type.shape[-1]
    rank = len(a.type.shape)
    top = ops.concat(ah, g, dim=rank - 1)
    bottom = ops.concat(zeros(ah), ah, dim=rank - 1)
    whole = ops.matrix_exp(ops.concat(top, bottom, dim=rank - 2))
    return (_cut(_cut(whole, -1, n, 2 * n), -2, 0, n),)


register(Op("linalg_qr", "routine", _qr_type, _qr_vjp, arity=1, results=2, attrs=("complete",),
            adjoint=True, doc="Orthogonal Q and upper triangular R.",
            cost=None, rounding=SUMMED, takes_complex=True))
def _geqrf_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    (x,) = types
    require_matrix("geqrf", x)
    return TupleType((x, TensorType(x.dtype, (*x.shape[:-2], minimum(*x.shape[-2:])))))


register(Op("linalg_geqrf", "routine", _geqrf_type, arity=1, results=2,
            nondifferentiable="torch has no gradient for it either; use linalg.qr",
            doc="R, the vectors of Householder reflections below it, and their factors.",
            cost=None, rounding=SUMMED, takes_complex=True))
register(Op("linalg_svd", "routine", _svd_type, _svd_vjp, arity=1, results=3, attrs=("full",),
            adjoint=True, doc="U, S and V^H; singular values in descending order.",
            cost=None, rounding=SUMMED, takes_complex=True))
register(Op("linalg_eigh", "routine", _eigh_type, _eigh_vjp, arity=1, results=2,
            attrs=("upper",), adjoint=True,
            doc="Ascending eigenvalues and the vectors of matrices that are their own adjoint.",
            cost=None, rounding=SUMMED, takes_complex=True))
register(Op("linalg_eig", "routine", _eig_type, _eig_vjp, arity=1, results=2, adjoint=True,
            doc="Complex eigenvalues and eigenvectors of norm 1.",
            cost=None, rounding=SUMMED, takes_complex=True))
register(Op("linalg_pinv", "routine", _pinv_type, _pinv_vjp, arity=1,
            attrs=("atol", "rtol", "hermitian"), adjoint=True,
            doc="The pseudo-inverse, of singular values above max(atol, rtol * largest).",
            cost=None, rounding=SUMMED, takes_complex=True))
register(Op("matrix_exp", "routine", _exp_type, _exp_vjp, arity=1, adjoint=True,
            doc="The exponential of square matrices.",
            cost=None, rounding=SUMMED, takes_complex=True))
