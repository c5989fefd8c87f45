"""Factors of symmetric and Hermitian matrices that need not be positive: A = L D L^H."""

from __future__ import annotations

from .. import dtypes
from ..dim import DimEnv
from ..op import Attrs, Op, register
from ..rounding import SUMMED
from ..types import TensorType, TupleType, Type
from ._matrices import require_square
from ._types import Types, fail, require_one_dtype

_REASON = "torch has no gradient for it either; use linalg.solve"


def _factor_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    (x,) = types
    require_square("torch.linalg.ldl_factor_ex", x, env)
    lead = x.shape[:-2]
    pivots = TensorType(dtypes.i32, (*lead, x.shape[-1]))
    return TupleType((x, pivots, TensorType(dtypes.i32, lead)))


def _solve_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    ld, pivots, b = types
    require_square("torch.linalg.ldl_solve", ld, env)
    require_one_dtype("torch.linalg.ldl_solve", (ld, b))
    if ld.rank != b.rank or not env.equal(ld.shape[-1], b.shape[-2]):
        fail(f"torch.linalg.ldl_solve: {b} does not fit {ld}")
    if pivots.rank != ld.rank - 1:
        fail(f"torch.linalg.ldl_solve: pivots {pivots} do not fit {ld}")
    return b


register(Op("linalg_ldl_factor", "routine", _factor_type, arity=1, results=3,
            attrs=("hermitian",), nondifferentiable=_REASON,
            doc="L and D in one matrix, LAPACK's i32 pivots, and the order of the first zero of "
                "D, or 0; by the pivots of Bunch and Kaufman (Math. Comp. 31, 1977).",
            cost=None, rounding=SUMMED, takes_complex=True))
register(Op("linalg_ldl_solve", "routine", _solve_type, arity=3, attrs=("hermitian",),
            nondifferentiable=_REASON, doc="X of A X = B, given what linalg_ldl_factor gives.",
            cost=None, rounding=SUMMED, takes_complex=True))
