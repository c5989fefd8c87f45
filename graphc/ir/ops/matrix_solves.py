"""Solving with matrices: inverse, determinant, linear systems, Cholesky and LU factors."""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..dim import DimEnv, minimum
from ..op import Attrs, Op, register
from ..rounding import EXACT, SUMMED
from ..types import TensorType, TupleType, Type
from ._matrices import (
    diagonal,
    diagonal_matrix,
    matmul,
    mH,
    mT,
    require_matrix,
    require_square,
    triangle,
)
from ._rules import cast, conj, ops, unsqueeze, zeros
from ._types import Types, fail, require_one_dtype

# --- types -----------------------------------------------------------------------------------


def _times(x: TensorType) -> str:
    return "x".join(str(n) for n in x.shape[-2:])


def _info(x: TensorType) -> TensorType:
    return TensorType(dtypes.i32, x.shape[:-2])


def _solve_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    a, b = types
    require_square("linalg.solve", a, env)
    require_one_dtype("linalg.solve", types)
    same = b.rank == a.rank and env.equal(a.shape[-1], b.shape[-2])
    if not same or a.shape[:-2] != b.shape[:-2]:
        fail(f"linalg.solve: Incompatible shapes of A and B for the equation AX = B "
             f"({_times(a)} and {_times(b)})")
    return b


def _inv_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    (x,) = types
    require_square("linalg.inv", x, env)
    return TupleType((x, _info(x)))


def _cofactor_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    require_square("linalg.det", types[0], env)
    return types[0]


def _det_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    (x,) = types
    require_square("linalg.det", x, env)
    return TensorType(x.dtype, x.shape[:-2])


def _slogdet_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    (x,) = types
    require_square("linalg.slogdet", x, env)
    return TupleType((TensorType(x.dtype, x.shape[:-2]), TensorType(x.dtype.real, x.shape[:-2])))


def _cholesky_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    (x,) = types
    require_square("linalg.cholesky", x, env)
    return TupleType((x, _info(x)))


def _lu_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    (x,) = types
    require_matrix("linalg.lu_factor", x)
    k = minimum(*x.shape[-2:])
    return TupleType((x, TensorType(dtypes.i32, (*x.shape[:-2], k)), _info(x)))


def _permutation_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    return TensorType(dtypes.i64, (*types[0].shape[:-1], attrs["size"]))


# --- gradients: of holomorphic functions, unless the record says adjoint -------------------------


def _solve_vjp(grads: Any, inputs: Any, outs: Any, needs: Any) -> Any:
    (g,), (a, _), (x,) = grads, inputs, outs
    gb = ops.linalg_solve(mT(a), g)
    return (-matmul(gb, mT(x)) if needs[0] else None, gb if needs[1] else None)


def _inv_vjp(grads: Any, inputs: Any, outs: Any, needs: Any, *, check: bool) -> Any:
    turned = mT(outs[0])
    return (-matmul(matmul(turned, grads[0]), turned),)


def _scaled(g: Any, matrix: Any) -> Any:
    """[...] times [..., n, n]."""
    return unsqueeze(unsqueeze(g, len(g.type.shape)), len(g.type.shape) + 1) * matrix


def _det_vjp(grads: Any, inputs: Any, outs: Any, needs: Any) -> Any:
    return (_scaled(grads[0], ops.linalg_cofactor(inputs[0])),)


def _cofactor_vjp(grads: Any, inputs: Any, outs: Any, needs: Any) -> Any:
    """C = det(A) A^-T, so dC = tr(A^-1 dA) C - C dA^T A^-T."""
    (g,), (a,), (c,) = grads, inputs, outs
    inverse = mT(ops.linalg_inv(a, check=True)[0])
    rank = len(g.type.shape)
    total = ops.sum(g * c, dims=(rank - 2, rank - 1), keepdim=True)
    return (total * inverse - matmul(matmul(inverse, mT(g)), c),)


def _slogdet_vjp(grads: Any, inputs: Any, outs: Any, needs: Any) -> Any:
    (g_sign, g_log), (a,), (sign, _) = grads, inputs, outs
    turned = mH(ops.linalg_inv(a, check=True)[0])
    dtype = a.type.dtype
    factor = None if g_log is None else cast(g_log, dtype)
    if g_sign is not None and dtype.is_complex:
        # d sign = i sign Im(tr(A^-1 dA))
        turning = g_sign * conj(sign)
        across = turning - cast(cast(turning, dtype.real), dtype)
        factor = across if factor is None else factor + across
    return (zeros(a) if factor is None else _scaled(factor, turned),)


def _cholesky_vjp(grads: Any, inputs: Any, outs: Any, needs: Any, *, check: bool) -> Any:
    """Murray, Differentiation of the Cholesky decomposition (2016)."""
    lower = outs[0]
    inner = triangle(matmul(mH(lower), grads[0]), False)
    inner = inner - diagonal_matrix(diagonal(inner)) * 0.5
    left = ops.solve_triangular(mH(lower), inner, upper=True, unit=False)
    whole = mH(ops.solve_triangular(mH(lower), mH(left), upper=True, unit=False))
    return ((whole + mH(whole)) * 0.5,)


def _triangular_vjp(
    grads: Any, inputs: Any, outs: Any, needs: Any, *, upper: bool, unit: bool
) -> Any:
    (g,), (a, _), (x,) = grads, inputs, outs
    gb = ops.solve_triangular(mT(a), g, upper=not upper, unit=unit)
    ga = triangle(-matmul(gb, mT(x)), upper, strict=unit) if needs[0] else None
    return (ga, gb if needs[1] else None)


