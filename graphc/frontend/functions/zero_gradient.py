"""Step functions: their gradient is zeros, not None."""

from __future__ import annotations

from graphc.ir import dtypes, ops

from .. import promote
from ..context import local
from ..dispatch import apply
from ..history import requires_grad
from ..tensor import Tensor
from .arguments import shape


def flat_in(x: Tensor, result: Tensor) -> Tensor:
    """The result, which does not change with x: x gets a gradient of zeros, as in torch."""
    if not (local.grad and requires_grad(x)):
        return result
    never = apply(ops.full, shape=shape(x), value=False, dtype=dtypes.bool_)
    zeros = apply(ops.where, never, x, promote.operand(0, x.dtype))
    total = apply(ops.sum, zeros, dims=tuple(range(x.ndim)), keepdim=False)
    # a difference keeps -0.0
    linked: Tensor = apply(ops.sub, result, promote.cast(total, result.dtype))
    return linked
