"""softmax, log_softmax and logsumexp along one dim, shifted by the maximum so as not to overflow.

16-bit floats are computed in float32 and rounded once.
"""

from __future__ import annotations

import math
from typing import Any

from .. import dtypes
from ..dim import DimEnv
from ..op import Attrs, Op, TypeRule, register
from ..rounding import DELICATE, SUMMED
from ..types import TensorType, Type
from ._rules import accumulation_dtype, cast, filled, keep_dims, ops, reshape, select, sum_dims
from ._types import FLOATS, Types, reduced_shape, require_dim, require_dtype


def shifted(x: Any, dim: int) -> tuple[Any, Any, Any]:
    """(x - max, exp(x - max), its sum), the maximum and the sum over `dim`, kept as size 1."""
    away = x - ops.amax(x, dims=(dim,), keepdim=True)
    e = ops.exp(away)
    return away, e, sum_dims(e, (dim,), keepdim=True)


def shares(e: Any, total: Any) -> Any:
    """e / total, of exponentials and their sum.

    Of float32 within 1.5 ulp: dividing each number takes longer than its exponential. The sum is
    at least 1, so its reciprocal is a normal number. float64 is asked for where digits count.
    """
    return e / total if e.type.dtype is dtypes.f64 else e * ops.reciprocal(total)


def _same_type(name: str) -> TypeRule:
    def infer(types: Types, attrs: Attrs, env: DimEnv) -> Type:
        require_dtype(name, types[0].dtype, FLOATS)
        require_dim(name, attrs["dim"], types[0].rank)
        return types[0]

    return infer


def _logsumexp_type(types: Types, attrs: Attrs, env: DimEnv) -> Type:
    (x,) = types
    require_dtype("logsumexp", x.dtype, FLOATS)
    require_dim("logsumexp", attrs["dim"], x.rank)
    return TensorType(x.dtype, reduced_shape(x.shape, (attrs["dim"],), attrs["keepdim"]))


def _softmax(x: Any, *, dim: int) -> Any:
    dtype = x.type.dtype
    if x.type.shape[dim] == 0:
        return x
    _, e, total = shifted(cast(x, accumulation_dtype(dtype)), dim)
    return cast(shares(e, total), dtype)


def _softmax_vjp(grads: Any, inputs: Any, outs: Any, needs: Any, *, dim: int) -> Any:
    dtype = outs[0].type.dtype
    wide = accumulation_dtype(dtype)
    y, g = cast(outs[0], wide), cast(grads[0], wide)
    gy = g * y
    return (cast(gy - y * sum_dims(gy, (dim,), keepdim=True), dtype),)


def _log_softmax(x: Any, *, dim: int) -> Any:
    dtype = x.type.dtype
    if x.type.shape[dim] == 0:
        return x
    away, _, total = shifted(cast(x, accumulation_dtype(dtype)), dim)
    return cast(away - ops.log(total), dtype)


def _log_softmax_vjp(grads: Any, inputs: Any, outs: Any, needs: Any, *, dim: int) -> Any:
    dtype = outs[0].type.dtype
    wide = accumulation_dtype(dtype)
    y, g = cast(outs[0], wide), cast(grads[0], wide)
    return (cast(g - ops.exp(y) * sum_dims(g, (dim,), keepdim=True), dtype),)


def _logsumexp(x: Any, *, dim: int, keepdim: bool) -> Any:
    dtype = x.type.dtype
    shape = reduced_shape(x.type.shape, (dim,), keepdim)
    if x.type.shape[dim] == 0:
        return filled(x, shape, -math.inf, dtype)
    x = cast(x, accumulation_dtype(dtype))
    peak = ops.amax(x, dims=(dim,), keepdim=True)
    peak = select(ops.isinf(peak), 0.0, peak)  # inf - inf would be NaN
    total = ops.log(sum_dims(ops.exp(x - peak), (dim,), keepdim=True)) + peak
    return cast(reshape(total, shape), dtype)


def _logsumexp_vjp(
    grads: Any, inputs: Any, outs: Any, needs: Any, *, dim: int, keepdim: bool
) -> Any:
    (x,) = inputs
    shape, dtype = x.type.shape, x.type.dtype
    wide = accumulation_dtype(dtype)
    g = keep_dims(cast(grads[0], wide), shape, (dim,), keepdim)
    y = keep_dims(cast(outs[0], wide), shape, (dim,), keepdim)
    return (cast(g * ops.exp(cast(x, wide) - y), dtype),)


register(
    Op(
        "softmax", "composite", _same_type("softmax"), _softmax_vjp, _softmax, arity=1,
        attrs=("dim",),
        cost=None, rounding=SUMMED, takes_complex=False,
        doc="exp(x) / sum(exp(x)) along `dim`.",
    )
)
register(
    Op(
        "log_softmax", "composite", _same_type("log_softmax"), _log_softmax_vjp, _log_softmax,
        arity=1, attrs=("dim",),
        cost=None, rounding=DELICATE, takes_complex=False,
        doc="log(softmax(x)) along `dim`.",
    )
)
register(
    Op(
        "logsumexp", "composite", _logsumexp_type, _logsumexp_vjp, _logsumexp, arity=1,
        attrs=("dim", "keepdim"),
        cost=None, rounding=DELICATE, takes_complex=False,
        doc="log(sum(exp(x))) over `dim`.",
    )
)