def _part(x: Any, rows: tuple[Any, Any], columns: tuple[Any, Any]) -> Any:
    lead = x.type.shape[:-2]
    none = (0,) * len(lead)
    return ops.slice(
        x, starts=(*none, rows[0], columns[0]), stops=(*lead, rows[1], columns[1]),
        steps=(1,) * (len(lead) + 2),
    )


def _lu_vjp(
    grads: Any, inputs: Any, outs: Any, needs: Any, *, pivot: bool, check: str
) -> Any:
    """A = P L U, both factors in one matrix. A block beyond the square one is a solve."""
    g, (lu, pivots, _) = grads[0], outs
    rows, columns = lu.type.shape[-2:]
    k = minimum(rows, columns)
    square = (0, k)
    block = _part(lu, square, square)
    lower = triangle(block, False, strict=True)
    upper = triangle(block, True)
    g_block = _part(g, square, square)
    inner_l = matmul(_with_ones(lower, True), triangle(g_block, False, strict=True))
    inner_u = matmul(triangle(g_block, True), mH(upper))
    if columns != k:
        right, g_right = _part(lu, square, (k, columns)), _part(g, square, (k, columns))
        inner_l = inner_l - matmul(g_right, mH(right))
    if rows != k:
        below, g_below = _part(lu, (k, rows), square), _part(g, (k, rows), square)
        inner_u = inner_u - matmul(mH(below), g_below)
    inner = triangle(inner_l, False, strict=True) + triangle(inner_u, True)
    left = ops.solve_triangular(mH(lower), inner, upper=True, unit=True)
    found = mH(ops.solve_triangular(upper, mH(left), upper=True, unit=False))
    if columns != k:
        beyond = ops.solve_triangular(mH(lower), g_right, upper=True, unit=True)
        found = ops.concat(found, beyond, dim=len(lu.type.shape) - 1)
    if rows != k:
        beyond = mH(ops.solve_triangular(upper, mH(g_below), upper=True, unit=False))
        found = ops.concat(found, beyond, dim=len(lu.type.shape) - 2)
    return (_unpermuted(found, pivots, rows) if pivot else found,)


def _with_ones(lower: Any, adjoint: bool) -> Any:
    """L^H, with ones on its diagonal."""
    shape = lower.type.shape
    ones = ops.full.like(lower, shape=(*shape[:-1],), value=1.0, dtype=lower.type.dtype)
    return mH(lower) + diagonal_matrix(ones)


def _unpermuted(x: Any, pivots: Any, rows: Any) -> Any:
    """Row i goes to where P puts it."""
    order = ops.lu_permutation(pivots, size=rows)
    index = ops.expand(unsqueeze(order, len(order.type.shape)), shape=x.type.shape)
    return ops.scatter(zeros(x), index, x, dim=len(x.type.shape) - 2, reduce="")


def _lu_solve_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    a, b = types
    require_square("linalg.solve_triangular", a, env)
    require_one_dtype("linalg.solve_triangular", types)
    if a.rank != b.rank or not env.equal(a.shape[-1], b.shape[-2]):
        fail("linalg.solve_triangular: Incompatible shapes of A and B for the equation AX = B "
             f"({_times(a)} and {_times(b)})")
    return b


# --- records ---------------------------------------------------------------------------------

register(Op("linalg_solve", "routine", _solve_type, _solve_vjp, arity=2,
            doc="X of A X = B. Raises LinAlgError for a singular A.",
            cost=None, rounding=SUMMED, takes_complex=True))
register(Op("linalg_inv", "routine", _inv_type, _inv_vjp, arity=1, results=2,
            attrs=("check",), doc="The inverse, and an i32 that is not 0 where there is none.",
            cost=None, rounding=SUMMED, takes_complex=True))
register(Op("linalg_det", "routine", _det_type, _det_vjp, arity=1, doc="The determinant.",
            cost=None, rounding=SUMMED, takes_complex=True))
register(Op("linalg_cofactor", "routine", _cofactor_type, _cofactor_vjp, arity=1,
            doc="The cofactors: the determinant's gradient, of singular matrices too.",
            cost=None, rounding=SUMMED, takes_complex=True))
register(Op("linalg_slogdet", "routine", _slogdet_type, _slogdet_vjp, arity=1, results=2,
            adjoint=True, doc="Sign and logarithm of the absolute value of the determinant.",
            cost=None, rounding=SUMMED, takes_complex=True))
register(Op("linalg_cholesky", "routine", _cholesky_type, _cholesky_vjp, arity=1, results=2,
            attrs=("check",), adjoint=True,
            doc="Lower L of A = L L^H, and the i32 order of the first minor that is not positive.",
            cost=None, rounding=SUMMED, takes_complex=True))
register(Op("linalg_lu", "routine", _lu_type, _lu_vjp, arity=1, results=3,
            attrs=("pivot", "check"), adjoint=True,
            doc="L and U in one matrix, 1-based i32 pivots, and an i32 info. `check` names the "
                "function that raises RuntimeError for a zero on U's diagonal; empty: none does.",
            cost=None, rounding=SUMMED, takes_complex=True))
register(Op("lu_permutation", "routine", _permutation_type, arity=1, attrs=("size",),
            nondifferentiable="integer result",
            doc="The i64 permutation that rows are swapped into by 1-based pivots.",
            cost=None, rounding=EXACT, takes_complex=False))
register(Op("solve_triangular", "routine", _lu_solve_type, _triangular_vjp, arity=2,
            attrs=("upper", "unit"),
            doc="X of A X = B, reading one triangle of A; `unit`: its diagonal is taken as 1.",
            cost=None, rounding=SUMMED, takes_complex=True))
