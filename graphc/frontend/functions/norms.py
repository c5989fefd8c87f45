"""Vector norms over dims: norm, dist and linalg.vector_norm."""

from __future__ import annotations

import math
from typing import Any

from graphc.ir import dtypes, ops

from .. import promote
from ..context import local
from ..dispatch import apply
from ..errors import located
from ..history import requires_grad
from ..replayed import replayed
from ..tensor import Tensor
from . import pointwise as P
from .arguments import named, numpy_names, recorded_as, shape, with_out, wrap_dims
from .reduction import amax, amin, checked_dtype, reduce_dims, safe_root
from .zero_gradient import flat_in


@replayed
@with_out
@numpy_names
def norm(
    input: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """The p-norm of the elements over `dim`: 2 ("fro"), 1, 0, inf, -inf, any number."""
    if p == "nuc":
        return _nuclear(input, dim, keepdim)
    if isinstance(p, str) and p != "fro":
        raise RuntimeError(located(f"norm: unknown norm {p!r}"))
    result = vector_norm(input, 2 if p in ("fro", None) else p, dim, keepdim, dtype=dtype)
    return named(result, "LinalgVectorNormBackward0")


def _nuclear(x: Tensor, dim: Any, keepdim: bool) -> Tensor:
    """The sum of the singular values of matrices over two dims."""
    pair = wrap_dims(tuple(range(x.ndim)) if dim is None else dim, x.ndim)
    if len(pair) != 2:
        raise RuntimeError(located(f"norm: the nuclear norm takes 2 dims, got {len(pair)}"))
    order = tuple(d for d in range(x.ndim) if d not in pair) + pair
    values = apply(ops.linalg_svd, apply(ops.permute, x, dims=order), full=False)[1]
    total = reduce_dims(ops.sum, values, (values.ndim - 1,), False)
    if not keepdim:
        return total
    kept = tuple(1 if d in pair else n for d, n in enumerate(shape(x)))
    result: Tensor = apply(ops.reshape, total, shape=kept)
    return result


@replayed
def vector_norm(
    x: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """torch.linalg.vector_norm."""
    if dtype is not None:
        x = promote.cast(x, checked_dtype(dtype))
    if x.dtype.is_complex:
        x = P.abs(x)
    if not x.dtype.is_float:
        raise RuntimeError(located(
            "linalg.vector_norm: Expected a floating point or complex tensor as input. Got "
            f"{promote._name(x.dtype)}"
        ))
    if x.dtype.bits < 32:
        wide = promote.cast(x, dtypes.f32)
        return promote.cast(vector_norm(wide, ord, dim, keepdim), x.dtype)
    dims = wrap_dims(dim, x.ndim)
    if ord == 2:
        root = safe_root(reduce_dims(ops.sum, P.square(x), dims, keepdim))
        return named(root, "LinalgVectorNormBackward0")
    size = P.abs(x)
    if ord == 1:
        return reduce_dims(ops.sum, size, dims, keepdim)
    if ord in (math.inf, -math.inf):
        return amax(size, dims, keepdim) if ord > 0 else amin(size, dims, keepdim)  # type: ignore[no-any-return]
    if ord == 0:
        return flat_in(x, reduce_dims(ops.sum, promote.cast(P.ne(x, 0), x.dtype), dims, keepdim))
    if not (local.grad and requires_grad(x)):
        return P.pow(reduce_dims(ops.sum, P.pow(size, ord), dims, keepdim), 1.0 / ord)
    zero = P.eq(size, 0)
    # away from powers whose slope at 0 is infinite
    powers = P.pow(P.where(zero, 1.0, size), ord)
    if ord > 0:
        powers = P.where(zero, 0.0, powers)
    total = reduce_dims(ops.sum, powers, dims, keepdim)
    if ord > 0:
        empty = P.eq(total, 0)
    else:  # one zero makes the norm 0, and flat
        empty = P.logical_and(
            reduce_dims(ops.any, zero, dims, keepdim), P.logical_not(P.isnan(total))
        )
    return P.where(empty, 0.0, P.pow(P.where(empty, 1.0, total), 1.0 / ord))  # type: ignore[no-any-return]


@recorded_as("DistBackward0")
def dist(input: Tensor, other: Tensor, p: Any = 2) -> Tensor:
    """The p-norm of the difference."""
    P.require_tensors("dist", input, other)
    return vector_norm(P.sub(input, other), p)
